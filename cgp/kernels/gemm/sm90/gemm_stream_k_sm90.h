// SPDX-License-Identifier: Apache-2.0
#pragma once
// gemm sm90_stream_k: a persistent Hopper GEMM with two answers to tiles that do not fill the last wave: tiles
// of many widths, and clusters whose blocks split K of the tiles that are left.
//   who      one producer thread feeds the ring; each math warpgroup owns 64 rows of a tile
//   order    schedule/stream_k.h: blocks walk over whole tiles; then each cluster splits one that is left
//   memory   results go through shared memory and out by TMA, clipped at the edges; partial accumulators of
//            a split tile go to the block that owns their columns (gemm_stream_k_exchange.h)
//   needs    sm_90a; 16-bit types; rows and batches of A, B and C at multiples of 16 bytes; K of at least 64 a
//            block of the cluster
#include "cgp/base/text.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/pipeline/dyn_ring.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_stream_k_exchange.h"
#include "cgp/kernels/schedule/stream_k.h"

namespace cgp::kernels {

/// Columns that are stored at once: 128 bytes a row with a swizzle, or an odd number of 16-byte parts
/// without, which do not meet in banks either. They divide the tile into an even number of subtiles.
constexpr int stream_k_store_cols(int bn) {
  if (bn % 64 == 0) return 64;
  for (int c : {104, 88, 72, 56, 40, 24})
    if (bn % (2 * c) == 0) return c;
  return 8;
}

namespace stream_k {
using namespace dsl;

inline L2Hint l2_hint(GemmLines l) {
  return l == GemmLines::first  ? L2Hint::evict_first
         : l == GemmLines::last ? L2Hint::evict_last
                                : L2Hint::none;
}

template <class T, int BN>
using StoreTile =
    Tile<T, 64, stream_k_store_cols(BN), stream_k_store_cols(BN) == 64 ? Swizzle::b128 : Swizzle::none>;

template <class T, Major MA, Major MB, int BM, int BN>
void gemm(Kernel& k, GemmStreamKTuning tune) {
  using A = HopperOperand<T, MA, BM>;
  using B = HopperOperand<T, MB, BN>;
  constexpr int kStore = stream_k_store_cols(BN);
  const auto p = declare_params<
      GemmStreamKParams<OnDevice, typename A::map, typename B::map, TmaOut<StoreTile<T, BN>, 1, 64, kStore>>>(
      k);
  const auto a = p.a->hint(l2_hint(tune.a));
  const auto b = p.b->hint(l2_hint(tune.b));
  const auto c = p.c->hint(l2_hint(tune.c));
  if (tune.split > 1) k.cluster(tune.split);
  auto math = k.role<Warpgroup>(BM / 64, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  prefetch_descriptors(load, a, b, c);
  std::optional<StreamKExchange<BM, BN>> exchange;
  if (tune.split > 1) exchange.emplace(k, tune.split);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math);
  Staging<StoreTile<T, BN>> staging(k, math, tune.buffers);
  const StreamKTiles tiles(k, tune.split, tune.group, *p.rows, *p.cols, *p.whole, *p.tiles, *p.k_tiles);

  load.one_thread([&](Thread& t) {
    const auto fill = [&](const TileCoord& at, const auto& steps) {
      k.loop(steps, [&](Val<u32> kt) {
        ring.fill(t, A::at(a, at.batch, at.m0, kt * kHopperBk), B::at(b, at.batch, at.n0, kt * kHopperBk));
      });
    };
    tiles.each_whole([&](const Val<u32>& tile) { fill(tiles.coord(tile, BM, BN), *p.k_tiles); });
    tiles.tail([&](const Val<u32>& tile) { fill(tiles.coord(tile, BM, BN), tiles.tail_steps()); });
  });

  math.run([&](Warpgroup& wg) {
    const auto multiply = [&](const Val<u32>& steps) {
      auto begun = wgmma<MA, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
      // One product stays in flight: issue the next, then free the stage of the one before it.
      auto last = k.loop(steps - 1, std::move(begun), [&](Val<u32>, auto busy) {
        return std::move(busy).template then<MA, MB>(wg, ring.take(wg));
      });
      return std::move(last).wait(wg);  // only now is the accumulator readable
    };
    const auto store = [&](PendingStore pending, const TileCoord& to, const Val<u32>& n0, const auto& acc,
                           int width) {
      std::vector<PendingStore> stores;
      stores.push_back(std::move(pending));
      for (int col = 0; col < width; col += kStore)
        stores.push_back(staging.store(wg, std::move(stores.back()),
                                       at(c, to.batch, to.m0 + wg.index * 64, n0 + std::uint32_t(col)),
                                       [&](auto& out) { store_tile(wg, acc, out, col); }));
      return std::move(stores.back());
    };
    auto storing = tiles.each_whole(staging.idle(), [&](const Val<u32>& tile, PendingStore pending) {
      const auto to = tiles.coord(tile, BM, BN);
      const auto acc = multiply(*p.k_tiles).map([&](Val<f32> x) { return x * *p.alpha; });
      return store(std::move(pending), to, to.n0, acc, BN);
    });
    if constexpr (BM == 128 && BN % 128 == 0)
      tiles.tail([&](const Val<u32>& tile) {
        const auto to = tiles.coord(tile, BM, BN);
        const auto part = multiply(tiles.tail_step_count());
        auto accumulators = exchange->reduce(wg, part, ring.template storage<f32>(k));
        const auto finish = [&](auto width) {
          constexpr int W = decltype(width)::value;
          std::vector<Value> scaled;
          for (const auto& x : accumulators) scaled.push_back(x * *p.alpha);
          const Acc<f32, 64, W> acc{AccRegs(std::move(scaled))};
          store(staging.idle(), to, to.n0 + tiles.rank() * std::uint32_t(W), acc, W).wait(wg);
        };
        tune.split == 2 ? finish(std::integral_constant<int, BN / 2>{})
                        : finish(std::integral_constant<int, BN / 4>{});
      });
    std::move(storing).wait(wg);
  });
}

}  // namespace stream_k
}  // namespace cgp::kernels
