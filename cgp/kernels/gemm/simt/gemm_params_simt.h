// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parameters of the GEMMs that address their operands themselves, for the kernels and for their launches
// (common/params.h).
#include "cgp/kernels/common/params.h"

namespace cgp::kernels {

/// simt (sizes of 64 bits, tiles of C numbered along n), skinny and simt_small_m (of 32 bits). T: any on the host.
template <class Side, class Size, class T = dsl::f32>
struct GemmPointerParams {
  Field<Side, dsl::In<T>> a, b;
  Field<Side, dsl::InOut<T>> c;
  Field<Side, dsl::Val<Size>> m, n, k;  ///< skinny: k counts accesses of 16 bytes
  Field<Side, dsl::Val<dsl::u64>> lda, ldb, ldc, stride_a, stride_b, stride_c;
  Field<Side, dsl::Val<dsl::f32>> alpha, beta;
  Field<Side, dsl::Val<dsl::u32>> tiles_n;

  template <class F>
  void visit(F&& f) {
    f(a, b, c, m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c, alpha, beta);
    if constexpr (std::is_same_v<Size, dsl::u64>) f(tiles_n);
  }
};

/// naive: op(A)[row, k] lies at row * a_row + k * a_col, op(B)[k, col] at k * b_row + col * b_col.
template <class Side, class T = dsl::f32>
struct GemmNaiveParams {
  Field<Side, dsl::In<T>> a, b;
  Field<Side, dsl::InOut<T>> c;
  Field<Side, dsl::Val<dsl::u64>> m, n, k, a_row, a_col, b_row, b_col, ldc, stride_a, stride_b, stride_c;
  Field<Side, dsl::Val<dsl::f32>> alpha, beta;
  Field<Side, dsl::Val<dsl::u32>> tiles_n;

  template <class F>
  void visit(F&& f) {
    f(a, b, c, m, n, k, a_row, a_col, b_row, b_col, ldc, stride_a, stride_b, stride_c, alpha, beta, tiles_n);
  }
};

}  // namespace cgp::kernels
