// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear layer with a low-rank adapter (Hu et al., arXiv:2106.09685), as PyTorch lays its weights out:
//   forward   t = scale * x A',  y = x W' + t B'
//   backward  dt = scale * dy B,  dx = dy W + dt A,  dA = dt' x,  dB = dy' t
//   merge     W += scale * B A
// x [m, k], W [n, k], A [r, k], B [n, r], y [m, n], t [m, r]; all row-major, without gaps, f32, f16 or bf16, of one type. y and dx
// are one pass on sm_90a (lora_product.h); elsewhere the adapter's part is added into the result of the product before it.
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

struct LoraProblem {
  DType type = DType::bf16;
  std::uint64_t m = 0, n = 0, k = 0;
  std::uint64_t r = 16;  ///< 0: the plain layer; at most n and k
  double scale = 1;
};

struct LoraLinear {
  View x, weight, a, b;
  View t, y;  ///< written
};
/// t = scale * x op(A), y = x op(W) + t op(B). transposed: weight [n, k], a [r, k], b [n, r]; else weight [k, n], a [k, r], b [r, n].
/// Throws ArgumentError naming the argument; a, b and t are not looked at where r is 0.
void lora_linear(runtime::Stream& s, const LoraProblem& p, bool transposed, const LoraLinear& at);

struct LoraForward {
  View x, weight, a, b;
  View t, y;  ///< written; backward reads t
};
/// lora_linear() of a layer's own weights.
void lora_forward(runtime::Stream& s, const LoraProblem& p, const LoraForward& at);

struct LoraBackward {
  View x, weight, a, b, t, dy;
  View dt;                  ///< written: [m, r], memory for the steps between
  View da, db;              ///< written
  View dx;                  ///< written; not given: not computed
  bool accumulate = false;  ///< da and db are added to what is there
};
/// W is frozen: it has no gradient.
void lora_backward(runtime::Stream& s, const LoraProblem& p, const LoraBackward& at);

/// weight += sign * scale * b a: an adapter goes into its weight, and with sign -1 out of it again. m is not looked at.
void lora_merge(runtime::Stream& s, const LoraProblem& p, const View& weight, const View& a, const View& b,
                double sign = 1);

}  // namespace cgp::kernels
