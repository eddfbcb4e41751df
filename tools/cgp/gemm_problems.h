// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which products `cgp bench gemm` and `cgp tune gemm` run: named sets of sizes, times element types, times
// layouts.
#include <string>
#include <vector>

#include "cgp/kernels/gemm/gemm.h"

namespace cgp::cli {

struct GemmSelection {
  std::string shapes = {};                    ///< "4096x4096x4096,64x512x512x512"; empty: the sets'
  std::string set = "square";                 ///< names with commas: square, llm, crooked, batched, all
  std::string dtype = "bf16", layout = "nt";  ///< lists with commas
};

/// Throws ArgumentError naming the word that is none.
std::vector<kernels::GemmProblem> gemm_problems(const GemmSelection& s);

}  // namespace cgp::cli
