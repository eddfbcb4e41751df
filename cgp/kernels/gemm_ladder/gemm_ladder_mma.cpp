// SPDX-License-Identifier: Apache-2.0
// gemm_ladder, the steps with mma.sync: fragments by ldmatrix, tiles by cp.async, results stored in pairs.
//   mma64         64 x 64, four warps of 32 x 32, 32 of K a stage, two stages, tiles as plain rows
//   swizzled      the same with rows swizzled, so that ldmatrix meets no bank twice
//   mma64x128     four warps of 32 x 64: a third less traffic for each product
//   three_stages  two copies in flight while one stage is multiplied
//   mma128        128 x 128, four warps of 64 x 64, four stages
//   mma128x256    eight warps of 64 x 64: 85 operations for each byte that is loaded
//   grouped       the same, tiles visited in groups of 8 rows, so that blocks share operands in L2
#include "cgp/base/text.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm_ladder/gemm_ladder.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kDepth = 32;
struct Tuning {
  int stages = 2, group = 1;
};

template <int BM, int BN, int WM, int WN, Swizzle Sw = Swizzle::b64>
void ladder_mma(Kernel& k, Tuning tune, In<f16> a, In<f16> b, InOut<f16> c, Val<u32> m, Val<u32> n,
                Val<u32> kk, Val<u32> tiles_m, Val<u32> tiles_n, Val<u32> paired, Val<f32> alpha,
                Val<f32> beta) {
  using TileA = Tile<f16, BM, kDepth, Sw>;
  using TileB = Tile<f16, BN, kDepth, Sw>;
  constexpr int across = BN / WN;
  k.block(BM / WM * across * 32);
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TileA, TileB> ring(k, tune.stages);
  const auto tile = grouped_raster(k.ctaid_x(), tiles_m, tiles_n, tune.group);
  const auto m0 = tile.row * std::uint32_t(BM), n0 = tile.col * std::uint32_t(BN);
  const auto wm = w.index / std::uint32_t(across) * std::uint32_t(WM),
             wn = w.index % std::uint32_t(across) * std::uint32_t(WN);
  TileSource<TileA> source_a(cta, a, kk, m, kk);
  TileSource<TileB> source_b(cta, b, kk, n, kk);
  WarpA<TileA, WM> part_a(w, wm);
  WarpB<TileB, WN> part_b(w, wn);
  auto acc = ring.loop(
      cta, (kk + (kDepth - 1)) / kDepth, zeros<f32, WM, WN>(w),
      [&](auto& stage, const Val<u32>& kt) {
        stage.template copy<0>(source_a, m0, kt * kDepth);
        stage.template copy<1>(source_b, n0, kt * kDepth);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), part_a, stage.template get<0>(), part_b, stage.template get<1>());
      });
  const GemmOutput<f16> out{c, to<u64>(m), to<u64>(n), to<u64>(n), alpha, beta};
  const auto pairs = paired != 0u;
  std::move(acc).each_pair(w, [&](Val<u32> row, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    out.put_pair(k, pairs, to<u64>(m0 + wm + row), to<u64>(n0 + wn + col), lo, hi);
  });
}

}  // namespace

Variant gemm_ladder_mma(std::string_view step) {
  auto name = text::cat("gemm_ladder_f16_", step);
  if (step == "mma64") return variant(std::move(name), 80, ladder_mma<64, 64, 32, 32, Swizzle::none>, {2, 1});
  if (step == "swizzled") return variant(std::move(name), 80, ladder_mma<64, 64, 32, 32>, {2, 1});
  if (step == "mma64x128") return variant(std::move(name), 80, ladder_mma<64, 128, 32, 64>, {2, 1});
  if (step == "three_stages") return variant(std::move(name), 80, ladder_mma<64, 128, 32, 64>, {3, 1});
  if (step == "mma128") return variant(std::move(name), 80, ladder_mma<128, 128, 64, 64>, {4, 1});
  return variant(std::move(name), 80, ladder_mma<128, 256, 64, 64>, {4, step == "grouped" ? 8 : 1});
}

}  // namespace cgp::kernels
