// SPDX-License-Identifier: Apache-2.0
#pragma once
// The oracle: decoded weights, sums in double.
#include <cmath>

#include "cgp/kernels/dequantize/dequantize_ref.h"
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"

namespace cgp::kernels {

struct QuantizedMatmulOracle {
  std::vector<double> want, tolerance;
};

/// x dense [m, k]. A sum of k products is off by (k + 200) roundings to f32 at most, y is rounded once; where weights are
/// dequantised each is rounded to x's type first.
inline QuantizedMatmulOracle quantized_matmul_ref(const HostWeight& h, const QuantizedMatmul& p,
                                                  const HostArray& x) {
  const auto w = decoded(h);
  const std::uint64_t n = p.transposed ? h.shape.cols : h.shape.rows,
                      k = p.transposed ? h.shape.rows : h.shape.cols;
  const double u32 = unit_roundoff(DType::f32), u = unit_roundoff(x.dtype), uy = unit_roundoff(p.y.dtype);
  QuantizedMatmulOracle r;
  for (std::uint64_t i = 0; i < p.m; ++i)
    for (std::uint64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (std::uint64_t e = 0; e < k; ++e) {
        const double v = x.at(i * k + e) * double(w[p.transposed ? e * n + j : j * k + e]);
        sum += v, magnitude += std::fabs(v);
      }
      const double rounded = x.dtype == DType::f32 ? 0 : u;
      r.want.push_back(sum);
      r.tolerance.push_back(1.01 * uy * std::fabs(sum) + magnitude * (rounded + (double(k) + 200) * u32) +
                            1e-30);
    }
  return r;
}

}  // namespace cgp::kernels
