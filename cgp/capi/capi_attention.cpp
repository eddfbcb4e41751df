// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_formula.h"

namespace cgp::capi {
namespace {

using kernels::AttentionStrides;

AttentionStrides strides(const Tensor& t) {
  t.expect_rank(4, 4);
  if (t.size(3) > 1 && t.stride(3) != 1)
    t.fail("its last dimension must be contiguous", "pass x.contiguous()");
  return {t.stride(0), t.stride(1), t.stride(2)};
}
// Strides of 0 mean dense to the kernels: only a dimension of one element may have them.
void no_broadcast(const Tensor& t) {
  for (int i = 0; i < 3; ++i)
    if (t.size(i) > 1 && t.stride(i) == 0) t.fail("it repeats elements", "pass x.contiguous()");
}

struct Whole {
  kernels::AttentionProblem p{};
  kernels::AttentionAddresses at{};
};
Whole whole(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const cgp_attention_options& o,
            const Tensor& out, const cgp_tensor* lse) {
  Whole w;
  auto& [p, at] = w;
  p.type = q.dtype();
  q.expect({DType::f32, DType::f16, DType::bf16});
  for (const Tensor* t : {&k, &v, &out}) t->expect({q.dtype()});
  p.q = strides(q), p.k = strides(k), p.v = strides(v), p.o = strides(out);
  for (const Tensor* t : {&q, &k, &v, &out}) no_broadcast(*t);
  p.batch = q.size(0), p.heads_q = q.size(1), p.n_q = q.size(2), p.d_qk = q.size(3);
  p.heads_kv = k.size(1), p.n_kv = k.size(2), p.d_v = v.size(3);
  const std::uint64_t k_shape[] = {p.batch, p.heads_kv, p.n_kv, p.d_qk},
                      v_shape[] = {p.batch, p.heads_kv, p.n_kv, p.d_v},
                      o_shape[] = {p.batch, p.heads_q, p.n_q, p.d_v};
  k.expect_shape(k_shape, "q"), v.expect_shape(v_shape, "q and k"), out.expect_shape(o_shape, "q and v");
  for (const Tensor* t : {&q, &k, &v}) out.expect_apart(*t);
  if (o.scale) p.scale = o.scale;
  if (o.scale < 0)
    throw ArgumentError(text::cat(op, ": scale = ", o.scale, " must be positive, or 0 for 1 / sqrt(d)"));
  if (o.window_left < 0 || o.window_right < 0)
    throw ArgumentError(text::cat(op, ": windows are counts plus 1, or 0 for no limit"));
  p.causal = o.causal != 0, p.soft_cap = o.soft_cap;
  p.window_left = std::int64_t(o.window_left) - 1, p.window_right = std::int64_t(o.window_right) - 1;
  if (o.slopes) {
    const Tensor slopes(o.slopes, op, "slopes");
    const std::uint64_t heads[] = {p.heads_q};
    slopes.expect({DType::f32}), slopes.expect_shape(heads, "q"), slopes.expect_contiguous();
    p.alibi = true, at.slopes = slopes.address();
  }
  if (o.mask) {
    const Tensor mask(o.mask, op, "mask");
    mask.expect({q.dtype(), DType::u8}), mask.expect_rank(4, 4);
    const std::uint64_t full[] = {p.batch, p.heads_q, p.n_q, p.n_kv};
    std::uint64_t stride[4];
    for (int i = 0; i < 4; ++i) {
      if (mask.size(i) != full[i] && (mask.size(i) != 1 || i == 3))
        mask.fail(text::cat("dimension ", i, " must be ", full[i], i < 3 ? " or 1" : ""));
      stride[i] = mask.size(i) == 1 ? 0 : mask.stride(i);
    }
    p.mask = mask.dtype() == DType::u8 ? kernels::AttentionMask::boolean : kernels::AttentionMask::additive;
    p.mask_batch = stride[0], p.mask_head = stride[1], p.mask_row = stride[2], p.mask_col = stride[3];
    at.mask = mask.address();
  }
  if (o.key_lengths) {
    const Tensor lengths(o.key_lengths, op, "key_lengths");
    const std::uint64_t batch[] = {p.batch};
    lengths.expect({DType::u32, DType::s32}), lengths.expect_shape(batch, "q"), lengths.expect_contiguous();
    p.key_lengths = true, at.lengths = lengths.address();
  }
  if (o.score_data && !o.score)
    throw ArgumentError(text::cat(op, ": score_data is there, and no score that reads it"));
  if (o.score) {
    std::vector<std::uint64_t> shape;
    std::optional<Tensor> data;
    if (o.score_data) {
      data.emplace(o.score_data, op, "score_data");
      data->expect({DType::f32}), data->expect_contiguous();
      shape = data->shape(), at.data = data->address();
    }
    p.modify = kernels::score_formula(o.score, shape);
  }
  if (lse) {
    const Tensor l(lse, op, "lse");
    const std::uint64_t rows[] = {p.batch, p.heads_q, p.n_q};
    l.expect({DType::f32}), l.expect_shape(rows, "q"), l.expect_contiguous();
    for (const Tensor* t : {&q, &k, &v, &out}) l.expect_apart(*t);
    at.lse = l.address();
  }
  at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = out.address();
  return w;
}

void backward(cgp_stream& s, const Whole& w, bool any_order, const Tensor& q, const Tensor& k,
              const Tensor& v, const Tensor& out, const Tensor& d_o, const Tensor& d_q, const Tensor& d_k,
              const Tensor& d_v) {
  const Tensor* of[] = {&out, &q, &k, &v};
  const Tensor* gradients[] = {&d_o, &d_q, &d_k, &d_v};
  for (int i = 0; i < 4; ++i) {
    const Tensor &t = *gradients[i], &like = *of[i];
    t.expect({like.dtype()}), t.expect_shape(like.shape(), like.argument());
    for (int d = 0; d < 4; ++d)
      if (t.size(d) > 1 && t.stride(d) != like.stride(d))
        t.fail(text::cat("its strides must be those of ", like.argument()), text::cat("it is ", like.text()));
    for (int j = 0; j < i; ++j) t.expect_apart(*gradients[j]);
    for (const Tensor* input : of)
      if (i) t.expect_apart(*input);
  }
  kernels::AttentionGradients g;
  g.d_o = d_o.address(), g.d_q = d_q.address(), g.d_k = d_k.address(), g.d_v = d_v.address();
  const std::uint64_t floats = w.p.batch * w.p.heads_q * w.p.n_q,
                      delta = (floats * sizeof(float) + 255) / 256 * 256;
  const std::uint64_t workspace = kernels::attention_backward_workspace(w.p);
  const std::uint64_t scratch = floats ? s.stream.scratch(delta + workspace) : 0;
  g.delta = scratch, g.workspace = scratch && workspace ? scratch + delta : 0;
  g.deterministic = !any_order;
  kernels::attention_backward(s.stream, w.p, w.at, g);
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k, const cgp_tensor* v,
                         const cgp_attention_options* options, const cgp_tensor* o, const cgp_tensor* lse) {
  return guarded([&] {
    require(s, "s");
    cgp_attention_options defaults{};
    defaults.size = sizeof defaults;
    const char* op = "attention";
    const auto w = cgp::capi::whole(op, Tensor(q, op, "q"), Tensor(k, op, "k"), Tensor(v, op, "v"),
                                    cgp::capi::known(options, defaults, op), Tensor(o, op, "o"), lse);
    cgp::kernels::attention(s->stream, w.p, w.at);
  });
}
cgp_status cgp_attention_backward(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k,
                                  const cgp_tensor* v, const cgp_attention_options* options,
                                  const cgp_tensor* o, const cgp_tensor* lse, const cgp_tensor* d_o,
                                  const cgp_tensor* d_q, const cgp_tensor* d_k, const cgp_tensor* d_v) {
  return guarded([&] {
    require(s, "s"), require(lse, "lse");
    cgp_attention_options defaults{};
    defaults.size = sizeof defaults;
    const char* op = "attention_backward";
    const Tensor tq(q, op, "q"), tk(k, op, "k"), tv(v, op, "v"), out(o, op, "o");
    const auto given = cgp::capi::known(options, defaults, op);
    const auto w = cgp::capi::whole(op, tq, tk, tv, given, out, lse);
    cgp::capi::backward(*s, w, given.any_order != 0, tq, tk, tv, out, Tensor(d_o, op, "d_o"),
                        Tensor(d_q, op, "d_q"), Tensor(d_k, op, "d_k"), Tensor(d_v, op, "d_v"));
  });
}
