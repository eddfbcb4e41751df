// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loops over vectors of floats, of any length and alignment. What lies beyond n is neither read nor written;
// NaN and infinity go their way as in the scalar loop.
#include <cstddef>

#include "cgp/cpu/dispatch.h"

namespace cgp::cpu {

struct Loops {
  /// Sum of x[i] * y[i], in as many partial sums as the version has lanes.
  float (*dot)(const float* x, const float* y, std::size_t n);
  /// y[i] += f * x[i]; with one rounding where the version has fused multiply-adds.
  void (*axpy)(float f, const float* x, float* y, std::size_t n);
  /// y[i] = sqrt(x[i]) and 1 / x[i], correctly rounded in every version; y may be x.
  void (*square_root)(const float* x, float* y, std::size_t n);
  void (*reciprocal)(const float* x, float* y, std::size_t n);
};
/// The version for `isa`, or the widest below it. Throws Unsupported when the processor lacks `isa`.
const Loops& loops(Isa isa = chosen_isa());

}  // namespace cgp::cpu
