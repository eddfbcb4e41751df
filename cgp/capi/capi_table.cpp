// SPDX-License-Identifier: Apache-2.0
// Rows by index, dropout, and what is chosen or summed up in rows.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/argmax/argmax.h"
#include "cgp/kernels/cumsum/cumsum.h"
#include "cgp/kernels/dropout/dropout.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/topk/topk.h"

namespace cgp::capi {
namespace {

void index_type(const Tensor& t) { t.expect({DType::s32, DType::s64}), t.expect_contiguous(); }

kernels::View error_flag_of(cgp_stream& s, const cgp_tensor* given, const char* op) {
  if (!given) return {};
  const Tensor t(given, op, "error_flag");
  t.expect({DType::u32, DType::s32});
  if (t.elements() != 1) t.fail("it must have one element");
  auto v = t.view(s, true);
  v.dtype = DType::u32;
  return v;
}
/// `rows` is [..., cols] where indices are [...].
void matches(const Tensor& rows, const Tensor& indices) {
  rows.expect_rank(1, CGP_MAX_RANK);
  auto shape = indices.shape();
  shape.push_back(rows.size(-1));
  rows.expect_shape(shape, "indices");
}
void table(const Tensor& t, std::uint64_t cols, const char* like) {
  t.expect_rank(2, 2);
  const std::uint64_t shape[] = {t.size(0), cols};
  t.expect_shape(shape, like);
}

void embedding(cgp_stream& s, const Tensor& indices, const Tensor& weight, const cgp_tensor* error_flag,
               const Tensor& out) {
  index_type(indices), matches(out, indices), table(weight, out.size(-1), "out");
  out.expect({weight.dtype()}), out.expect_apart(weight), out.expect_apart(indices);
  const auto from = weight.rows(), to = out.rows();
  kernels::Embedding e;
  e.indices = indices.view(s), e.weight = weight.view(s), e.out = out.view(s, true);
  e.error_flag = error_flag_of(s, error_flag, "embedding");
  e.rows = to.rows, e.vocab = from.rows, e.cols = to.cols;
  e.weight_layout.pitch = from.pitch, e.out_layout.pitch = to.pitch;
  kernels::embedding(s.stream, e);
}

void embedding_backward(cgp_stream& s, const Tensor& indices, const Tensor& dout, std::int64_t padding_idx,
                        const cgp_tensor* error_flag, const Tensor& dweight, bool accumulate) {
  index_type(indices), matches(dout, indices), table(dweight, dout.size(-1), "dout");
  dweight.expect({dout.dtype()}), dweight.expect_apart(dout), dweight.expect_apart(indices);
  const auto from = dout.rows(), to = dweight.rows();
  kernels::EmbeddingBackward e;
  e.indices = indices.view(s), e.dout = dout.view(s), e.dweight = dweight.view(s, true);
  e.error_flag = error_flag_of(s, error_flag, "embedding_backward");
  e.rows = from.rows, e.vocab = to.rows, e.cols = from.cols, e.padding_idx = padding_idx,
  e.accumulate = accumulate;
  e.dout_layout.pitch = from.pitch, e.dweight_layout.pitch = to.pitch;
  const std::uint64_t words = kernels::embedding_workspace(e.rows, e.vocab);
  const std::uint64_t scratch = words ? s.stream.scratch(words * 4) : 0;
  e.workspace = {scratch, words, DType::u32, true, s.device.backend().get()};
  kernels::embedding_backward(s.stream, e);
}

/// Results of rows: [...] where x is [..., cols].
void of_rows(const Tensor& t, const Tensor& x) {
  auto shape = x.shape();
  shape.pop_back();
  t.expect_shape(shape, "x without its last dimension"), t.expect_contiguous(), t.expect_apart(x);
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_embedding(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* weight,
                         const cgp_tensor* error_flag, const cgp_tensor* out) {
  return guarded([&] {
    require(s, "s");
    const char* op = "embedding";
    cgp::capi::embedding(*s, Tensor(indices, op, "indices"), Tensor(weight, op, "weight"), error_flag,
                         Tensor(out, op, "out"));
  });
}
cgp_status cgp_embedding_backward(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* dout,
                                  int64_t padding_idx, const cgp_tensor* error_flag,
                                  const cgp_tensor* dweight) {
  return guarded([&] {
    require(s, "s");
    const char* op = "embedding_backward";
    cgp::capi::embedding_backward(*s, Tensor(indices, op, "indices"), Tensor(dout, op, "dout"), padding_idx,
                                  error_flag, Tensor(dweight, op, "dweight"), false);
  });
}
cgp_status cgp_embedding_backward_accumulate(cgp_stream* s, const cgp_tensor* indices, const cgp_tensor* dout,
                                             int64_t padding_idx, const cgp_tensor* error_flag,
                                             const cgp_tensor* dweight) {
  return guarded([&] {
    require(s, "s");
    const char* op = "embedding_backward_accumulate";
    cgp::capi::embedding_backward(*s, Tensor(indices, op, "indices"), Tensor(dout, op, "dout"), padding_idx,
                                  error_flag, Tensor(dweight, op, "dweight"), true);
  });
}
cgp_status cgp_dropout(cgp_stream* s, const cgp_tensor* x, double p, uint64_t seed, uint64_t offset,
                       const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    const Tensor in(x, "dropout", "x"), out(y, "dropout", "y");
    out.expect_shape(in.shape(), "x"), out.expect_apart(in, true);
    const auto from = in.rows();
    cgp::kernels::Dropout d;
    d.x = in.view(*s), d.y = out.view(*s, true), d.rows = from.rows, d.cols = from.cols;
    d.x_layout.pitch = from.pitch, d.y_layout.pitch = out.rows().pitch;
    d.p = p, d.seed = seed, d.offset = offset;
    cgp::kernels::dropout(s->stream, d);
  });
}
cgp_status cgp_argmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* index, const cgp_tensor* values) {
  return guarded([&] {
    require(s, "s");
    const Tensor in(x, "argmax", "x"), place(index, "argmax", "index");
    in.expect({cgp::DType::f32, cgp::DType::f16, cgp::DType::bf16});
    in.expect_rank(1, CGP_MAX_RANK), cgp::capi::index_type(place), cgp::capi::of_rows(place, in);
    const auto rows = in.rows();
    cgp::kernels::ArgMax a;
    a.in = in.view(*s), a.index = place.view(*s, true), a.rows = rows.rows, a.cols = rows.cols;
    a.layout.pitch = rows.pitch;
    if (values) {
      const Tensor v(values, "argmax", "values");
      v.expect({in.dtype()}), cgp::capi::of_rows(v, in), v.expect_apart(place);
      a.values = v.view(*s, true);
    }
    cgp::kernels::argmax(s->stream, a);
  });
}
cgp_status cgp_topk(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* values, const cgp_tensor* index) {
  return guarded([&] {
    require(s, "s");
    const Tensor in(x, "topk", "x"), v(values, "topk", "values"), place(index, "topk", "index");
    in.expect_rank(1, CGP_MAX_RANK), v.expect_rank(1, CGP_MAX_RANK), cgp::capi::index_type(place);
    auto shape = in.shape();
    shape.back() = v.size(-1);
    v.expect({in.dtype()}), v.expect_shape(shape, "x, but for the last dimension,"), v.expect_contiguous();
    place.expect_shape(shape, "values"), v.expect_apart(in), place.expect_apart(in), place.expect_apart(v);
    const auto rows = in.rows();
    cgp::kernels::TopK t;
    t.in = in.view(*s), t.values = v.view(*s, true), t.index = place.view(*s, true);
    t.rows = rows.rows, t.cols = rows.cols, t.k = shape.back(), t.layout.pitch = rows.pitch;
    cgp::kernels::topk(s->stream, t);
  });
}
cgp_status cgp_cumsum(cgp_stream* s, const cgp_tensor* x, int32_t exclusive, const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    const Tensor in(x, "cumsum", "x"), out(y, "cumsum", "y");
    in.expect_rank(1, CGP_MAX_RANK);
    out.expect({in.dtype()}), out.expect_shape(in.shape(), "x"), out.expect_apart(in, true);
    const auto rows = in.rows();
    cgp::kernels::CumSum c;
    c.x = in.view(*s), c.out = out.view(*s, true), c.rows = rows.rows, c.cols = rows.cols;
    c.x_layout.pitch = rows.pitch, c.out_layout.pitch = out.rows().pitch, c.exclusive = exclusive != 0;
    cgp::kernels::cumsum(s->stream, c);
  });
}
