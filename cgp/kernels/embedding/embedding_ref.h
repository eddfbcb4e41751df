// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracles of embedding and its gradient, in double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cgp/kernels/common/array.h"

namespace cgp::kernels {

inline std::vector<double> embedding_ref(const std::vector<double>& weight,
                                         const std::vector<double>& indices, std::uint64_t vocab,
                                         std::uint64_t cols) {
  std::vector<double> out;
  for (const double i : indices)
    for (std::uint64_t c = 0; c < cols; ++c)
      out.push_back(i >= 0 && i < double(vocab) ? weight[std::uint64_t(i) * cols + c]
                                                : std::numeric_limits<double>::quiet_NaN());
  return out;
}

struct EmbeddingGradient {
  std::vector<double> dweight, tolerance;
};
inline EmbeddingGradient embedding_backward_ref(const std::vector<double>& dout,
                                                const std::vector<double>& indices, std::uint64_t vocab,
                                                std::uint64_t cols, std::int64_t padding, DType type) {
  EmbeddingGradient g;
  g.dweight.assign(vocab * cols, 0), g.tolerance.assign(vocab * cols, 0);
  std::vector<double> named(vocab, 0), size(vocab * cols, 0);
  for (std::size_t r = 0; r < indices.size(); ++r) {
    const double i = indices[r];
    if (!(i >= 0 && i < double(vocab)) || i == double(padding)) continue;
    named[std::uint64_t(i)] += 1;
    for (std::uint64_t c = 0; c < cols; ++c) {
      g.dweight[std::uint64_t(i) * cols + c] += dout[r * cols + c];
      size[std::uint64_t(i) * cols + c] += std::fabs(dout[r * cols + c]);
    }
  }
  // One rounding an addition, each relative to a partial sum that is no larger than the sum of sizes.
  for (std::uint64_t i = 0; i < vocab * cols; ++i) {
    const double sum = named[i / cols] * unit_roundoff(DType::f32) * size[i];
    g.tolerance[i] =
        sum + (std::fabs(g.dweight[i]) + sum) * unit_roundoff(type) + (type == DType::f16 ? 0x1p-25 : 0);
  }
  return g;
}

}  // namespace cgp::kernels
