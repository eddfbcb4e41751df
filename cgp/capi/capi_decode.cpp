// SPDX-License-Identifier: Apache-2.0
// Steps of decoding: linear layers of one to eight rows, heads into pages, attention over pages.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/decode/decode.h"
#include "cgp/kernels/decode_linear/decode_linear.h"
#include "cgp/kernels/kv_cache/qkv_append.h"

namespace cgp::capi {
namespace {

static_assert(int(CGP_NORM_LAYER) == int(kernels::DecodeLinearNorm::layer));
static_assert(int(CGP_ACT_GELU_TANH) == int(kernels::Activation::gelu_tanh));

/// The address of a vector of the type, 0 when it is not given.
std::uint64_t vector(const cgp_tensor* given, const char* op, const char* name, DType type, std::uint64_t n) {
  if (!given) return 0;
  const Tensor t(given, op, name);
  const std::uint64_t shape[] = {n};
  t.expect({type}), t.expect_shape(shape, "the other arguments"), t.expect_contiguous();
  return t.address();
}
std::uint64_t one_word(const cgp_tensor* given, const char* op, const char* name) {
  const Tensor t(given, op, name);
  t.expect({DType::u32, DType::s32});
  if (t.elements() != 1) t.fail("it must have one element");
  return t.address();
}

void decode_linear(cgp_stream& s, const Tensor& x, const cgp_decode_linear_options& o, const Tensor& y) {
  const char* op = "decode_linear";
  x.expect_rank(1, CGP_MAX_RANK), x.expect({DType::f16, DType::bf16}), y.expect({x.dtype()});
  const auto in = x.rows(), out = y.rows();
  kernels::DecodeLinear p;
  p.type = x.dtype(), p.m = in.rows, p.k = in.cols;
  p.x = x.address(), p.x_pitch = in.pitch, p.y = y.address(), p.y_pitch = out.pitch;
  const cgp_tensor* weights[] = {o.weight0, o.weight1, o.weight2};
  const cgp_tensor* biases[] = {o.bias0, o.bias1, o.bias2};
  static constexpr const char *names[] = {"weight0", "weight1", "weight2"},
                              *bias_names[] = {"bias0", "bias1", "bias2"};
  for (int i = 0; i < 3; ++i) {
    if (!weights[i]) {
      if (biases[i]) throw ArgumentError(text::cat(op, ": ", bias_names[i], " has no weight"));
      continue;
    }
    if (p.weights.size() != std::size_t(i))
      throw ArgumentError(text::cat(op, ": ", names[i], " is given without ", names[i - 1]));
    const Tensor w(weights[i], op, names[i]);
    w.expect_rank(2, 2), w.expect({p.type}), w.expect_contiguous(), y.expect_apart(w);
    const std::uint64_t shape[] = {w.size(0), p.k};
    w.expect_shape(shape, "x");
    p.weights.push_back({w.address(), vector(biases[i], op, bias_names[i], p.type, w.size(0)), w.size(0)});
  }
  if (o.norm < CGP_NORM_NONE || o.norm > CGP_NORM_LAYER)
    throw ArgumentError(text::cat(op, ": there is no norm ", o.norm));
  if (o.activation < CGP_ACT_NONE || o.activation > CGP_ACT_GELU_TANH)
    throw ArgumentError(text::cat(op, ": there is no activation ", o.activation));
  p.norm = kernels::DecodeLinearNorm(o.norm), p.activation = kernels::Activation(o.activation);
  p.norm_weight = vector(o.norm_weight, op, "norm_weight", p.type, p.k);
  p.norm_bias = vector(o.norm_bias, op, "norm_bias", p.type, p.k);
  p.eps = o.eps, p.weight_offset = o.weight_offset, p.gated = o.gated != 0, p.pdl = o.pdl != 0;
  const cgp_tensor* prefetch[] = {o.prefetch0, o.prefetch1};
  for (int i = 0; i < 2; ++i) {
    if (!prefetch[i]) continue;
    const Tensor t(prefetch[i], op, i ? "prefetch1" : "prefetch0");
    t.expect_contiguous();
    const std::uint64_t from = (t.address() + 127) / 128 * 128, skipped = from - t.address(),
                        all = std::min(t.elements() * std::uint64_t(bytes(t.dtype())), o.prefetch_bytes);
    p.prefetch[i] = {from, all > skipped ? all - skipped : 0};
  }
  auto shape = x.shape();
  shape.back() = p.columns();
  y.expect_shape(shape, "x and the weights"), y.expect_apart(x);
  if (o.residual) {
    const Tensor r(o.residual, op, "residual");
    r.expect({p.type}), r.expect_shape(shape, "y"), y.expect_apart(r, true);
    p.residual = r.address(), p.residual_pitch = r.rows().pitch;
  }
  kernels::decode_linear(s.stream, p);
}

kernels::KvCacheShape cache(const Tensor& pool, DType type) {
  pool.expect_rank(5, 5), pool.expect({type, DType::e4m3}), pool.expect_contiguous();
  if (pool.size(1) != 2) pool.fail("it must be [pages, 2, heads_kv, page_size, d]");
  return {type, pool.dtype(), pool.size(0), pool.size(3), pool.size(2), pool.size(4)};
}
void table_of(const Tensor& t, std::uint64_t batch) {
  t.expect_rank(2, 2), t.expect({DType::s32, DType::u32}), t.expect_contiguous();
  const std::uint64_t shape[] = {batch, t.size(1)};
  t.expect_shape(shape, "the batch");
}
std::uint64_t lengths_of(const cgp_tensor* given, const char* op, std::uint64_t batch) {
  const Tensor t(given, op, "lengths");
  const std::uint64_t shape[] = {batch};
  t.expect({DType::u32, DType::s32}), t.expect_shape(shape, "the batch"), t.expect_contiguous();
  return t.address();
}

void qkv_append(cgp_stream& s, const Tensor& qkv, const cgp_qkv_append_options& o, const Tensor& table,
                const cgp_tensor* error_flag, const Tensor& pool) {
  const char* op = "qkv_append";
  qkv.expect_rank(4, 4), qkv.expect({DType::f16, DType::bf16});
  kernels::QkvAppend p;
  p.cache = cache(pool, qkv.dtype());
  p.batch = qkv.size(0), p.tokens = qkv.size(1);
  if (qkv.size(2) < 2 * p.cache.heads)
    qkv.fail(text::cat("it must have heads of q beside ", 2 * p.cache.heads, " of keys and values"));
  p.heads_q = qkv.size(2) - 2 * p.cache.heads;
  if (qkv.size(3) != p.cache.d)
    qkv.fail(text::cat("its heads must have the ", p.cache.d, " elements of the pool's"));
  if (qkv.stride(3) != 1 || (qkv.size(2) > 1 && qkv.stride(2) != p.cache.d))
    qkv.fail("the heads of a token must be contiguous", "pass x.contiguous()");
  const auto tokens = qkv.leading(2);
  qkv.expect_apart(pool), table_of(table, p.batch);
  p.qkv = qkv.address(), p.pitch = tokens.count > 1 ? tokens.stride : 0;
  p.pool = pool.address(), p.table = table.address(), p.columns = table.size(1);
  p.error_flag = one_word(error_flag, op, "error_flag");
  if (!o.cos != !o.sin) throw ArgumentError(text::cat(op, ": cos and sin must be given together"));
  if (o.cos) {
    const Tensor cos(o.cos, op, "cos"), sin(o.sin, op, "sin");
    const std::uint64_t shape[] = {cos.rank() == 2 ? cos.size(0) : 0, p.cache.d / 2};
    for (const Tensor* t : {&cos, &sin})
      t->expect({DType::f32}), t->expect_shape(shape, "the pool"), t->expect_contiguous();
    p.cos = cos.address(), p.sin = sin.address(), p.positions = cos.size(0);
  }
  p.q_weight = vector(o.q_weight, op, "q_weight", qkv.dtype(), p.cache.d);
  p.k_weight = vector(o.k_weight, op, "k_weight", qkv.dtype(), p.cache.d);
  if (o.lengths) p.lengths = lengths_of(o.lengths, op, p.batch);
  p.offset = o.offset, p.eps = o.eps, p.pdl = o.pdl != 0;
  kernels::qkv_append(s.stream, p);
}

kernels::DecodeProblem paged(const Tensor& q, const Tensor& pool, const Tensor& table,
                             const cgp_paged_attention_options& o) {
  q.expect_rank(4, 4), q.expect({DType::f16, DType::bf16});
  if (q.size(3) > 1 && q.stride(3) != 1)
    q.fail("its last dimension must be contiguous", "pass x.contiguous()");
  kernels::DecodeProblem p;
  p.cache = cache(pool, q.dtype());
  p.batch = q.size(0), p.heads_q = q.size(1), p.n_q = q.size(2);
  if (q.size(3) != p.cache.d)
    q.fail(text::cat("its heads must have the ", p.cache.d, " elements of the pool's"));
  table_of(table, p.batch);
  if (o.key_scale) p.cache.key_scale = o.key_scale;
  if (o.value_scale) p.cache.value_scale = o.value_scale;
  p.columns = table.size(1), p.max_length = o.max_length, p.pdl = o.pdl != 0;
  p.share = o.share;
  if (o.scale) p.scale = o.scale;
  if (o.scale < 0)
    throw ArgumentError(
        text::cat("paged_attention: scale = ", o.scale, " must be positive, or 0 for 1 / sqrt(d)"));
  p.q = {q.stride(0), q.stride(1), q.stride(2)};
  return p;
}

void paged_attention(cgp_stream& s, const Tensor& q, const Tensor& pool, const Tensor& table,
                     const cgp_tensor* lengths, const cgp_paged_attention_options& o, const Tensor& workspace,
                     const cgp_tensor* error_flag, const Tensor& out) {
  auto p = paged(q, pool, table, o);
  out.expect({q.dtype()}), out.expect_shape(q.shape(), "q"), out.expect_apart(q), out.expect_apart(pool);
  if (out.size(3) > 1 && out.stride(3) != 1) out.fail("its last dimension must be contiguous");
  p.o = {out.stride(0), out.stride(1), out.stride(2)};
  workspace.expect({DType::u8, DType::u32, DType::s32, DType::f32}), workspace.expect_contiguous();
  const std::uint64_t need = kernels::decode_workspace(p, s.device.info());
  if (workspace.elements() * std::uint64_t(bytes(workspace.dtype())) < need)
    workspace.fail(text::cat("it must have ", need, " bytes"));
  kernels::DecodeAddresses at;
  at.q = q.address(), at.pool = pool.address(), at.table = table.address(), at.o = out.address();
  at.lengths = lengths_of(lengths, "paged_attention", p.batch);
  at.workspace = workspace.address(), at.error_flag = one_word(error_flag, "paged_attention", "error_flag");
  if ((o.share > 1) != (o.shared != nullptr))
    throw ArgumentError("paged_attention: shared and a share above 1 belong together");
  if (o.shared) {
    const Tensor shared(o.shared, "paged_attention", "shared");
    const std::uint64_t groups[] = {(p.batch + p.share - 1) / p.share};
    shared.expect({DType::u32, DType::s32}), shared.expect_shape(groups, "q"), shared.expect_contiguous();
    at.shared = shared.address();
  }
  kernels::decode(s.stream, p, at);
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::known;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_decode_linear(cgp_stream* s, const cgp_tensor* x, const cgp_decode_linear_options* options,
                             const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s"), require(options, "options");
    cgp::capi::decode_linear(*s, Tensor(x, "decode_linear", "x"), known(options, *options, "decode_linear"),
                             Tensor(y, "decode_linear", "y"));
  });
}
cgp_status cgp_qkv_append(cgp_stream* s, const cgp_tensor* qkv, const cgp_qkv_append_options* options,
                          const cgp_tensor* table, const cgp_tensor* error_flag, const cgp_tensor* pool) {
  return guarded([&] {
    require(s, "s"), require(error_flag, "error_flag");
    const char* op = "qkv_append";
    cgp_qkv_append_options defaults{};
    defaults.size = sizeof defaults;
    cgp::capi::qkv_append(*s, Tensor(qkv, op, "qkv"), known(options, defaults, op),
                          Tensor(table, op, "table"), error_flag, Tensor(pool, op, "pool"));
  });
}
cgp_status cgp_paged_attention_workspace(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* pool,
                                         const cgp_tensor* table, const cgp_paged_attention_options* options,
                                         uint64_t* bytes) {
  return guarded([&] {
    require(s, "s"), require(bytes, "bytes");
    const char* op = "paged_attention";
    cgp_paged_attention_options defaults{};
    defaults.size = sizeof defaults;
    *bytes = cgp::kernels::decode_workspace(
        cgp::capi::paged(Tensor(q, op, "q"), Tensor(pool, op, "pool"), Tensor(table, op, "table"),
                         known(options, defaults, op)),
        s->device.info());
  });
}
cgp_status cgp_paged_attention(cgp_stream* s, const cgp_tensor* q, const cgp_tensor* pool,
                               const cgp_tensor* table, const cgp_tensor* lengths,
                               const cgp_paged_attention_options* options, const cgp_tensor* workspace,
                               const cgp_tensor* error_flag, const cgp_tensor* o) {
  return guarded([&] {
    require(s, "s"), require(lengths, "lengths"), require(error_flag, "error_flag");
    const char* op = "paged_attention";
    cgp_paged_attention_options defaults{};
    defaults.size = sizeof defaults;
    cgp::capi::paged_attention(*s, Tensor(q, op, "q"), Tensor(pool, op, "pool"), Tensor(table, op, "table"),
                               lengths, known(options, defaults, op), Tensor(workspace, op, "workspace"),
                               error_flag, Tensor(o, op, "o"));
  });
}
