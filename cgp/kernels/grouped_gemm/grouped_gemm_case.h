// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the two cases of grouped_gemm share; for grouped_gemm_case.cpp and grouped_problems_case.cpp.
#include <cstring>

#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

namespace cgp::kernels {

/// The selector's choice for "auto"; else that kind, or Unsupported with reject()'s sentence.
GroupedChoice choose_grouped(const std::string& kind, const GroupedProblem& p, const GroupedAddresses& at,
                             const runtime::DeviceInfo& d);

struct GroupedCaseOptions {
  std::string kind;         ///< of the variant, or auto
  bool misaligned = false;  ///< some items are not aligned, some have k = 0
  bool pointers = false;    ///< items are equal, and made on the device from arrays of addresses
};
std::unique_ptr<Case> prepare_problems(const runtime::Device& d, const GroupedProblem& p,
                                       const std::vector<std::uint64_t>& ends, const GroupedCaseOptions& o,
                                       const std::vector<NamedArray>& given, std::uint64_t seed);

}  // namespace cgp::kernels
