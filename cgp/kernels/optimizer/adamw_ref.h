// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of adamw, in double.
#include <cmath>

#include "cgp/kernels/optimizer/adamw.h"

namespace cgp::kernels {

struct AdamWElement {
  double weight, m, v;
};
inline AdamWElement adamw_ref(const AdamW& a, const AdamWElement& e, double gradient) {
  const double m = a.beta1 * e.m + (1 - a.beta1) * gradient,
               v = a.beta2 * e.v + (1 - a.beta2) * gradient * gradient;
  const double t = double(a.step);
  const double update =
      a.rate / (1 - std::pow(a.beta1, t)) * m / (std::sqrt(v / (1 - std::pow(a.beta2, t))) + a.epsilon);
  return {(1 - a.rate * a.decay) * e.weight - update, m, v};
}

/// Each product and sum of m and v is rounded once, their factors once; the update adds a root, a quotient and three products,
/// and what is left of m where its parts cancel.
inline AdamWElement adamw_tolerance(const AdamW& a, const AdamWElement& e, double gradient) {
  const double u = unit_roundoff(DType::f32), tiny = 0x1p-126;
  const AdamWElement want = adamw_ref(a, e, gradient);
  const double m = 4 * u * (std::fabs(a.beta1 * e.m) + std::fabs((1 - a.beta1) * gradient)) + tiny,
               v = 4 * u * want.v + tiny;
  const double t = double(a.step);
  const double per_m =
      a.rate / (1 - std::pow(a.beta1, t)) / (std::sqrt(want.v / (1 - std::pow(a.beta2, t))) + a.epsilon);
  return {4 * u * std::fabs(e.weight) + per_m * (m + 16 * u * std::fabs(want.m)) + tiny, m, v};
}

}  // namespace cgp::kernels
