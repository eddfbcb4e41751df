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

// Of [batch, heads, rows, d], or packed: [rows, heads, d].
AttentionStrides strides(const Tensor& t, bool packed) {
  t.expect_rank(packed ? 3 : 4, packed ? 3 : 4);
  if (t.size(-1) > 1 && t.stride(-1) != 1)
    t.fail("its last dimension must be contiguous", "pass x.contiguous()");
  // Strides of 0 mean dense to the kernels: only a dimension of one element may have them.
  for (int i = 0; i + 1 < t.rank(); ++i)
    if (t.size(i) > 1 && t.stride(i) == 0) t.fail("it repeats elements", "pass x.contiguous()");
  if (packed) return {0, t.stride(1), t.stride(0)};
  return {t.stride(0), t.stride(1), t.stride(2)};
}
// The address of cu_seqlens; returns the number of sequences.
std::uint64_t offsets(const cgp_tensor* given, const char* op, const char* argument, std::uint64_t* address) {
  const Tensor t(given, op, argument);
  t.expect({DType::u32, DType::s32}), t.expect_rank(1, 1), t.expect_contiguous();
  if (!t.size(0)) t.fail("it must have one element more than there are sequences");
  *address = t.address();
  return t.size(0) - 1;
}
void scales(const cgp_tensor* given, const char* op, const char* argument, std::uint64_t batch,
            std::uint64_t heads, kernels::AttentionScaleStrides* strides, std::uint64_t* address) {
  if (!given) return;
  const Tensor t(given, op, argument);
  t.expect({DType::f32});
  if (t.elements() != 1) {
    const std::uint64_t shape[] = {batch, heads};
    t.expect_shape(shape, "q and k");
    *strides = {t.size(0) > 1 ? t.stride(0) : 0, t.size(1) > 1 ? t.stride(1) : 0};
  }
  *address = t.address();
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
  q.expect({DType::f32, DType::f16, DType::bf16, DType::e4m3});
  for (const Tensor* t : {&k, &v}) t->expect({q.dtype()});
  if (p.type == DType::e4m3)
    out.expect({DType::bf16, DType::f16});
  else
    out.expect({q.dtype()});
  p.out = out.dtype(), p.promoted = o.promoted != 0;
  p.packed = o.cu_seqlens_q || o.cu_seqlens_kv;
  p.q = strides(q, p.packed), p.k = strides(k, p.packed), p.v = strides(v, p.packed);
  p.o = strides(out, p.packed);
  p.heads_q = q.size(1), p.heads_kv = k.size(1), p.d_qk = q.size(-1), p.d_v = v.size(-1);
  std::vector<std::uint64_t> k_shape = k.shape(), o_shape = q.shape();
  k_shape.back() = p.d_qk, o_shape.back() = p.d_v;
  if (p.packed) {
    p.batch = offsets(o.cu_seqlens_q, op, "cu_seqlens_q", &at.cu_seqlens_q), at.total_q = q.size(0),
    at.total_kv = k.size(0);
    if (const auto n = offsets(o.cu_seqlens_kv, op, "cu_seqlens_kv", &at.cu_seqlens_kv); n != p.batch)
      throw ArgumentError(
          text::cat(op, ": cu_seqlens_q is of ", p.batch, " sequences, cu_seqlens_kv of ", n));
    p.n_q = o.max_seqlen_q ? std::min(o.max_seqlen_q, at.total_q) : at.total_q;
    p.n_kv = o.max_seqlen_kv ? std::min(o.max_seqlen_kv, at.total_kv) : at.total_kv;
  } else {
    if (o.max_seqlen_q || o.max_seqlen_kv)
      throw ArgumentError(text::cat(op,
                                    ": max_seqlen_q and max_seqlen_kv need packed sequences: cu_seqlens_q "
                                    "and cu_seqlens_kv are missing"));
    k_shape[0] = p.batch = q.size(0), p.n_q = q.size(2), p.n_kv = k.size(2);
  }
  auto v_shape = k_shape;
  v_shape.back() = p.d_v;
  k.expect_shape(k_shape, "q"), v.expect_shape(v_shape, "q and k"), out.expect_shape(o_shape, "q and v");
  if (p.type != DType::e4m3 && (o.q_scale || o.k_scale || o.v_scale))
    throw ArgumentError(
        text::cat(op, ": q_scale, k_scale and v_scale are of e4m3 operands; these are ", name(p.type)));
  scales(o.q_scale, op, "q_scale", p.batch, p.heads_q, &p.q_scale, &at.q_scale);
  scales(o.k_scale, op, "k_scale", p.batch, p.heads_kv, &p.k_scale, &at.k_scale);
  scales(o.v_scale, op, "v_scale", p.batch, p.heads_kv, &p.v_scale, &at.v_scale);
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
    mask.expect({out.dtype(), DType::u8}), mask.expect_rank(4, 4);
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
    const auto rows = p.packed ? std::vector{p.heads_q, at.total_q} : std::vector{p.batch, p.heads_q, p.n_q};
    l.expect({DType::f32}), l.expect_shape(rows, "q"), l.expect_contiguous();
    for (const Tensor* t : {&q, &k, &v, &out}) l.expect_apart(*t);
    at.lse = l.address();
  }
  at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = out.address();
  return w;
}

void backward(cgp_stream& s, const Whole& w, bool nondeterministic, const Tensor& q, const Tensor& k,
              const Tensor& v, const Tensor& out, const Tensor& d_o, const Tensor& d_q, const Tensor& d_k,
              const Tensor& d_v) {
  const Tensor* of[] = {&out, &q, &k, &v};
  const Tensor* gradients[] = {&d_o, &d_q, &d_k, &d_v};
  for (int i = 0; i < 4; ++i) {
    const Tensor &t = *gradients[i], &like = *of[i];
    t.expect({like.dtype()}), t.expect_shape(like.shape(), like.argument());
    for (int d = 0; d < t.rank(); ++d)
      if (t.size(d) > 1 && t.stride(d) != like.stride(d))
        t.fail(text::cat("its strides must be those of ", like.argument()), text::cat("it is ", like.text()));
    for (int j = 0; j < i; ++j) t.expect_apart(*gradients[j]);
    for (const Tensor* input : of)
      if (i) t.expect_apart(*input);
  }
  kernels::AttentionGradients g;
  g.d_o = d_o.address(), g.d_q = d_q.address(), g.d_k = d_k.address(), g.d_v = d_v.address();
  const std::uint64_t floats = w.p.heads_q * (w.p.packed ? w.at.total_q : w.p.batch * w.p.n_q),
                      delta = (floats * sizeof(float) + 255) / 256 * 256;
  const std::uint64_t workspace = kernels::attention_backward_workspace(w.p, w.at.total_q);
  const std::uint64_t scratch = floats ? s.stream.scratch(delta + workspace) : 0;
  g.delta = scratch, g.workspace = scratch && workspace ? scratch + delta : 0;
  g.deterministic = !nondeterministic;
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
    cgp::capi::backward(*s, w, given.nondeterministic != 0, tq, tk, tv, out, Tensor(d_o, op, "d_o"),
                        Tensor(d_q, op, "d_q"), Tensor(d_k, op, "d_k"), Tensor(d_v, op, "d_v"));
  });
}
