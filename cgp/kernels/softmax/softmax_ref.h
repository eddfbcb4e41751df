// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of softmax, in double.
#include <limits>

#include "cgp/kernels/common/array.h"

namespace cgp::kernels {

/// Rows of the last dimension of x.
inline std::vector<double> softmax_ref(const HostArray& x, std::uint64_t rows, std::uint64_t cols) {
  std::vector<double> y(rows * cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    double m = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::uint64_t c = 0; c < cols; ++c) m = std::fmax(m, x.at(r * cols + c));
    for (std::uint64_t c = 0; c < cols; ++c) sum += y[r * cols + c] = std::exp(x.at(r * cols + c) - m);
    for (std::uint64_t c = 0; c < cols; ++c) y[r * cols + c] /= sum;
  }
  return y;
}

/// Each exponential carries 2 ulp of ex2.approx and the rounding of its argument (|x - max| * log2 e, at most
/// `span` here, in 24 bits); the sum of n of them adds log2(n) + 4 roundings; the store rounds to the type.
/// Results below the normal range of f32 are flushed to zero.
inline double softmax_tolerance(DType t, double want, double span, std::uint64_t cols) {
  const double f32 = unit_roundoff(DType::f32);
  const double relative = f32 * (4 + 2 * span + 4 + std::log2(double(cols) + 1)) * 2 + unit_roundoff(t);
  const double tiny = t == DType::f16 ? 0x1p-24 : 0x1p-126;
  return std::max(std::fabs(want) * relative, tiny);
}

}  // namespace cgp::kernels
