// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of gemm, in double.
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

struct GemmOracle {
  std::vector<double> want, tolerance;
};

/// Each of the k products and sums is rounded to f32 at most once (tensor cores truncate whole groups of 8 or
/// 16 to 25 bits, which is less); the result is rounded once to the type.
inline double gemm_tolerance(DType t, std::uint64_t k, double magnitude, double want) {
  const double tiny = t == DType::f16 ? 0x1p-24 : 0x1p-126;
  return magnitude * double(k + 16) * unit_roundoff(DType::f32) + std::fabs(want) * unit_roundoff(t) + tiny;
}

inline GemmOracle gemm_ref(const GemmProblem& q, const HostArray& a, const HostArray& b, const HostArray& c) {
  const GemmProblem p = q.dense();
  GemmOracle r;
  r.want = c.as_doubles();
  r.tolerance.assign(r.want.size(), 0);
  for (std::uint64_t z = 0; z < p.batch; ++z)
    for (std::uint64_t i = 0; i < p.m; ++i)
      for (std::uint64_t j = 0; j < p.n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::uint64_t l = 0; l < p.k; ++l) {
          const double x = a.at(z * p.stride_a + (p.trans_a ? l * p.lda + i : i * p.lda + l)) *
                           b.at(z * p.stride_b + (p.trans_b ? j * p.ldb + l : l * p.ldb + j));
          sum += x, magnitude += std::fabs(x);
        }
        const std::uint64_t at = z * p.stride_c + i * p.ldc + j;
        const double old = p.beta == 0 ? 0 : double(p.beta) * c.at(at);
        r.want[at] = double(p.alpha) * sum + old;
        r.tolerance[at] =
            gemm_tolerance(p.type, p.k, std::fabs(double(p.alpha)) * magnitude + std::fabs(old), r.want[at]);
      }
  return r;
}

}  // namespace cgp::kernels
