// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element operations of models that no kernel folder has: sums, soft caps.
#include <vector>

#include "cgp/kernels/row/element_kernel.h"

namespace cgp::engine {

/// a + b, f32 and f16.
class AddOp : public kernels::row::ElementOp {
 public:
  std::vector<kernels::row::Floats> apply(
      kernels::row::Kernel&, const std::vector<kernels::row::Floats>& in, const kernels::row::Floats&,
      const kernels::row::Val<kernels::row::u64>&,
      const std::vector<kernels::row::Val<kernels::row::u64>>&) const override {
    std::vector<kernels::row::Floats> out(1);
    for (std::size_t e = 0; e < in[0].size(); ++e) out[0].push_back(in[0][e] + in[1][e]);
    return out;
  }
};

/// cap * tanh(factor * x / cap), tanh as 1 - 2 / (1 + e^2x).
class SoftCapOp : public kernels::row::ElementOp {
 public:
  SoftCapOp(float factor, float cap) : factor_(factor), cap_(cap) {}
  std::vector<kernels::row::Floats> apply(
      kernels::row::Kernel&, const std::vector<kernels::row::Floats>& in, const kernels::row::Floats&,
      const kernels::row::Val<kernels::row::u64>&,
      const std::vector<kernels::row::Val<kernels::row::u64>>&) const override {
    using Number = kernels::row::Val<dsl::f32>;
    std::vector<kernels::row::Floats> out(1);
    for (const auto& x : in[0]) {
      const auto e = dsl::ex2<dsl::approx, dsl::ftz>(x * (2.885390081777927f * factor_ / cap_));
      out[0].push_back(fma(dsl::rcp<dsl::approx, dsl::ftz>(e + 1.0f), -2.0f, Number(1.0f)) * cap_);
    }
    return out;
  }

 private:
  float factor_, cap_;
};

}  // namespace cgp::engine
