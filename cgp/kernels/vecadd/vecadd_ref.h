// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of vecadd, in double.
#include "cgp/kernels/common/array.h"

namespace cgp::kernels {

inline std::vector<double> vecadd_ref(const HostArray& a, const HostArray& b) {
  std::vector<double> c(a.size());
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = a.at(i) + b.at(i);
  return c;
}

/// One rounding of the exact sum; the smallest subnormal where the relative bound vanishes.
inline double vecadd_tolerance(DType t, double want) {
  const double tiny = t == DType::f16 ? 0x1p-24 : t == DType::bf16 ? 0x1p-133 : 0x1p-149;
  return std::max(std::fabs(want) * unit_roundoff(t), tiny);
}

}  // namespace cgp::kernels
