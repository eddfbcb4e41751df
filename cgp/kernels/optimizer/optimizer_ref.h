// SPDX-License-Identifier: Apache-2.0
#pragma once
// One element of one step in double, as optimizer.h writes the rules.
#include <cmath>

#include "cgp/kernels/optimizer/optimizer.h"

namespace cgp::kernels {

struct OptimizerElement {
  double w = 0, m = 0, v = 0;
};

/// `g` without loss scale and clipped; `t` counts from 1.
inline OptimizerElement optimizer_ref(OptimizerRule rule, const OptimizerGroup& o, OptimizerElement e,
                                      double g, std::uint32_t t) {
  const bool adam = rule == OptimizerRule::adam || rule == OptimizerRule::adamw;
  if (o.maximize) g = -g;
  if (rule == OptimizerRule::adamw || rule == OptimizerRule::lion)
    e.w -= o.lr * o.weight_decay * e.w;
  else
    g += o.weight_decay * e.w;
  if (adam) {
    e.m = o.beta1 * e.m + (1 - o.beta1) * g, e.v = o.beta2 * e.v + (1 - o.beta2) * g * g;
    const double m = e.m / (1 - std::pow(o.beta1, t)), v = e.v / (1 - std::pow(o.beta2, t));
    e.w -= o.lr * m / (std::sqrt(v) + o.eps);
  } else if (rule == OptimizerRule::lion) {
    const double mixed = o.beta1 * e.m + (1 - o.beta1) * g;
    e.w -= o.lr * (mixed > 0 ? 1 : mixed < 0 ? -1 : mixed);
    e.m = o.beta2 * e.m + (1 - o.beta2) * g;
  } else if (rule == OptimizerRule::descent) {
    e.w -= o.lr * g;
  } else {
    e.m = o.beta1 * e.m + g;
    e.w -= o.lr * (rule == OptimizerRule::sgd ? e.m : g + o.beta1 * e.m);
  }
  return e;
}

}  // namespace cgp::kernels
