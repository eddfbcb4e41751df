// SPDX-License-Identifier: Apache-2.0
#pragma once
// K in parts that are added up in f32: gemm_parts_f32.cpp.
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// How many parts of K a problem is made in; 1: as a whole. Their number does not depend on addresses.
int gemm_f32_parts(const GemmProblem& dense, const runtime::DeviceInfo& d);
/// The choice for one part, with the number of parts.
GemmChoice choose_f32_parts(const GemmProblem& dense, const GemmAddresses& at, const runtime::DeviceInfo& d,
                            int parts);
void run_f32_parts(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& dense,
                   const GemmAddresses& at);
Variant gemm_add_f32(DType c);

}  // namespace cgp::kernels
