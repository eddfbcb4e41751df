// SPDX-License-Identifier: Apache-2.0
#pragma once
// The way to a matrix product on mma.sync in steps, each one idea more than the one before and each runnable:
// for reading, teaching and measuring what an idea is worth. C[m, n] = A[m, k] * B[n, k]^T, f16, fp32 accumulators,
// dense row-major operands. Programs that want a product include gemm/gemm.h.
#include <span>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

struct LadderStep {
  std::string_view name, idea;
  int bm, bn, threads;
  bool aligned;  ///< k must be a multiple of 8: 16-byte copies
};
std::span<const LadderStep> gemm_ladder();

struct LadderProblem {
  std::uint64_t m = 0, n = 0, k = 0;
};
/// Why the step cannot run the problem on the device; empty: it can.
std::string reject(const LadderStep& step, const LadderProblem& p, const runtime::DeviceInfo& d);
/// Queues the product; addresses of f16 matrices. Unsupported with reject()'s sentence.
void run_gemm_ladder(runtime::Stream& s, const LadderStep& step, const LadderProblem& p, std::uint64_t a,
                     std::uint64_t b, std::uint64_t c);

Variant gemm_ladder_wmma(std::string_view step);
Variant gemm_ladder_mma(std::string_view step);
KernelEntry gemm_ladder_entry();

}  // namespace cgp::kernels
