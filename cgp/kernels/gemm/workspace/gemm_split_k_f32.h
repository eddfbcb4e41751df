// SPDX-License-Identifier: Apache-2.0
#pragma once
// K in slices that are reduced in f32: gemm_split_k_f32.cpp.
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// How many slices of K a problem is computed in; 1: as a whole. Their number does not depend on addresses.
int gemm_f32_split_k(const GemmProblem& dense, const runtime::DeviceInfo& d);
/// The choice for one slice, with the number of slices.
GemmChoice choose_f32_split_k(const GemmProblem& dense, const GemmAddresses& at, const runtime::DeviceInfo& d,
                              int slices);
/// Scratch memory of the product: the partial sums from its first byte on, then copied operands.
std::uint64_t f32_split_k_scratch(const GemmChoice& choice, const GemmProblem& dense, const GemmAddresses& at,
                                  const runtime::DeviceInfo& d);
/// The slices' partial sums, to scratch memory at at.c.
void run_f32_split_k(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& dense,
                     const GemmAddresses& at);
/// c = alpha * the sum of the partial sums + beta * c.
void run_gemm_split_k_reduce_f32(runtime::Stream& s, const GemmProblem& dense, std::uint64_t c,
                                 std::uint64_t partials, int split_k);
Variant gemm_split_k_reduce_f32(DType c);

}  // namespace cgp::kernels
