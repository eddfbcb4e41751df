// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, activations and gated activations.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/rope/rope.h"

namespace cgp::capi {
namespace {

static_assert(int(CGP_ROPE_LLAMA3) == int(kernels::RopeScaling::llama3));
static_assert(int(CGP_ACT_RELU) == int(kernels::Activation::relu) &&
              int(CGP_ACT_GELU_TANH) == int(kernels::Activation::gelu_tanh));

struct Heads {
  std::uint64_t tokens, token, head;  ///< count, elements apart
};
Heads heads(const Tensor& t) {
  t.expect_rank(2, CGP_MAX_RANK);
  if (t.size(-1) > 1 && t.stride(-1) != 1)
    t.fail("its last dimension must be contiguous", "pass x.contiguous()");
  const auto b = t.leading(2);
  // Strides of 0 mean dense to the kernel: only a dimension of one element may have them.
  if ((b.count > 1 && b.stride == 0) || (t.size(-2) > 1 && t.stride(-2) == 0))
    t.fail("it repeats elements", "pass x.contiguous()");
  return {b.count, b.count > 1 ? b.stride : 0, t.size(-2) > 1 ? t.stride(-2) : t.size(-1)};
}

void rope(cgp_stream& s, const Tensor& x, const cgp_rope_options& o, const Tensor& y) {
  y.expect_shape(x.shape(), "x"), y.expect_apart(x, true);
  const auto from = heads(x), to = heads(y);
  kernels::Rope r;
  r.x = x.view(s), r.y = y.view(s, true);
  r.tokens = from.tokens, r.heads = x.size(-2), r.dim = x.size(-1);
  r.x_token = from.token, r.x_head = from.head, r.y_token = to.token, r.y_head = to.head;
  r.sequence = o.sequence, r.offset = o.offset;
  r.interleaved = o.interleaved != 0, r.inverse = o.inverse != 0;
  auto& f = r.frequencies;
  f.rotary = o.rotary ? o.rotary : r.dim;
  if (!o.cos != !o.sin) throw ArgumentError("rope: cos and sin must be given together");
  if (o.cos) {
    const Tensor cos(o.cos, "rope", "cos"), sin(o.sin, "rope", "sin");
    for (const Tensor* t : {&cos, &sin}) {
      t->expect({DType::f32}), t->expect_rank(2, 2), t->expect_contiguous(), y.expect_apart(*t);
      if (t->size(1) != f.rotary / 2) t->fail(text::cat("it must have ", f.rotary / 2, " columns"));
    }
    sin.expect_shape(cos.shape(), "cos");
    r.cos = cos.view(s), r.sin = sin.view(s);
  }
  if (o.positions) {
    const Tensor p(o.positions, "rope", "positions");
    p.expect({DType::s32, DType::s64}), p.expect_contiguous();
    if (p.elements() != r.tokens)
      p.fail(text::cat("it must have one element for each of ", r.tokens, " tokens"));
    r.positions = p.view(s);
  }
  if (o.scaling < 0 || o.scaling > CGP_ROPE_LLAMA3)
    throw ArgumentError(text::cat("rope: there is no scaling ", o.scaling));
  f.scaling = kernels::RopeScaling(o.scaling);
  const auto unless_zero = [](double given, double& value) {
    if (given) value = given;
  };
  unless_zero(o.base, f.base), unless_zero(o.factor, f.factor);
  f.original_positions = o.original_positions;
  unless_zero(o.beta_fast, f.beta_fast), unless_zero(o.beta_slow, f.beta_slow);
  unless_zero(o.low_frequency, f.low_frequency), unless_zero(o.high_frequency, f.high_frequency);
  kernels::rope(s.stream, r);
}

kernels::Activation activation(std::int32_t which, const char* op) {
  if (which < CGP_ACT_RELU || which > CGP_ACT_GELU_TANH)
    throw ArgumentError(text::cat(op, ": there is no activation ", which, " here"));
  return kernels::Activation(which);
}

/// Arrays of one shape; outputs may be exactly one of the inputs.
struct Elements {
  cgp_stream& s;
  const char* op;
  std::vector<Tensor> inputs{};
  std::vector<Tensor> outputs{};

  void in(const cgp_tensor* given, const char* name, kernels::View& view, kernels::row::Layout& layout) {
    inputs.emplace_back(given, op, name);
    fill(inputs.back(), false, view, layout);
  }
  void out(const cgp_tensor* given, const char* name, kernels::View& view, kernels::row::Layout& layout) {
    const Tensor t(given, op, name);
    fill(t, true, view, layout);
    for (const Tensor& i : inputs) t.expect_apart(i, true);
    for (const Tensor& o : outputs) t.expect_apart(o);
    outputs.push_back(t);
  }
  void fill(const Tensor& t, bool out, kernels::View& view, kernels::row::Layout& layout) const {
    t.expect_rank(1, CGP_MAX_RANK);
    if (&t != &inputs.front()) t.expect_shape(inputs.front().shape(), inputs.front().argument());
    view = t.view(s, out), layout.pitch = t.rows().pitch;
  }
  template <class Problem>
  void size(Problem& p) const {
    const auto rows = inputs.front().rows();
    p.rows = rows.rows, p.cols = rows.cols;
  }
  kernels::View bias(const cgp_tensor* given, std::uint64_t cols) const {
    if (!given) return {};
    const Tensor t(given, op, "bias");
    const std::uint64_t shape[] = {cols};
    t.expect_shape(shape, "the last dimension of x"), t.expect_contiguous();
    return t.view(s);
  }
};

}  // namespace
}  // namespace cgp::capi

using cgp::capi::Elements;
using cgp::capi::guarded;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_rope(cgp_stream* s, const cgp_tensor* x, const cgp_rope_options* options,
                    const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    cgp_rope_options defaults{};
    defaults.size = sizeof defaults;
    cgp::capi::rope(*s, Tensor(x, "rope", "x"), cgp::capi::known(options, defaults, "rope"),
                    Tensor(y, "rope", "y"));
  });
}
namespace {

/// call(elements, the activation) for the operation `op`.
template <class F>
cgp_status elements(cgp_stream* s, const char* op, std::int32_t activation, F call) {
  return guarded([&] {
    require(s, "s");
    Elements e{*s, op};
    call(e, cgp::capi::activation(activation, op));
  });
}

}  // namespace

cgp_status cgp_activate(cgp_stream* s, int32_t activation, const cgp_tensor* x, const cgp_tensor* bias,
                        const cgp_tensor* y) {
  return elements(s, "activate", activation, [&](Elements& e, cgp::kernels::Activation f) {
    cgp::kernels::Activate p;
    p.activation = f;
    e.in(x, "x", p.x, p.x_layout), e.size(p);
    p.bias = e.bias(bias, p.cols);
    e.out(y, "y", p.y, p.y_layout);
    cgp::kernels::activate(s->stream, p);
  });
}
cgp_status cgp_activate_backward(cgp_stream* s, int32_t activation, const cgp_tensor* x,
                                 const cgp_tensor* bias, const cgp_tensor* dy, const cgp_tensor* dx) {
  return elements(s, "activate_backward", activation, [&](Elements& e, cgp::kernels::Activation f) {
    cgp::kernels::ActivateBackward p;
    p.activation = f;
    e.in(x, "x", p.x, p.x_layout), e.size(p), e.in(dy, "dy", p.dy, p.dy_layout);
    p.bias = e.bias(bias, p.cols);
    e.out(dx, "dx", p.dx, p.dx_layout);
    cgp::kernels::activate_backward(s->stream, p);
  });
}
cgp_status cgp_gated(cgp_stream* s, int32_t activation, const cgp_tensor* gate, const cgp_tensor* up,
                     const cgp_tensor* out) {
  return elements(s, "gated", activation, [&](Elements& e, cgp::kernels::Activation f) {
    cgp::kernels::Gate p;
    p.activation = f;
    e.in(gate, "gate", p.gate, p.gate_layout), e.size(p), e.in(up, "up", p.up, p.up_layout);
    e.out(out, "out", p.out, p.out_layout);
    cgp::kernels::gated(s->stream, p);
  });
}
cgp_status cgp_gated_backward(cgp_stream* s, int32_t activation, const cgp_tensor* gate, const cgp_tensor* up,
                              const cgp_tensor* dout, const cgp_tensor* dgate, const cgp_tensor* dup) {
  return elements(s, "gated_backward", activation, [&](Elements& e, cgp::kernels::Activation f) {
    cgp::kernels::GateBackward p;
    p.activation = f;
    e.in(gate, "gate", p.gate, p.gate_layout), e.size(p);
    e.in(up, "up", p.up, p.up_layout), e.in(dout, "dout", p.dout, p.dout_layout);
    e.out(dgate, "dgate", p.dgate, p.dgate_layout), e.out(dup, "dup", p.dup, p.dup_layout);
    cgp::kernels::gated_backward(s->stream, p);
  });
}
