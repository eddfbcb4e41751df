// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: small GEMMs of sm_100a in the style of the real kernels, shared by the tests that assemble and
// that run them.
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/umma.h"
#include "cgp/dsl/pipeline/cluster_launch_control.h"

namespace cgp::dsl {

struct UmmaTestShape {
  int bm, bn, bk;
};
// D[m,n] = A[m,k] B[n,k]^T in accumulators of type TC. A loading thread, a multiplying thread, a warpgroup
// that reads.
template <class T, class TC, UmmaTestShape S, int Slots, Swizzle Sw = widest_swizzle(S.bk* T::bits / 8)>
void gemm_sm100(Kernel& k, int stages, TmaIn<Tile<T, S.bm, S.bk, Sw>> a, TmaIn<Tile<T, S.bn, S.bk, Sw>> b,
                Out<TC> c, Val<u32> n, Val<u32> k_tiles, Val<u32> tiles_m, Val<u32> tiles_n) {
  using Sums = TmemAcc<TC, S.bm, S.bn>;
  auto drain = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  auto mma = k.role<Warp>(1);
  Ring<ByUmma, Tile<T, S.bm, S.bk, Sw>, Tile<T, S.bn, S.bk, Sw>> ring(k, stages, load, mma);
  with_tmem<TmemSlots<Sums, Slots>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), mma, drain);
    const auto walk = range(k.ctaid_x(), tiles_m * tiles_n, k.nctaid_x());
    load.one_thread([&](Thread& t) {
      k.loop(walk, [&](Val<u32> tile) {
        const auto m0 = tile / tiles_n * S.bm, n0 = tile % tiles_n * S.bn;
        k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * S.bk), at(b, n0, kt * S.bk)); });
      });
    });
    mma.one_thread([&](Thread& t) {
      k.loop(walk, [&](Val<u32>) {
        auto d = k.loop(k_tiles, accs.acquire(t),
                        [&](Val<u32>, auto d) { return umma(t, std::move(d), ring.take(t)); });
        std::move(d).commit(t);
      });
    });
    drain.run([&](Warpgroup& wg) {
      Warp w = wg.warp();
      k.loop(walk, [&](Val<u32> tile) {
        const auto m0 = tile / tiles_n * S.bm, n0 = tile % tiles_n * S.bn;
        auto acc = accs.take(wg);
        constexpr int cols = S.bn % 32 == 0 ? 32 : S.bn % 16 == 0 ? 16 : 8;
        const auto row = m0 + acc.row(wg);
        for (int col = 0; col < S.bn; col += cols) {
          if constexpr (Sums::warp_rows == 32) {
            const auto line = c.at((row + w.lane()) * n + n0);
            const auto part = acc.template load_row<cols>(wg, col).wait(wg);
            for (int j = 0; j < cols; j += 4)
              line.template st<4>((col + j) / 4, Vec<TC, 4>(part[j], part[j + 1], part[j + 2], part[j + 3]));
          } else {
            acc.template load<cols>(wg, col).wait(wg).each_pair(
                w, [&](Val<u32> r, Val<u32> j, Val<TC> lo, Val<TC> hi) {
                  c.template st<2>(((row + r) * n + n0 + col + j) / 2, Vec<TC, 2>(lo, hi));
                });
          }
        }
        std::move(acc).release(wg);
      });
    });
  });
}

struct PairTuning {
  int stages;
  bool stealing;  ///< tiles by cluster launch control, else a fixed share
};

// The same for pairs of blocks that multiply 2 bm x bn tiles together, results staged through shared memory.
template <class T, UmmaTestShape S, int Slots>
void gemm_sm100_pair(Kernel& k, PairTuning tune, TmaIn<Tile<T, S.bm, S.bk>> a,
                     TmaIn<Tile<T, S.bn / 2, S.bk>> b, TmaOut<Tile<T, S.bm, 64>> c, Val<u32> k_tiles,
                     Val<u32> tiles_m, Val<u32> tiles_n) {
  using Sums = TmemAcc<f32, 2 * S.bm, S.bn, CtaPair>;
  k.cluster(2);
  auto drain = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  auto mma = k.role<Warp>(1);
  Ring<ByUmmaPair, Tile<T, S.bm, S.bk>, Tile<T, S.bn / 2, S.bk>> ring(k, tune.stages, load, mma);
  Staging<Tile<T, S.bm, 64>> staging(k, drain, 2);
  std::optional<WorkQueue> queue;
  if (tune.stealing) queue.emplace(k, load, leaders(mma), drain);
  const auto rank = k.cluster_ctarank();
  const auto walk = range(k.clusterid_x(), tiles_m * tiles_n, k.nclusterid_x());
  with_tmem<TmemSlots<Sums, Slots>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), mma, drain);
    load.one_thread([&](Thread& t) {
      const auto copy = [&](Val<u32> tile) {
        const auto m0 = (tile / tiles_n * 2 + rank) * S.bm, n0 = tile % tiles_n * S.bn + rank * (S.bn / 2);
        k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * S.bk), at(b, n0, kt * S.bk)); });
      };
      if (queue)
        queue->lead(t, copy);
      else
        k.loop(walk, copy);
    });
    one_leader(mma, [&](PairLeader& t) {
      const auto multiply = [&](Val<u32>) {
        k.loop(k_tiles, accs.acquire(t), [&](Val<u32>, auto d) {
           return umma(t, std::move(d), ring.take(t));
         }).commit(t);
      };
      if (queue)
        queue->follow(t, multiply);
      else
        k.loop(walk, multiply);
    });
    drain.run([&](Warpgroup& wg) {
      Warp w = wg.warp();
      const auto store = [&](Val<u32> tile, PendingStore pending) {
        const auto m0 = (tile / tiles_n * 2 + rank) * S.bm, n0 = tile % tiles_n * S.bn;
        auto acc = accs.take(wg);
        std::vector<PendingStore> turn;
        turn.push_back(std::move(pending));
        for (int col = 0; col < S.bn; col += 64)
          turn.push_back(staging.store(wg, std::move(turn.back()), at(c, m0, n0 + col), [&](auto& out) {
            auto part = acc.template load<64>(wg, col).wait(wg);
            store_tile(w, part, out.template rows<32>(acc.row(wg)));
          }));
        std::move(acc).release(wg);
        return std::move(turn.back());
      };
      auto last = queue ? queue->follow(wg, staging.idle(), store) : k.loop(walk, staging.idle(), store);
      std::move(last).wait(wg);
    });
  });
}

// Block-scaled: one tile of bm x bn. Elements per scale: 16 for ue4m3, else 32.
template <class T, class S, UmmaTestShape Shape>
struct ScaledGemm {
  static constexpr int elements = Shape.bk * (T::mod == ptx::Mod::e2m1x2 ? 2 : 1);  ///< of K in a stage
  static constexpr int count = elements / (S::mod == ptx::Mod::ue4m3 ? 16 : 32);
  using A = Tile<T, Shape.bm, Shape.bk>;
  using B = Tile<T, Shape.bn, Shape.bk>;
  using SA = ScaleTile<S, Shape.bm, count>;
  using SB = ScaleTile<S, (Shape.bn + 127) / 128 * 128, count>;
  using Sums = TmemAcc<f32, Shape.bm, Shape.bn>;
  static void kernel(Kernel& k, TmaIn<A> a, TmaIn<B> b, TmaIn<SA> sa, TmaIn<SB> sb, Out<f32> c,
                     Val<u32> k_tiles) {
    auto drain = k.role<Warpgroup>(1);
    auto load = k.role<Warp>(1);
    auto mma = k.role<Warp>(1);
    Ring<ByUmma, A, B, SA, SB> ring(k, 2, load, mma);
    with_tmem<TmemSlots<Sums, 1>, TmemScales<S, SA::scaled_rows, count>,
              TmemScales<S, SB::scaled_rows, count>>(k, [&](auto& tmem) {
      Accumulators accs(k, tmem.template get<0>(), mma, drain);
      load.one_thread([&](Thread& t) {
        k.loop(k_tiles, [&](Val<u32> kt) {
          ring.fill(t, at(a, 0, kt * Shape.bk), at(b, 0, kt * Shape.bk), at(sa, kt * SA::rows, 0),
                    at(sb, kt * SB::rows, 0));
        });
      });
      mma.one_thread([&](Thread& t) {
        const ScalePair scales{tmem.template get<1>(), tmem.template get<2>()};
        k.loop(k_tiles, accs.acquire(t), [&](Val<u32>, auto d) {
           return umma_scaled(t, std::move(d), ring.take(t), scales);
         }).commit(t);
      });
      drain.run([&](Warpgroup& wg) {
        auto acc = accs.take(wg);
        const auto line = c.at((acc.row(wg) + wg.warp().lane()) * Shape.bn);
        for (int col = 0; col < Shape.bn; col += 16)
          line.template st<16>(col / 16, acc.template load_row<16>(wg, col).wait(wg));
        std::move(acc).release(wg);
      });
    });
  }
};

// c[128, 64] = a[128, 64] b[64, 64]^T with A in tensor memory, written there by threads. One block of 128.
inline void a_in_tensor_memory(Kernel& k, In<b32> a, TmaIn<Tile<bf16, 64, 64>> b, Out<f32> c) {
  using Sums = TmemAcc<f32, 128, 64>;
  k.block(128);
  Cta cta = k.cta();
  Warpgroup wg = k.warpgroup();
  Ring<ByUmma, Tile<bf16, 64, 64>> ring(k, 1, cta);
  with_tmem<TmemSlots<Sums, 1>, TmemOperand<bf16, 128, 64>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), cta);
    auto filled = store_rows<16>(wg, tmem.template get<1>(), [&](int word) {
                    return a.ld<16>(k.tid() * 2 + word / 16);
                  }).publish(cta);
    cta.one_thread([&](Thread& t) {
      ring.fill(t, at(b, 0, 0));
      umma(t, accs.acquire(t), filled, ring.take(t)).commit(t);
    });
    auto acc = accs.take(wg);
    for (int col = 0; col < 64; col += 16)
      c.st<16>(k.tid() * 4 + col / 16, acc.template load_row<16>(wg, col).wait(wg));
    std::move(acc).release(wg);
  });
}

// c[M, N] = A B with sums of type TC; A is [M, K] or (transposed) [K, M] in memory, B [N, K] or [K, N]. One
// block of 128, one tile.
template <class T, class TC, int M, int N, int K, Major MA, Major MB>
void one_tile(Kernel& k, TmaIn<std::conditional_t<MA == Major::k, Tile<T, M, K>, Tile<T, K, M>>> a,
              TmaIn<std::conditional_t<MB == Major::k, Tile<T, N, K>, Tile<T, K, N>>> b, Out<TC> c) {
  using A = std::conditional_t<MA == Major::k, Tile<T, M, K>, Tile<T, K, M>>;
  using B = std::conditional_t<MB == Major::k, Tile<T, N, K>, Tile<T, K, N>>;
  k.block(128);
  Cta cta = k.cta();
  Warpgroup wg = k.warpgroup();
  Ring<ByUmma, A, B> ring(k, 1, cta);
  with_tmem<TmemSlots<TmemAcc<TC, M, N>, 1>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), cta);
    cta.one_thread([&](Thread& t) {
      ring.fill(t, at(a, 0, 0), at(b, 0, 0));
      umma<MA, MB>(t, accs.acquire(t), ring.take(t)).commit(t);
    });
    auto acc = accs.take(wg);
    Warp w = wg.warp();
    const auto row = acc.row(wg);
    if constexpr (TC::bits == 16) {
      const auto line = c.at((row + w.lane()) * N).template as<b32>();
      for (int col = 0; col < N; col += 8)
        line.template st<4>(col / 8, acc.template load_row<8>(wg, col).wait(wg));
    } else {
      for (int col = 0; col < N; col += 8)
        acc.template load<8>(wg, col).wait(wg).each_pair(
            w, [&](Val<u32> r, Val<u32> j, Val<TC> lo, Val<TC> hi) {
              c.template st<2>(((row + r) * N + col + j) / 2, Vec<TC, 2>(lo, hi));
            });
    }
    std::move(acc).release(wg);
  });
}

}  // namespace cgp::dsl
