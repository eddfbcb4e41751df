// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracles of the activations, in double, with the error that f32 arithmetic may make.
#include <cmath>

#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/catalog/tensor_case.h"

namespace cgp::kernels {

inline double activation_value(Activation a, double x) {
  switch (a) {
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    default:
      return x;
  }
}
inline double activation_slope(Activation a, double x) {
  switch (a) {
    case Activation::relu:
      return x > 0 ? 1 : x <= 0 ? 0 : x;
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return s + x * s * (1 - s);
    }
    case Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) * 0.3989422804014327;
    case Activation::gelu_tanh: {
      const double k = 0.7978845608028654, s = 1 / (1 + std::exp(-2 * k * (x + 0.044715 * x * x * x)));
      return s + x * s * (1 - s) * 2 * k * (1 + 3 * 0.044715 * x * x);
    }
    default:
      return 1;
  }
}

/// The argument of an exponential is rounded (|x|, x^2 or x^3 times 24 bits); the rest are a few roundings.
inline std::vector<row::Expected> activation_ref(Activation a, bool gated, bool backward, const HostArray& x,
                                                 const HostArray* up, const HostArray* dy,
                                                 const HostArray* bias, std::uint64_t cols,
                                                 double scale = 1) {
  const double u = unit_roundoff(DType::f32), store = unit_roundoff(x.dtype);
  const double tiny = x.dtype == DType::f16 ? 0x1p-24 : 0x1p-120;
  row::Expected first{gated ? (backward ? "dgate" : "out") : (backward ? "dx" : "y"), {}, {}},
      second{"dup", {}, {}};
  const auto add = [&](row::Expected& e, double want, double error) {
    e.want.push_back(want);
    e.tolerance.push_back(error + (std::fabs(want) + error) * store + tiny);
  };
  for (std::uint64_t i = 0; i < x.size(); ++i) {
    const double v = x.at(i) + (bias ? bias->at(i % cols) : 0);
    const double f = activation_value(a, v), s = activation_slope(a, v);
    // Relative in f, whose exponential's argument grows; a slope is a difference of such terms.
    const double spread =
        8 + 4 * std::fabs(v) + 2 * v * v + (a == Activation::gelu_tanh ? std::fabs(v * v * v) : 0);
    const double moved = bias ? u * std::fabs(v) * 2 * (std::fabs(s) + 1) : 0;  // x + bias is rounded
    const double f_error = std::fabs(f) * u * spread + moved,
                 s_error = u * spread * (std::fabs(s) + std::fabs(f)) + moved;
    const double d = dy ? dy->at(i) : 1, g = up ? up->at(i) : 1;
    if (gated && backward) {
      add(first, d * g * s, std::fabs(d * g) * s_error + 2 * u * std::fabs(d * g * s));
      add(second, d * f, std::fabs(d) * f_error + u * std::fabs(d * f));
    } else if (gated) {
      add(first, f * g, std::fabs(g) * f_error + u * std::fabs(f * g));
    } else if (backward) {
      add(first, d * s, std::fabs(d) * s_error + u * std::fabs(d * s));
    } else {
      add(first, f * scale, f_error * std::fabs(scale) + (scale == 1 ? 0 : u * std::fabs(f * scale)));
    }
  }
  if (gated && backward) return {first, second};
  return {first};
}

}  // namespace cgp::kernels
