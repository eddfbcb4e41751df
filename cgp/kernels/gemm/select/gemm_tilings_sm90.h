// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cmath>

#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// The kind and tiling that run a problem on sm_90a, and why; reject(GemmFamily::sm90, ...) must be empty.
/// packed: the operands lie in scratch memory, as gemm's own kernels want them.
GemmChoice select_sm90(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                       bool packed = false);
/// About the larger of two times, and more where both are alike.
inline double gemm_both_times(double x, double y, double power) {
  const double most = std::max(x, y);
  return most * std::pow(1 + std::pow(std::min(x, y) / most, power), 1 / power);
}
/// The tiles with a block each that fit one wave, those that are predicted fastest first.
std::vector<GemmChoice> gemm_non_persistent_candidates_sm90(const GemmProblem& p, const GemmAddresses& at,
                                                            const runtime::DeviceInfo& d, std::size_t keep);

}  // namespace cgp::kernels
