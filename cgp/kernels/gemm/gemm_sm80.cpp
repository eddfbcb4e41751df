// SPDX-License-Identifier: Apache-2.0
// gemm sm80: tensor cores through mma.sync, fed by a multistage cp.async pipeline.
//   who      4 warps compute a 128 x 128 tile of C, each 64 x 64 of it
//   memory   4 stages of 128 x 32 tiles of A and B, swizzled against bank conflicts; ldmatrix (transposing
//   for
//            operands whose K is not contiguous); chunks outside the matrices are filled with zeros
//   sync     AsyncRing: one block barrier per 32 steps of K
//   needs    sm_80; 16-bit types; rows of A and B that start at multiples of 16 bytes; sizes below 2^32
#include "cgp/base/text.h"
#include "cgp/dsl/async.h"
#include "cgp/dsl/mma.h"
#include "cgp/kernels/gemm/gemm.h"
#include "cgp/kernels/gemm/gemm_epilogue.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kTile = 128, kDepth = 32, kWarpTile = 64, kStages = 4, kGroup = 8;

template <class T, Major M>
using OperandTile = std::conditional_t<M == Major::k, Tile<T, kTile, kDepth>, Tile<T, kDepth, kTile>>;

template <class T, Major MA, Major MB>
void gemm_sm80_kernel(Kernel& k, In<T> a, In<T> b, InOut<T> c, Val<u32> m, Val<u32> n, Val<u32> kk,
                      Val<u32> lda, Val<u32> ldb, Val<u64> ldc, Val<u64> stride_a, Val<u64> stride_b,
                      Val<u64> stride_c, Val<f32> alpha, Val<f32> beta, Val<u32> tiles_m, Val<u32> tiles_n,
                      Val<u32> paired) {
  k.block(128);
  using TileA = OperandTile<T, MA>;
  using TileB = OperandTile<T, MB>;
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TileA, TileB> ring(k, kStages);
  const auto tile = grouped_tile(k, tiles_m, tiles_n, kGroup);
  const auto m0 = tile.m * kTile, n0 = tile.n * kTile, batch = k.ctaid_z();
  const auto wm = (w.index >> 1) * kWarpTile, wn = (w.index & 1) * kWarpTile;
  const auto batch64 = to<u64>(batch);
  constexpr bool ka = MA == Major::k, kb = MB == Major::k;
  TileSource<TileA> a_src(cta, a.at(batch64 * stride_a), lda, ka ? m : kk, ka ? kk : m);
  TileSource<TileB> b_src(cta, b.at(batch64 * stride_b), ldb, kb ? n : kk, kb ? kk : n);
  WarpA<TileA, kWarpTile, MA> a_part(w, wm);
  WarpB<TileB, kWarpTile, MB> b_part(w, wn);
  auto acc = ring.loop(
      cta, (kk + (kDepth - 1)) / kDepth, zeros<f32, kWarpTile, kWarpTile>(w),
      [&](auto& stage, const Val<u32>& kt) {
        const auto k0 = kt * kDepth;
        stage.template copy<0>(a_src, ka ? m0 : k0, ka ? k0 : m0);
        stage.template copy<1>(b_src, kb ? n0 : k0, kb ? k0 : n0);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), a_part, stage.template get<0>(), b_part, stage.template get<1>());
      });
  const GemmOutput<T> out{InOut<T>(c.at(batch64 * stride_c)), to<u64>(m), to<u64>(n), ldc, alpha, beta};
  const auto pairs = paired != 0u;
  std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    out.put_pair(k, pairs, to<u64>(m0 + wm + r), to<u64>(n0 + wn + col), lo, hi);
  });
}

template <class T>
Variant make(std::string_view stem, bool ta, bool tb) {
  constexpr Major K = Major::k, MN = Major::mn;
  auto name = text::cat("gemm_", stem, "_sm80_", ta ? "t" : "n", tb ? "t" : "n");
  if (ta)
    return tb ? variant(name, 80, gemm_sm80_kernel<T, MN, K>)
              : variant(name, 80, gemm_sm80_kernel<T, MN, MN>);
  return tb ? variant(name, 80, gemm_sm80_kernel<T, K, K>) : variant(name, 80, gemm_sm80_kernel<T, K, MN>);
}

}  // namespace

Variant gemm_sm80(DType t, bool trans_a, bool trans_b) {
  return t == DType::f16 ? make<f16>("f16", trans_a, trans_b) : make<bf16>("bf16", trans_a, trans_b);
}

}  // namespace cgp::kernels
