// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: small GEMMs in the style of the real kernels, shared by the tests that assemble and that run
// them.
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/dsl/pipeline/cluster.h"

namespace cgp::dsl {

struct HopperShape {
  int bm, bn, bk;
};

// C[m,n] = A[m,k] B[n,k]^T. One producer thread, bm / 64 math warpgroups of 64 rows each.
template <class T, class TC, HopperShape S, Swizzle Sw = widest_swizzle(S.bk* T::bits / 8)>
void gemm_sm90(Kernel& k, int stages, TmaIn<Tile<T, S.bm, S.bk, Sw>> a, TmaIn<Tile<T, S.bn, S.bk, Sw>> b,
               Out<TC> c, Val<u32> n, Val<u32> k_tiles) {
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  auto math = k.role<Warpgroup>(S.bm / 64, /*registers=*/232);
  Ring<ByThreads, Tile<T, S.bm, S.bk, Sw>, Tile<T, S.bn, S.bk, Sw>> ring(k, stages, load, math);
  auto m0 = k.ctaid_y() * S.bm, n0 = k.ctaid_x() * S.bn;

  load.one_thread([&](Thread& t) {
    k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * S.bk), at(b, n0, kt * S.bk)); });
  });

  math.run([&](Warpgroup& wg) {
    // From here the accumulator and the stage belong to the tensor core.
    auto first = wgmma(wg, fresh<TC, 64, S.bn>(wg), ring.take(wg));
    // One product stays in flight: issue the next, then free the stage of the one before it.
    auto last = k.loop(k_tiles - 1, std::move(first),
                       [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
    auto acc = std::move(last).wait(wg);  // only now is it readable

    auto row0 = m0 + wg.index * 64;
    std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<TC> lo, Val<TC> hi) {
      c.template st<2>((row0 + r) * (n / 2) + (n0 + col) / 2, Vec<TC, 2>(lo, hi));
    });
  });
}

struct PersistentTuning {
  int stages, cluster, buffers;
};

// The same, persistent: every cluster walks over tiles of (cluster * bm) x bn, its blocks share B by
// multicast, and the store of a tile overlaps the next tile's products.
template <class T, class TD, HopperShape S, int StoreCols>
void gemm_sm90_persistent(Kernel& k, PersistentTuning tune, TmaIn<Tile<T, S.bm, S.bk>> a,
                          TmaIn<Tile<T, S.bn, S.bk>> b_all, TmaOut<Tile<TD, 64, StoreCols>> d,
                          Val<u32> tiles_m, Val<u32> tiles_n, Val<u32> k_tiles) {
  k.cluster(tune.cluster);
  auto math = k.role<Warpgroup>(S.bm / 64, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  auto b = b_all.multicast(Axis::x);
  Ring<ByThreads, Tile<T, S.bm, S.bk>, Tile<T, S.bn, S.bk>> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<TD, 64, StoreCols>> staging(k, math, tune.buffers);
  auto tiles = range(k.clusterid_x(), tiles_m * tiles_n, k.nclusterid_x());
  auto row_of = [&](Val<u32> tile) { return ((tile / tiles_n) * tune.cluster + k.cluster_ctarank()) * S.bm; };

  load.one_thread([&](Thread& t) {
    k.loop(tiles, [&](Val<u32> tile) {
      auto m0 = row_of(tile), n0 = tile % tiles_n * S.bn;
      k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * S.bk), at(b, n0, kt * S.bk)); });
    });
  });
  math.run([&](Warpgroup& wg) {
    auto last_store = k.loop(tiles, staging.idle(), [&](Val<u32> tile, PendingStore pending) {
      auto m0 = row_of(tile), n0 = tile % tiles_n * S.bn;
      auto first = wgmma(wg, fresh<f32, 64, S.bn>(wg), ring.take(wg));
      auto last = k.loop(k_tiles - 1, std::move(first),
                         [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
      auto acc = std::move(last).wait(wg);
      std::vector<PendingStore> turn;
      turn.push_back(std::move(pending));
      for (int col = 0; col < S.bn; col += StoreCols) {
        turn.push_back(staging.store(wg, std::move(turn.back()), at(d, m0 + wg.index * 64, n0 + col),
                                     [&](auto& tile) { store_tile(wg, acc, tile, col); }));
      }
      return std::move(turn.back());
    });
    std::move(last_store).wait(wg);
  });
}

// Pingpong: each of two math warpgroups owns whole 64 x bn tiles; while one multiplies, the other stores.
template <HopperShape S>
void gemm_sm90_pingpong(Kernel& k, int stages, TmaIn<Tile<bf16, S.bm, S.bk>> a,
                        TmaIn<Tile<bf16, S.bn, S.bk>> b, TmaOut<Tile<f32, S.bm, S.bn>> d, Val<u32> tiles_m,
                        Val<u32> tiles_n, Val<u32> k_tiles) {
  auto math = k.role<Warpgroup>(2, /*registers=*/232);
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  Ring<ByTurns, Tile<bf16, S.bm, S.bk>, Tile<bf16, S.bn, S.bk>> ring(k, stages, load, math);
  Staging<Tile<f32, S.bm, S.bn>> staging(k, math);
  Turns<Warpgroup> multiplying(k, math);
  auto tiles = tiles_m * tiles_n;

  load.one_thread([&](Thread& t) {
    k.loop(range(k.ctaid(), tiles, k.nctaid()), [&](Val<u32> tile) {
      k.loop(k_tiles, [&](Val<u32> kt) {
        ring.fill(t, at(a, tile / tiles_n * S.bm, kt * S.bk), at(b, tile % tiles_n * S.bn, kt * S.bk));
      });
    });
  });
  math.run([&](Warpgroup& wg) {
    ring.skip(wg, wg.index * k_tiles);
    auto mine = range(k.ctaid() + wg.index * k.nctaid(), tiles, k.nctaid() * 2);
    auto last_store = k.loop(mine, staging.idle(), [&](Val<u32> tile, PendingStore pending) {
      multiplying.wait(wg);
      auto first = wgmma(wg, fresh<f32, S.bm, S.bn>(wg), ring.take(wg));
      auto last = k.loop(k_tiles - 1, std::move(first),
                         [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
      auto acc = std::move(last).wait(wg);
      multiplying.pass(wg);
      ring.skip(wg, k_tiles);
      return staging.store(wg, std::move(pending), at(d, tile / tiles_n * S.bm, tile % tiles_n * S.bn),
                           [&](auto& to) { store_tile(wg, acc, to); });
    });
    std::move(last_store).wait(wg);
  });
}

struct AmpereShape {
  int bm, bn, bk;
};

// C[m,n] = A[m,k] B[n,k]^T, any m, n, k with k a multiple of 16 bytes; 2 x 2 warps.
template <class T, class TC, AmpereShape S>
void gemm_sm80(Kernel& k, int stages, In<T> a, In<T> b, Out<TC> c, Val<u32> m, Val<u32> n, Val<u32> kk) {
  k.block(128);
  constexpr int wm = S.bm / 2, wn = S.bn / 2;
  using TA = Tile<T, S.bm, S.bk>;
  using TB = Tile<T, S.bn, S.bk>;
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TA, TB> ring(k, stages);
  const auto m0 = k.ctaid_y() * S.bm, n0 = k.ctaid_x() * S.bn;
  const auto row0 = (w.index >> 1) * wm, col0 = (w.index & 1) * wn;
  TileSource<TA> a_src(cta, a, kk, m, kk);
  TileSource<TB> b_src(cta, b, kk, n, kk);
  WarpA<TA, wm> a_rows(w, row0);
  WarpB<TB, wn> b_rows(w, col0);
  auto acc = ring.loop(
      cta, (kk + (S.bk - 1)) / S.bk, zeros<TC, wm, wn>(w),
      [&](auto& stage, const Val<u32>& kt) {
        stage.template copy<0>(a_src, m0, kt * S.bk);
        stage.template copy<1>(b_src, n0, kt * S.bk);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), a_rows, stage.template get<0>(), b_rows, stage.template get<1>());
      });
  std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> col, Val<TC> lo, Val<TC> hi) {
    const auto row = m0 + row0 + r, column = n0 + col0 + col;
    k.if_(row < m, [&] {
      k.if_(column < n, [&] { c.st(row * n + column, lo); });
      k.if_(column + 1 < n, [&] { c.st(row * n + column + 1, hi); });
    });
  });
}

}  // namespace cgp::dsl
