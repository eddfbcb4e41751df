// SPDX-License-Identifier: Apache-2.0
#pragma once
// One element of one step, recorded: what the kernel on a table of tensors and the kernel on one tensor share.
#include "cgp/dsl/core/arith.h"
#include "cgp/kernels/optimizer/optimizer.h"

namespace cgp::kernels {

/// Numbers that hold for all elements of a tensor, in the order of their words in memory.
struct UpdateRates {
  dsl::Val<dsl::f32> step_size, decay, b1, one_minus_b1, b2, one_minus_b2, epsilon;
  dsl::Val<dsl::f32> root_scale;     ///< 1 / sqrt(1 - b2^t)
  dsl::Val<dsl::f32> gradient_rate;  ///< what gradients are multiplied with
  dsl::Val<dsl::f32> step_number;
};

inline bool decoupled(OptimizerRule r) { return r == OptimizerRule::adamw || r == OptimizerRule::lion; }

struct UpdatedElement {
  dsl::Val<dsl::f32> w, m, v;
};
/// Rounding: rn, or approx (a few units in the last place) where the states are no better.
template <class Rounding = dsl::rn>
UpdatedElement updated(OptimizerRule rule, const UpdateRates& rate, const UpdatedElement& e,
                       const dsl::Val<dsl::f32>& gradient) {
  using namespace dsl;
  const auto step = rate.step_size, decay = rate.decay, b1 = rate.b1, b2 = rate.b2;
  const auto w = decoupled(rule) ? e.w - decay * e.w : e.w;
  const auto g = decoupled(rule) ? gradient : gradient + decay * e.w;
  const auto mixed = b1 * e.m + rate.one_minus_b1 * g;
  switch (rule) {
    case OptimizerRule::descent:
      return {w - step * g, e.m, e.v};
    case OptimizerRule::sgd:
    case OptimizerRule::nesterov: {
      const auto m = b1 * e.m + g;
      return {w - step * (rule == OptimizerRule::sgd ? m : g + b1 * m), m, e.v};
    }
    case OptimizerRule::lion: {
      const auto size = select(mixed > 0.f, step, select(mixed < 0.f, -step, mixed));  // NaN stays NaN
      return {w - size, b2 * e.m + rate.one_minus_b2 * g, e.v};
    }
    default: {
      const auto v = b2 * e.v + rate.one_minus_b2 * (g * g);
      const auto denominator = sqrt<Rounding>(v) * rate.root_scale + rate.epsilon;
      return {w - step * div<Rounding>(mixed, denominator), mixed, v};
    }
  }
}

}  // namespace cgp::kernels
