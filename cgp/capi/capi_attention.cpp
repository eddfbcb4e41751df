// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/attention/attention.h"

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

void attention(cgp_stream& s, const Tensor& q, const Tensor& k, const Tensor& v,
               const cgp_attention_options& o, const Tensor& out, const cgp_tensor* lse) {
  kernels::AttentionProblem p;
  kernels::AttentionAddresses at;
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
  if (o.scale) p.scale = o.scale;
  if (o.scale < 0)
    throw ArgumentError(text::cat("attention: scale = ", o.scale, " must be positive, or 0 for 1 / sqrt(d)"));
  if (o.window_left < 0 || o.window_right < 0)
    throw ArgumentError("attention: windows are counts plus 1, or 0 for no limit");
  p.causal = o.causal != 0, p.soft_cap = o.soft_cap;
  p.window_left = std::int64_t(o.window_left) - 1, p.window_right = std::int64_t(o.window_right) - 1;
  if (o.slopes) {
    const Tensor slopes(o.slopes, "attention", "slopes");
    const std::uint64_t heads[] = {p.heads_q};
    slopes.expect({DType::f32}), slopes.expect_shape(heads, "q"), slopes.expect_contiguous();
    p.alibi = true, at.slopes = slopes.address();
  }
  if (o.mask) {
    const Tensor mask(o.mask, "attention", "mask");
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
    const Tensor lengths(o.key_lengths, "attention", "key_lengths");
    const std::uint64_t batch[] = {p.batch};
    lengths.expect({DType::u32, DType::s32}), lengths.expect_shape(batch, "q"), lengths.expect_contiguous();
    p.key_lengths = true, at.lengths = lengths.address();
  }
  if (lse) {
    const Tensor l(lse, "attention", "lse");
    const std::uint64_t rows[] = {p.batch, p.heads_q, p.n_q};
    l.expect({DType::f32}), l.expect_shape(rows, "q"), l.expect_contiguous();
    at.lse = l.address();
  }
  at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = out.address();
  kernels::attention(s.stream, p, at);
}

}  // namespace
}  // namespace cgp::capi

cgp_status cgp_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* k, const cgp_tensor* v,
                         const cgp_attention_options* options, const cgp_tensor* o, const cgp_tensor* lse) {
  return cgp::capi::guarded([&] {
    cgp::capi::require(s, "s");
    cgp_attention_options defaults{};
    defaults.size = sizeof defaults;
    using cgp::capi::Tensor;
    cgp::capi::attention(*s, Tensor(q, "attention", "q"), Tensor(k, "attention", "k"),
                         Tensor(v, "attention", "v"), cgp::capi::known(options, defaults, "attention"),
                         Tensor(o, "attention", "o"), lse);
  });
}
