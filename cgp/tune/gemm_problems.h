// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which products `cgp bench gemm` and `cgp tune gemm` run: named sets of sizes, times element types, times
// layouts.
#include <string>
#include <vector>

#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::tune {

struct GemmSelection {
  std::string shapes = {};                    ///< "4096x4096x4096,64x512x512x512"; empty: the sets'
  std::string set = "square";                 ///< names with commas: square, llm, misaligned, batched, all
  std::string dtype = "bf16", layout = "nt";  ///< lists with commas; types as in gemm_key()
  std::string epilogue = "none";              ///< list: none, relu, gelu, bias, bias_relu, bias_gelu
};

/// Throws ArgumentError naming the word that is none.
struct GemmTask {
  kernels::GemmProblem problem;
  std::string epilogue;      ///< one of the words above; its arrays are made where it runs
  std::string name() const;  ///< gemm_key(), with "+bias_gelu" for an epilogue
};
std::vector<GemmTask> gemm_tasks(const GemmSelection& s);
/// Without epilogues.
std::vector<kernels::GemmProblem> gemm_problems(const GemmSelection& s);

}  // namespace cgp::tune
