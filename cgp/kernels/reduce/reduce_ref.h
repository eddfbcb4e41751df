// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of reduce, in double.
#include "cgp/kernels/reduce/reduce.h"

namespace cgp::kernels {

struct ReduceOracle {
  std::vector<double> want, tolerance;
};

/// The error of a sum is at most (chain + 1) f32 roundings of the sum of magnitudes, plus one rounding to the
/// type; a maximum is exact.
inline ReduceOracle reduce_ref(ReduceOp op, const HostArray& in, const ReduceShape& s, std::uint64_t chain) {
  ReduceOracle r;
  r.want.assign(s.outer * s.inner, 0);
  r.tolerance.assign(s.outer * s.inner, 0);
  for (std::uint64_t o = 0; o < s.outer; ++o)
    for (std::uint64_t i = 0; i < s.inner; ++i) {
      double acc = op == ReduceOp::sum ? 0 : -std::numeric_limits<double>::infinity(), magnitude = 0;
      for (std::uint64_t k = 0; k < s.n; ++k) {
        const double v = in.at((o * s.n + k) * s.inner + i);
        if (op == ReduceOp::sum)
          acc += v, magnitude += std::fabs(v);
        else
          acc =
              std::isnan(v) || std::isnan(acc) ? std::numeric_limits<double>::quiet_NaN() : std::max(acc, v);
      }
      const std::uint64_t at = o * s.inner + i;
      r.want[at] = acc;
      if (op == ReduceOp::sum)
        r.tolerance[at] = magnitude * unit_roundoff(DType::f32) * double(chain + 1) +
                          std::fabs(acc) * unit_roundoff(in.dtype) + 0x1p-149;
    }
  return r;
}

}  // namespace cgp::kernels
