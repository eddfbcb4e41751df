// SPDX-License-Identifier: Apache-2.0
#pragma once
// The derivative of a function of one f32, from the instructions that the function records (forward mode). A
// function of values stays a plain lambda; who needs its slope asks for both at once.
//   known    f32 arithmetic, min, max and abs (at their corners one side's slope), select, division, roots,
//            ex2, lg2, sin, cos, tanh (where one side is an infinite literal, the other's slope)
//   flat     comparisons, conversions to integers, roundings to whole numbers: their slope is 0
//   unknown  run-time if_ and loops, memory addressed by the argument, bits of the argument: BuildError
#include "cgp/dsl/core/flow.h"

namespace cgp::dsl {

struct ValueAndSlope {
  Val<f32> value, slope;
};
namespace record_impl {
/// d y / d x by the instructions recorded since there were `from`; literals where it is 0 or 1.
Val<f32> slope_since(Kernel& k, std::size_t from, const Val<f32>& x, const Val<f32>& y, Here at);
}  // namespace record_impl

/// f(x), called once, and d f / d x. The slope is a literal where it is 0 or 1.
template <class F>
ValueAndSlope with_slope(const Val<f32>& x, F&& f, Here at = Here::now()) {
  if (x.is_literal()) throw BuildError("the slope at a literal: pass a run-time value", at);
  Kernel& k = *x.kernel();
  const std::size_t from = k.function().body.size();
  const Val<f32> y = f(x);
  return {y, record_impl::slope_since(k, from, x, y, at)};
}

}  // namespace cgp::dsl
