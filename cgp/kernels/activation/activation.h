// SPDX-License-Identifier: Apache-2.0
#pragma once
// Activations with and without bias, gated forms (SwiGLU, GeGLU, ReGLU) and their gradients; f32, f16 and
// bf16 in any mixture, f32 inside, any strides (gate and up may be the halves of one matrix).
//   identity   x
//   relu       max(x, 0), NaN for NaN
//   silu       x / (1 + exp(-x))
//   gelu       x Phi(x), by erf
//   gelu_tanh  x / (1 + exp(-2 u)), u = 0.7978845608 (x + 0.044715 x^3): within 4.8e-4 of gelu
// silu, gelu and gelu_tanh of -inf are NaN (-inf * 0), of +inf +inf.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/element_kernel.h"

namespace cgp::kernels {

enum class Activation : std::uint8_t { identity, relu, silu, gelu, gelu_tanh };
constexpr std::string_view name(Activation a) {
  constexpr std::string_view names[] = {"identity", "relu", "silu", "gelu", "gelu_tanh"};
  return names[int(a)];
}

struct Activate {
  Activation activation = Activation::silu;
  View x, y;        ///< [rows, cols]
  View bias;        ///< [cols], optional: y = f(x + bias)
  float scale = 1;  ///< of the result
  std::uint64_t rows = 0, cols = 0;
  row::Layout x_layout{}, y_layout{};
};
void activate(runtime::Stream& s, const Activate& a);

/// dx = dy f'(x + bias). The gradient of the bias is the sum of dx over rows (reduce.h).
struct ActivateBackward {
  Activation activation = Activation::silu;
  View x, dy, dx;
  View bias;
  std::uint64_t rows = 0, cols = 0;
  row::Layout x_layout{}, dy_layout{}, dx_layout{};
};
void activate_backward(runtime::Stream& s, const ActivateBackward& a);

/// out = f(gate) * up: silu is SwiGLU, gelu GeGLU, relu ReGLU.
struct Gate {
  Activation activation = Activation::silu;
  View gate, up, out;
  std::uint64_t rows = 0, cols = 0;
  row::Layout gate_layout{}, up_layout{}, out_layout{};
};
void gated(runtime::Stream& s, const Gate& g);

/// dgate = dout up f'(gate), dup = dout f(gate).
struct GateBackward {
  Activation activation = Activation::silu;
  View gate, up, dout, dgate, dup;
  std::uint64_t rows = 0, cols = 0;
  row::Layout gate_layout{}, up_layout{}, dout_layout{}, dgate_layout{}, dup_layout{};
};
void gated_backward(runtime::Stream& s, const GateBackward& g);

KernelEntry activation_entry();
KernelEntry activation_backward_entry();
KernelEntry gated_entry();
KernelEntry gated_backward_entry();

}  // namespace cgp::kernels
