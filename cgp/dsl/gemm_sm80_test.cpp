// SPDX-License-Identifier: Apache-2.0
// A multistage cp.async + ldmatrix + mma.sync GEMM: records, verifies and assembles for sm_80.
#include <gtest/gtest.h>

#include "cgp/dsl/async.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma.h"
#include "cgp/dsl/ptxas_check.h"

namespace cgp::dsl {
namespace {

// C[m,n] = A[m,k] B[n,k]^T; 2 x 2 warps, each WM x WN.
template <class T, int BM, int BN, int BK>
void gemm(Kernel& k, int stages, In<T> a, In<T> b, Out<f32> c, Val<u32> m, Val<u32> n, Val<u32> kk) {
  k.block(128);
  constexpr int WM = BM / 2, WN = BN / 2;
  using TA = Tile<T, BM, BK>;
  using TB = Tile<T, BN, BK>;
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TA, TB> ring(k, stages);
  const auto m0 = k.ctaid_y() * BM, n0 = k.ctaid_x() * BN;
  const auto wm = (w.index >> 1) * WM, wn = (w.index & 1) * WN;
  TileSource<TA> a_src(cta, a, kk, m, kk);
  TileSource<TB> b_src(cta, b, kk, n, kk);
  WarpA<TA, WM> a_rows(w, wm);
  WarpB<TB, WN> b_rows(w, wn);
  auto acc = ring.loop(
      cta, (kk + (BK - 1)) / BK, zeros<f32, WM, WN>(w),
      [&](auto& stage, const Val<u32>& kt) {
        stage.template copy<0>(a_src, m0, kt * BK);
        stage.template copy<1>(b_src, n0, kt * BK);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), a_rows, stage.template get<0>(), b_rows, stage.template get<1>());
      });
  std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    const auto row = m0 + wm + r, column = n0 + wn + col;
    k.if_((row < m) & (column < n), [&] {
      c.st(row * n + column, lo);
      c.st(row * n + column + 1, hi);
    });
  });
}

TEST(gemm_sm80, bf16_assembles_without_spills) {
  const auto b = build("gemm_bf16_sm80", "sm_80", gemm<bf16, 128, 128, 32>, 3);
  const auto said = ptxas(b);
  if (said == "no ptxas") GTEST_SKIP() << said;
  EXPECT_EQ(said, "") << b.ptx();
}

}  // namespace
}  // namespace cgp::dsl
