// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: small GEMMs of sm_100a in the style of the real kernels, shared by the tests that assemble and
// that run them.
#include "cgp/dsl/cluster_launch_control.h"
#include "cgp/dsl/epilogue.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/umma.h"

namespace cgp::dsl {

struct UmmaTestShape {
  int bm, bn, bk;
};
enum class Walk : std::uint8_t { one_tile, persistent, stealing };

// D[m,n] = A[m,k] B[n,k]^T in accumulators of type TC. A loading thread, a multiplying thread, a warpgroup
// that reads.
template <class T, class TC, UmmaTestShape S, int Slots, Swizzle Sw = widest_swizzle(S.bk* T::bits / 8)>
void gemm_sm100(Kernel& k, int stages, TmaIn<Tile<T, S.bm, S.bk, Sw>> a, TmaIn<Tile<T, S.bn, S.bk, Sw>> b,
                Out<TC> c, Val<u32> n, Val<u32> k_tiles, Val<u32> tiles_m, Val<u32> tiles_n) {
  using Acc = TmemAcc<TC, S.bm, S.bn>;
  auto drain = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  auto mma = k.role<Warp>(1);
  Ring<ByUmma, Tile<T, S.bm, S.bk, Sw>, Tile<T, S.bn, S.bk, Sw>> ring(k, stages, load, mma);
  with_tmem<TmemSlots<Acc, Slots>>(k, [&](auto& tmem) {
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
        auto sums = accs.take(wg);
        constexpr int cols = S.bn % 32 == 0 ? 32 : S.bn % 16 == 0 ? 16 : 8;
        const auto row = m0 + sums.row(wg);
        for (int col = 0; col < S.bn; col += cols) {
          if constexpr (Acc::warp_rows == 32) {
            const auto line = c.at((row + w.lane()) * n + n0);
            const auto part = sums.template load_row<cols>(wg, col).wait(wg);
            for (int j = 0; j < cols; j += 4)
              line.template st<4>((col + j) / 4, Vec<TC, 4>(part[j], part[j + 1], part[j + 2], part[j + 3]));
          } else {
            sums.template load<cols>(wg, col).wait(wg).each_pair(
                w, [&](Val<u32> r, Val<u32> j, Val<TC> lo, Val<TC> hi) {
                  c.template st<2>(((row + r) * n + n0 + col + j) / 2, Vec<TC, 2>(lo, hi));
                });
          }
        }
        std::move(sums).release(wg);
      });
    });
  });
}

// The same for pairs of blocks that multiply 2 bm x bn tiles together, tiles found by work stealing, results
// staged through shared memory.
template <class T, UmmaTestShape S, int Slots>
void gemm_sm100_pair(Kernel& k, int stages, TmaIn<Tile<T, S.bm, S.bk>> a, TmaIn<Tile<T, S.bn / 2, S.bk>> b,
                     TmaOut<Tile<T, S.bm, 64>> c, Val<u32> k_tiles, Val<u32> tiles_n) {
  using Acc = TmemAcc<f32, 2 * S.bm, S.bn, CtaPair>;
  k.cluster(2);
  auto drain = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  auto mma = k.role<Warp>(1);
  Ring<ByUmmaPair, Tile<T, S.bm, S.bk>, Tile<T, S.bn / 2, S.bk>> ring(k, stages, load, mma);
  Staging<Tile<T, S.bm, 64>> staging(k, drain, 2);
  WorkQueue queue(k, load, leaders(mma), drain);
  const auto rank = k.cluster_ctarank();
  with_tmem<TmemSlots<Acc, Slots>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), mma, drain);
    load.one_thread([&](Thread& t) {
      queue.lead(t, [&](Val<u32> tile) {
        const auto m0 = (tile / tiles_n * 2 + rank) * S.bm, n0 = tile % tiles_n * S.bn + rank * (S.bn / 2);
        k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * S.bk), at(b, n0, kt * S.bk)); });
      });
    });
    one_leader(mma, [&](PairLeader& t) {
      queue.follow(t, [&](Val<u32>) {
        auto d = k.loop(k_tiles, accs.acquire(t),
                        [&](Val<u32>, auto d) { return umma(t, std::move(d), ring.take(t)); });
        std::move(d).commit(t);
      });
    });
    drain.run([&](Warpgroup& wg) {
      Warp w = wg.warp();
      auto last = queue.follow(wg, staging.idle(), [&](Val<u32> tile, PendingStore pending) {
        const auto m0 = (tile / tiles_n * 2 + rank) * S.bm, n0 = tile % tiles_n * S.bn;
        auto sums = accs.take(wg);
        std::vector<PendingStore> turn;
        turn.push_back(std::move(pending));
        for (int col = 0; col < S.bn; col += 64)
          turn.push_back(staging.store(wg, std::move(turn.back()), at(c, m0, n0 + col), [&](auto& out) {
            auto part = sums.template load<64>(wg, col).wait(wg);
            store_tile(w, part, out.template rows<32>(sums.row(wg)));
          }));
        std::move(sums).release(wg);
        return std::move(turn.back());
      });
      std::move(last).wait(wg);
    });
  });
}

}  // namespace cgp::dsl
