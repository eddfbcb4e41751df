// SPDX-License-Identifier: Apache-2.0
#pragma once
// Is a product right? Every element against the oracle where that takes a second; for larger products a
// random sample of elements, and all rows and columns at once against random vectors (Freivalds).
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

struct GemmCheckLimits {
  std::uint64_t full = std::uint64_t(1) << 30;  ///< multiplications up to which every element is compared
  std::uint64_t sample = 8192;                  ///< elements compared beyond
};

/// `old` is c before the product (not read when beta is 0). Check::note says what was compared when that was
/// not everything.
///
/// The whole-matrix part: for signs r chosen at random, the row sums of c * r must be those of
/// alpha * a * (b * r) + beta * old * r. If each element is off by at most its tolerance t, a row is off by
/// more than lambda * sqrt(sum of t^2) with probability 2 exp(-lambda^2 / 2) (Hoeffding); lambda is such that
/// a right product is called wrong once in 10^12. Columns likewise. O(m k + k n + m n) operations.
Check check_gemm(const GemmProblem& p, const HostArray& a, const HostArray& b, const HostArray& old,
                 const HostArray& got, const GemmCheckLimits& limits = {});

}  // namespace cgp::kernels
