// SPDX-License-Identifier: Apache-2.0
#pragma once
// gemm sm90_pingpong: two math warpgroups take turns, each with a whole BM x BN tile: while one multiplies,
// the other applies the epilogue and stores.
//   who      one producer thread feeds the ring; persistent clusters walk over the tiles of C
//   memory   stages of 128 bytes of K, of any type of wgmma; the blocks of a cluster lie along m and
//            share the tiles of B; results leave through gemm_store_sm90.h
//   pairs    an epilogue that pairs columns gets both from one thread: half of a tile of B are first, half
//            second elements, which one box of a tensor map fetches
//   needs    sm_90a; rows and batches of A, B and C at multiples of 16 bytes; k >= 1; sizes below 2^31
#include "cgp/base/text.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/gemm/sm90/gemm_store_sm90.h"
#include "cgp/kernels/schedule/tile_scheduler.h"

namespace cgp::kernels {

/// Build-time values of the typed kernels.
struct MixedTuning {
  GemmMixedTuning tile;
  DType c;
  Epilogue epilogue;
  bool blocks = false;  ///< scales of blocks (promoted accumulators)
};

/// As f32.
inline dsl::DynAcc to_floats(dsl::DynAcc acc) {
  if (acc.type() == ptx::Mod::f32) return acc;
  return std::move(acc).map<dsl::s32>([](int, const dsl::Val<dsl::s32>& x) { return dsl::to<dsl::f32>(x); });
}

template <class TA, class TB, class Sum, dsl::Major MA, dsl::Major MB, int BM, int BN>
void gemm_pingpong_kernel(dsl::Kernel& k, MixedTuning tune, typename HopperOperand<TA, MA, BM>::map a,
                          dsl::Val<dsl::u32> m, dsl::Val<dsl::u32> n, dsl::Val<dsl::u32> k_tiles,
                          dsl::Val<dsl::u32> rows, dsl::Val<dsl::u32> cols, dsl::Val<dsl::u32> tiles) {
  using namespace dsl;
  using A = HopperOperand<TA, MA, BM>;
  using B = HopperOperand<TB, MB, BN>;
  constexpr std::uint32_t depth = hopper_depth<TA>;
  const int cluster = tune.tile.cluster;
  if (cluster > 1) k.cluster(cluster);
  const bool pairs = tune.epilogue.pairing() != Pairing::none;
  using Paired = TmaIn<typename B::tile, 1, 2, BN / 2, int(depth)>;
  std::optional<typename B::map> plain_b;
  std::optional<Paired> paired_b;
  if (pairs && MB == Major::k)
    paired_b.emplace(Param<Paired>::make(k));
  else
    plain_b.emplace(Param<typename B::map>::make(k));
  HopperStore c(k, tune.c, tune.epilogue, m, n, BN);
  auto math = k.role<Warpgroup>(2, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const ClusterTiles walk{rows, cols, tiles, cluster, tune.tile.group};

  const auto body = [&](const auto& b, auto&& at_b) {
    Ring<ByTurns, typename A::tile, typename B::tile> ring(k, tune.tile.stages, load, math, a, b);
    c.open(math, tune.tile.buffers);
    Turns<Warpgroup> multiplying(k, math);
    const auto first = walk.first(k), step = walk.step(k);
    load.one_thread([&](Thread& t) {
      k.loop(range(first, tiles, step), [&](Val<u32> tile) {
        const auto at = walk.place(k, tile, BM, BN);
        k.loop(k_tiles, [&](Val<u32> kt) {
          ring.fill(t, A::at(a, at.batch, at.m0, kt * depth), at_b(at, kt * depth));
        });
      });
    });
    math.run([&](Warpgroup& wg) {
      ring.skip(wg, wg.index * k_tiles);
      k.loop(range(first + wg.index * step, tiles, step * 2u), [&](Val<u32> tile) {
        const auto at = walk.place(k, tile, BM, BN);
        multiplying.wait(wg);
        auto begun = wgmma<MA, MB>(wg, fresh<Sum, BM, BN>(wg), ring.take(wg));
        auto last = k.loop(k_tiles - 1, std::move(begun), [&](Val<u32>, auto busy) {
          return std::move(busy).template then<MA, MB>(wg, ring.take(wg));
        });
        auto acc = std::move(last).wait(wg);
        multiplying.pass(wg);
        ring.skip(wg, k_tiles);
        DynAcc own(std::move(acc));
        const bool whole = std::is_same_v<Sum, s32> && tune.c == DType::s32 && tune.epilogue.empty();
        const auto blocks = (whole ? std::move(own) : to_floats(std::move(own))).row_blocks();
        for (int i = 0; i < BM / 64; ++i)
          c.store(wg, blocks[std::size_t(i)], {at.batch, at.m0 + std::uint32_t(64 * i), at.n0});
      });
      c.drain(wg);
    });
  };
  if (paired_b)
    body(cluster > 1 ? paired_b->multicast(Axis::x) : *paired_b,
         [b = cluster > 1 ? paired_b->multicast(Axis::x) : *paired_b](const TileCoord& at,
                                                                      const Val<u32>& k0) {
           return dsl::at(b, at.batch, Val<u32>(0), at.n0 / 2u, k0);
         });
  else
    body(cluster > 1 ? plain_b->multicast(Axis::x) : *plain_b,
         [b = cluster > 1 ? plain_b->multicast(Axis::x) : *plain_b](const TileCoord& at, const Val<u32>& k0) {
           return B::at(b, at.batch, at.n0, k0);
         });
}

/// Tiles of the kernel: 128 x 128, 128 x 192 and, where asked for, 128 x 176.
template <class TA, class TB, class Sum, dsl::Major MA, dsl::Major MB, bool With176 = false>
Variant pingpong_variant(std::string name, const MixedTuning& t) {
  const auto pick = [&](auto fn) { return variant(std::move(name), 90, fn, t); };
  const auto between = [&] {
    if constexpr (With176)
      return pick(gemm_pingpong_kernel<TA, TB, Sum, MA, MB, 128, 176>);
    else
      return pick(gemm_pingpong_kernel<TA, TB, Sum, MA, MB, 128, 192>);
  };
  Variant v = t.tile.bn == 128   ? pick(gemm_pingpong_kernel<TA, TB, Sum, MA, MB, 128, 128>)
              : t.tile.bn == 176 ? between()
                                 : pick(gemm_pingpong_kernel<TA, TB, Sum, MA, MB, 128, 192>);
  v.only = "sm_90a";
  return v;
}

/// 16-bit types, and those that need K contiguous. The names are made by the selector.
Variant gemm_pingpong_16(const GemmProblem& p, std::string name, const MixedTuning& t);
Variant gemm_pingpong_k(const GemmProblem& p, std::string name, const MixedTuning& t);
Variant gemm_mixed_dynamic(const GemmProblem& p, std::string name, const MixedTuning& t);
Variant gemm_promoted_dynamic(const GemmProblem& p, std::string name, const MixedTuning& t);

}  // namespace cgp::kernels
