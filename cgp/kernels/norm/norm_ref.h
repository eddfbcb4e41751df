// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracles of the norms, in double, with the error that f32 arithmetic may make.
#include <cmath>
#include <vector>

#include "cgp/kernels/catalog/tensor_case.h"

namespace cgp::kernels {

struct NormOracle {
  std::vector<double> h, y, mean, rstd;
  std::vector<double> y_tolerance, mean_tolerance, rstd_tolerance;
};

/// `h` is x (+ residual, rounded to the type that is stored). Sums of n terms in f32 in chains and trees
/// carry at most c = 8 + cols / 256 + log2(cols) roundings: that is the relative error of the mean square,
/// and the absolute one of a mean in units of the largest |h|.
inline NormOracle norm_ref(std::vector<double> h, const std::vector<double>& weight,
                           const std::vector<double>& bias, std::uint64_t rows, std::uint64_t cols,
                           bool layer, double eps, double offset, DType type) {
  NormOracle o;
  const double u = unit_roundoff(DType::f32), c = 8 + double(cols) / 256 + std::log2(double(cols) + 1);
  for (std::uint64_t r = 0; r < rows; ++r) {
    const double* x = h.data() + r * cols;
    double mean = 0, square = 0, most = 0;
    for (std::uint64_t i = 0; i < cols; ++i) mean += x[i], most = std::fmax(most, std::fabs(x[i]));
    mean = layer ? mean / double(cols) : 0;
    for (std::uint64_t i = 0; i < cols; ++i) square += (x[i] - mean) * (x[i] - mean);
    const double variance = square / double(cols), rstd = 1 / std::sqrt(variance + eps);
    const double mean_error = layer ? c * u * most : 0;
    // d(variance) = relative error of the sum, plus what a wrong mean adds (its square).
    const double rstd_error =
        rstd * (4 * u + 0.5 * (c * 2 * u * variance + mean_error * mean_error) / (variance + eps) + 2 * u);
    o.mean.push_back(mean), o.mean_tolerance.push_back(mean_error + 0x1p-126);
    o.rstd.push_back(rstd), o.rstd_tolerance.push_back(rstd_error);
    for (std::uint64_t i = 0; i < cols; ++i) {
      const double w = weight.empty() ? 1 : weight[i] + offset, d = x[i] - mean;
      const double y = d * rstd * w + (bias.empty() ? 0 : bias[i]);
      o.y.push_back(y);
      const double error =
          std::fabs(w) * (rstd * (mean_error + 2 * u * std::fabs(d)) + std::fabs(d) * rstd_error);
      o.y_tolerance.push_back(error + (std::fabs(y) + error) * (unit_roundoff(type) + 2 * u) +
                              (type == DType::f16 ? 0x1p-25 : 0x1p-126));
    }
  }
  o.h = std::move(h);
  return o;
}

struct NormBackwardOracle {
  std::vector<double> dx, dweight, dbias;
  std::vector<double> dx_tolerance, dweight_tolerance, dbias_tolerance;
};
/// Of given mean and rstd (as stored by the forward pass, exact here); mean empty: RMSNorm.
inline NormBackwardOracle norm_backward_ref(const std::vector<double>& x, const std::vector<double>& dy,
                                            const std::vector<double>& dsum,
                                            const std::vector<double>& weight,
                                            const std::vector<double>& mean, const std::vector<double>& rstd,
                                            std::uint64_t rows, std::uint64_t cols, double offset,
                                            DType dx_type, DType weight_type) {
  NormBackwardOracle o;
  const bool layer = !mean.empty();
  const double u = unit_roundoff(DType::f32), c = 8 + double(cols) / 256 + std::log2(double(cols) + 1);
  o.dweight.resize(cols), o.dbias.resize(cols);
  std::vector<double> dweight_terms(cols), dbias_terms(cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    double along = 0, total = 0, along_terms = 0, total_terms = 0;
    std::vector<double> g(cols), n(cols);
    for (std::uint64_t i = 0; i < cols; ++i) {
      const std::uint64_t at = r * cols + i;
      n[i] = (x[at] - (layer ? mean[r] : 0)) * rstd[r];
      g[i] = dy[at] * (weight.empty() ? 1 : weight[i] + offset);
      along += g[i] * n[i], along_terms += std::fabs(g[i] * n[i]);
      if (layer) total += g[i], total_terms += std::fabs(g[i]);
      o.dweight[i] += dy[at] * n[i], dweight_terms[i] += std::fabs(dy[at] * n[i]);
      o.dbias[i] += dy[at], dbias_terms[i] += std::fabs(dy[at]);
    }
    along /= double(cols), total /= double(cols);
    along_terms /= double(cols), total_terms /= double(cols);
    for (std::uint64_t i = 0; i < cols; ++i) {
      const double more = dsum.empty() ? 0 : dsum[r * cols + i];
      const double d = rstd[r] * (g[i] - total - n[i] * along) + more;
      const double terms = std::fabs(g[i]) + std::fabs(n[i] * along) + std::fabs(total);
      const double error =
          std::fabs(rstd[r]) * (c * 2 * u * (std::fabs(n[i]) * along_terms + total_terms) + 6 * u * terms);
      o.dx.push_back(d);
      o.dx_tolerance.push_back(error + (std::fabs(d) + error) * (unit_roundoff(dx_type) + u) +
                               (dx_type == DType::f16 ? 0x1p-25 : 0x1p-126));
    }
  }
  const double chain = 16 + double(rows) / 16 + std::log2(double(rows) + 1);
  for (std::uint64_t i = 0; i < cols; ++i) {
    const auto tolerance = [&](double v, double terms) {
      return chain * u * terms + std::fabs(v) * unit_roundoff(weight_type) +
             (weight_type == DType::f16 ? 0x1p-25 : 0x1p-126);
    };
    o.dweight_tolerance.push_back(tolerance(o.dweight[i], dweight_terms[i]));
    o.dbias_tolerance.push_back(tolerance(o.dbias[i], dbias_terms[i]));
  }
  return o;
}

}  // namespace cgp::kernels
