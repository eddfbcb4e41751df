// SPDX-License-Identifier: Apache-2.0
#pragma once
// What runs a choice of gemm: its steps, and for each family how the product is launched.
#include <array>

#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// Elements behind each row of C up to a multiple of 16 bytes.
std::uint64_t c_padding(const GemmProblem& dense);

enum class GemmStep : std::uint8_t {
  canonicalize,  ///< sizes of 1 and leading dimensions that nothing depends on get their usual form; no launch
  pack,          ///< operands with misaligned rows are copied into scratch memory of the stream
  product,       ///< with several slices of K: their partial sums, into scratch memory of the stream
  reduce,        ///< the partial sums are added up in the order of K, and stored with alpha and beta
  unpack         ///< C is copied from scratch memory to its place
};
std::string_view name(GemmStep s);
/// The steps of a choice, in the order in which run_gemm() takes them.
struct GemmSteps {
  std::array<GemmStep, 5> steps{};
  int count = 0;
  void add(GemmStep s) { steps[std::size_t(count++)] = s; }
  const GemmStep* begin() const { return steps.data(); }
  const GemmStep* end() const { return steps.data() + count; }
};
GemmSteps gemm_steps(const GemmChoice& c);

using GemmRun = void (*)(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& dense,
                         const GemmAddresses& at);
/// The product of a choice; with several slices of K, C is where their partial sums go.
GemmRun gemm_run(const GemmChoice& c);

}  // namespace cgp::kernels
