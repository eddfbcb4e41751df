// SPDX-License-Identifier: Apache-2.0
#pragma once
// Running sums along rows: out[r, c] = sum of x[r, 0 .. c], or of x[r, 0 .. c - 1] (exclusive, beginning with
// 0). f32 inside, rounded once at the end; the order of addition depends on the shape alone, so that the
// same input gives the same bits. Neighbouring sums are added in different orders: sums of positive elements
// may fall by a rounding.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

struct CumSum {
  View x;    ///< [rows, cols]: f32, f16 or bf16
  View out;  ///< of x's type; may be x with the same pitch
  std::uint64_t rows = 0, cols = 0;
  row::Layout x_layout{}, out_layout{};  ///< pitch alone
  bool exclusive = false;
};
void cumsum(runtime::Stream& s, const CumSum& c);

/// What would run.
Variant cumsum_variant(const CumSum& c, std::string* why);
KernelEntry cumsum_entry();

}  // namespace cgp::kernels
