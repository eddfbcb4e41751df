// SPDX-License-Identifier: Apache-2.0
#pragma once
// f32 products of few rows: gemm_f32_rows.cpp.
#include <optional>

#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// None where the kernel does not fit or others are faster.
std::optional<GemmChoice> select_f32_rows(const GemmProblem& dense, const GemmAddresses& at);
void run_f32_rows(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& dense,
                  const GemmAddresses& at);
std::vector<Variant> gemm_f32_rows_variants();

}  // namespace cgp::kernels
