// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of grouped_gemm, in double.
#include <cmath>

#include "cgp/kernels/gemm/api/gemm_ref.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

namespace cgp::kernels {

/// `ends`: rows up to and with each group. `index`: which row of A stands at row r; empty: row r. Rows of C
/// that belong to no group stay `old`.
inline GemmOracle grouped_ref(const GroupedProblem& p, const std::vector<std::uint64_t>& ends,
                              const std::vector<std::uint64_t>& index, const HostArray& a, const HostArray& b,
                              const HostArray& old) {
  GemmOracle r;
  r.want = old.as_doubles();
  r.tolerance.assign(r.want.size(), 0);
  const bool depth = p.form == GroupedForm::depth;
  for (std::uint64_t g = 0; g < p.groups; ++g) {
    const std::uint64_t from = g ? ends[g - 1] : 0, to = ends[g];
    const std::uint64_t first = depth ? 0 : from, last = depth ? p.m : to, k = depth ? to - from : p.k;
    for (std::uint64_t i = first; i < last; ++i)
      for (std::uint64_t j = 0; j < p.n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::uint64_t l = 0; l < k; ++l) {
          const double x = depth ? a.at((from + l) * p.m + i) * b.at((from + l) * p.n + j)
                                 : a.at((index.empty() ? i : index[i]) * p.k + l) *
                                       b.at(g * p.n * p.k + (p.trans_b ? j * p.k + l : l * p.n + j));
          sum += x, magnitude += std::fabs(x);
        }
        const std::uint64_t at = (depth ? g * p.m + i : i) * p.n + j;
        r.want[at] = double(p.alpha) * sum;
        r.tolerance[at] = gemm_tolerance(p.type, k, std::fabs(double(p.alpha)) * magnitude, r.want[at]);
      }
  }
  return r;
}

}  // namespace cgp::kernels
