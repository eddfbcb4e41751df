// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of cross-entropy and its gradient, in double, with the error that f32 arithmetic may make.
#include <cmath>
#include <limits>

#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/cross_entropy/cross_entropy.h"

namespace cgp::kernels {

struct CrossEntropyOracle {
  std::vector<double> loss, lse, dlogits, loss_tolerance, lse_tolerance, dlogits_tolerance;
};
inline CrossEntropyOracle cross_entropy_ref(const std::vector<double>& x, const std::vector<double>& targets,
                                            std::uint64_t rows, std::uint64_t cols, double ignore,
                                            double smoothing, double z_loss, double scale, DType out) {
  CrossEntropyOracle o;
  const double u = unit_roundoff(DType::f32), c = 16 + double(cols) / 512 + std::log2(double(cols) + 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::uint64_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * cols;
    double m = -std::numeric_limits<double>::infinity(), sum = 0, total = 0, size = 0;
    for (std::uint64_t i = 0; i < cols; ++i) m = std::fmax(m, row[i]);
    for (std::uint64_t i = 0; i < cols; ++i)
      sum += std::exp(row[i] - m), total += row[i], size += std::fabs(row[i]);
    const double lse = m + std::log(sum), t = targets[r];
    const bool ignored = t == ignore, known = t >= 0 && t < double(cols);
    const double xt = known ? row[std::uint64_t(t)] : 0;
    // The exponent of each term is rounded; those that matter are near 0. The sum, its logarithm, the
    // addition.
    const double lse_error = 2 * u * (c + std::fabs(lse) + std::fabs(m) + std::log(sum));
    o.lse.push_back(lse), o.lse_tolerance.push_back(lse_error);
    const double loss = lse - (1 - smoothing) * xt - (smoothing > 0 ? smoothing * total / double(cols) : 0) +
                        z_loss * lse * lse;
    o.loss.push_back(ignored ? 0 : known ? loss : nan);
    o.loss_tolerance.push_back(lse_error * (1 + 2 * z_loss * std::fabs(lse)) +
                               4 * u * (std::fabs(xt) + std::fabs(lse) + z_loss * lse * lse) +
                               (smoothing > 0 ? smoothing * c * u * size / double(cols) : 0));
    for (std::uint64_t i = 0; i < cols; ++i) {
      const double p = std::exp(row[i] - lse), factor = 1 + 2 * z_loss * lse;
      const double g = scale * (p * factor - (known && std::uint64_t(t) == i ? 1 - smoothing : 0) -
                                smoothing / double(cols));
      o.dlogits.push_back(ignored ? 0 : known ? g : nan);
      const double relative = p > 0 ? 2 * u * (c + 3 * std::fabs(row[i] - m)) : 0;
      const double error = std::fabs(scale) * (std::fabs(p * factor) * relative + p * 2 * z_loss * lse_error +
                                               4 * u * (1 + std::fabs(p * factor)));
      o.dlogits_tolerance.push_back(error + (std::fabs(g) + error) * unit_roundoff(out) +
                                    (out == DType::f16 ? 0x1p-24 : 0x1p-126));
    }
  }
  return o;
}

}  // namespace cgp::kernels
