// SPDX-License-Identifier: Apache-2.0
#pragma once
// gemm sm80: tensor cores through mma.sync, fed by a multistage cp.async pipeline (the last step of
// gemm_ladder, for every layout, leading dimension, factor and batch).
//   who      warps compute 64 x 64 (32 x 32 of the smallest tile) of a tile of C: 128 x 256, 128 x 128 or 64
//   x 64 memory   stages of 32 of K of A and B, swizzled against bank conflicts; ldmatrix (transposing for
//            operands whose K is not contiguous); chunks outside the matrices are filled with zeros
//   sync     AsyncRing: one block barrier per 32 steps of K
//   needs    sm_80; 16-bit types; rows of A and B that start at multiples of 16 bytes; sizes below 2^32
#include "cgp/base/text.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/common/params.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {

/// The tile that is predicted fastest on the device's SMs.
GemmChoice choose_sm80(const GemmProblem& p, const runtime::DeviceInfo& d);
/// Tiles of bm x bn: 128 x 128, 64 x 128 or 64 x 64.
GemmVariant gemm_sm80(DType t, bool trans_a, bool trans_b, int bm, int bn);
Variant gemm_sm80_bf16(std::string name, bool trans_a, bool trans_b, int bm, int bn);
Variant gemm_sm80_f16(std::string name, bool trans_a, bool trans_b, int bm, int bn);

namespace sm80 {

inline constexpr int kDepth = 32, kStages = 4, kGroup = 8;

template <class T, int Rows, dsl::Major M>
using OperandTile =
    std::conditional_t<M == dsl::Major::k, dsl::Tile<T, Rows, kDepth>, dsl::Tile<T, kDepth, Rows>>;

/// T: any on the host.
template <class Side, class T = dsl::f16>
struct Params {
  Field<Side, dsl::In<T>> a, b;
  Field<Side, dsl::InOut<T>> c;
  Field<Side, dsl::Val<dsl::u32>> m, n, k, lda, ldb;
  Field<Side, dsl::Val<dsl::u64>> ldc, stride_a, stride_b, stride_c;
  Field<Side, dsl::Val<dsl::f32>> alpha, beta;
  Field<Side, dsl::Val<dsl::u32>> tiles_m, tiles_n;
  Field<Side, dsl::Val<dsl::u32>> paired;  ///< neighbours of a row of C are an aligned word

  template <class F>
  void visit(F&& f) {
    f(a, b, c, m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c, alpha, beta, tiles_m, tiles_n, paired);
  }
};

template <class T, dsl::Major MA, dsl::Major MB, int BM, int BN>
void kernel(dsl::Kernel& k) {
  using namespace dsl;
  const auto p = declare_params<Params<OnDevice, T>>(k);
  const auto &m = *p.m, &n = *p.n, &kk = *p.k;
  constexpr int kRows = BM / 2, kCols = BN / 2;  // of a warp
  k.block(128);
  using TileA = OperandTile<T, BM, MA>;
  using TileB = OperandTile<T, BN, MB>;
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TileA, TileB> ring(k, kStages);
  const auto tile = grouped_raster(k.ctaid_x(), *p.tiles_m, *p.tiles_n, kGroup);
  const auto m0 = tile.row * BM, n0 = tile.col * BN, batch = k.ctaid_z();
  const auto wm = (w.index >> 1) * std::uint32_t(kRows), wn = (w.index & 1) * std::uint32_t(kCols);
  const auto batch64 = to<u64>(batch);
  constexpr bool ka = MA == Major::k, kb = MB == Major::k;
  TileSource<TileA> a_src(cta, p.a->at(batch64 * *p.stride_a), *p.lda, ka ? m : kk, ka ? kk : m);
  TileSource<TileB> b_src(cta, p.b->at(batch64 * *p.stride_b), *p.ldb, kb ? n : kk, kb ? kk : n);
  WarpA<TileA, kRows, MA> a_part(w, wm);
  WarpB<TileB, kCols, MB> b_part(w, wn);
  auto acc = ring.loop(
      cta, (kk + (kDepth - 1)) / kDepth, zeros<f32, kRows, kCols>(w),
      [&](auto& stage, const Val<u32>& kt) {
        const auto k0 = kt * kDepth;
        stage.template copy<0>(a_src, ka ? m0 : k0, ka ? k0 : m0);
        stage.template copy<1>(b_src, kb ? n0 : k0, kb ? k0 : n0);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), a_part, stage.template get<0>(), b_part, stage.template get<1>());
      });
  const GemmOutput<T> out{
      InOut<T>(p.c->at(batch64 * *p.stride_c)), to<u64>(m), to<u64>(n), *p.ldc, *p.alpha, *p.beta};
  const auto pairs = *p.paired != 0u;
  std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    out.put_pair(k, pairs, to<u64>(m0 + wm + r), to<u64>(n0 + wn + col), lo, hi);
  });
}

template <class T, dsl::Major MA, dsl::Major MB>
Variant make(std::string name, int bm, int bn) {
  return bm == 128   ? variant(std::move(name), 80, kernel<T, MA, MB, 128, 128>)
         : bn == 128 ? variant(std::move(name), 80, kernel<T, MA, MB, 64, 128>)
                     : variant(std::move(name), 80, kernel<T, MA, MB, 64, 64>);
}
template <class T>
Variant make_layout(std::string name, bool ta, bool tb, int bm, int bn) {
  constexpr dsl::Major K = dsl::Major::k, MN = dsl::Major::mn;
  if (ta) return tb ? make<T, MN, K>(std::move(name), bm, bn) : make<T, MN, MN>(std::move(name), bm, bn);
  return tb ? make<T, K, K>(std::move(name), bm, bn) : make<T, K, MN>(std::move(name), bm, bn);
}

}  // namespace sm80
}  // namespace cgp::kernels
