// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rearranging operands and results in scratch memory.
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

/// Element (row, col) of batch z lies at z * stride + row * ld + col; transposed: at z * stride + col * ld + row.
struct GemmMatrix {
  std::uint64_t address = 0, rows = 0, cols = 0, ld = 0, stride = 0;
  bool transposed = false;
};

/// Copies `from`, transposed or not, to the places of `to` (its address, ld and stride; not transposed), elements of
/// 1, 2 or 4 bytes at any alignment. split: f32 become three bf16 each, whose sum they are to 2^-26; the
/// terms lie batch * to.stride elements apart; the word at `unfit` becomes 1 where an element is infinite,
/// NaN or above the largest bf16.
void run_gemm_arrange(runtime::Stream& s, const GemmMatrix& from, const GemmMatrix& to, int bytes, bool split,
                      std::uint64_t batch, std::uint64_t unfit = 0);
std::vector<Variant> gemm_arrange_variants();

}  // namespace cgp::kernels
