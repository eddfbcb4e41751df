// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/gemm/gemm.h"

namespace cgp::capi {
namespace {

using kernels::DeviceArray;
using kernels::Epilogue;
using kernels::GemmProblem;

struct Operand {
  bool transposed = false;  ///< the first of both dimensions is contiguous
  std::uint64_t ld = 0, batch = 1, stride = 0;
};
Operand operand(const Tensor& t) {
  t.expect_rank(2, CGP_MAX_RANK);
  Operand o;
  const auto b = t.leading(2);
  o.batch = b.count, o.stride = b.stride;
  const std::uint64_t rows = t.size(-2), cols = t.size(-1);
  if (cols <= 1 || t.stride(-1) == 1) {
    // One row: its stride says nothing.
    o.ld = rows > 1 ? std::max(t.stride(-2), cols) : cols;
    if (rows > 1 && t.stride(-2) < cols) {
      if (t.stride(-2) != 1) t.fail("its rows overlap");
      o.transposed = true, o.ld = std::max<std::uint64_t>(rows, 1);  // a column, contiguous downwards
    }
    return o;
  }
  if (rows > 1 && t.stride(-2) != 1)
    t.fail("one of its last two dimensions must be contiguous", "pass x.contiguous()");
  o.transposed = true, o.ld = t.stride(-1);
  if (o.ld < rows) t.fail("its columns overlap");
  return o;
}

Epilogue activation(std::int32_t which) {
  namespace e = kernels::epilogue;
  switch (which) {
    case CGP_ACT_NONE:
      return {};
    case CGP_ACT_RELU:
      return e::relu();
    case CGP_ACT_SILU:
      return e::silu();
    case CGP_ACT_GELU:
      return e::gelu();
    case CGP_ACT_GELU_TANH:
      return e::gelu_tanh();
    default:
      throw ArgumentError(text::cat("gemm: there is no activation ", which));
  }
}

// Strides of a batch; one b for all of it makes the matrices of a and c one tall matrix.
void fit_batch(const Tensor& a, const Operand& oa, const Tensor& b, const Operand& ob, const Operand& oc,
               GemmProblem& p) {
  if (oa.batch != p.batch) a.fail(text::cat("its batch of ", oa.batch, " does not fit c's of ", p.batch));
  if (ob.batch != 1 && ob.batch != p.batch)
    b.fail(text::cat("its batch of ", ob.batch, " does not fit c's of ", p.batch));
  if (p.batch <= 1) return;
  if (ob.batch == 1) {
    if (oa.transposed || oa.stride != p.m * oa.ld || oc.stride != p.m * oc.ld)
      b.fail("one matrix serves a batch only where the matrices of a and c follow each other without gaps",
             "pass a.contiguous()");
    p.m *= p.batch, p.batch = 1;
    return;
  }
  p.stride_a = oa.stride, p.stride_b = ob.stride, p.stride_c = oc.stride;
}

void gemm(cgp_stream& s, const Tensor& a, const Tensor& b, const cgp_gemm_options& o, const Tensor& c) {
  const Operand oa = operand(a), ob = operand(b), oc = operand(c);
  GemmProblem p;
  p.type = a.dtype(), p.type_b = b.dtype(), p.type_c = c.dtype();
  p.trans_a = oa.transposed, p.trans_b = ob.transposed;
  p.m = a.size(-2), p.k = a.size(-1), p.n = b.size(-1);
  if (b.size(-2) != p.k) b.fail(text::cat("it must have the ", p.k, " rows that a has columns"));
  if (c.size(-2) != p.m) c.fail(text::cat("it must have the ", p.m, " rows of a"));
  c.expect_apart(a), c.expect_apart(b);
  p.lda = oa.ld, p.ldb = ob.ld, p.ldc = oc.ld;
  p.batch = oc.batch;
  fit_batch(a, oa, b, ob, oc, p);
  p.alpha = o.alpha, p.beta = o.beta;
  if (o.precision < 0 || o.precision > CGP_PRECISION_STRICT)
    throw ArgumentError(text::cat("gemm: there is no precision ", o.precision));
  p.precision = kernels::GemmPrecision(o.precision);
  if (o.scaling < 0 || o.scaling > 3) throw ArgumentError(text::cat("gemm: there is no scaling ", o.scaling));
  p.scaling = kernels::GemmScaling(o.scaling);
  kernels::GemmFactors factors;
  if (o.scaling) {
    const Tensor fa(o.scale_a, "gemm", "scale_a"), fb(o.scale_b, "gemm", "scale_b");
    fa.expect({DType::f32}), fb.expect({DType::f32});
    fa.expect_contiguous(), fb.expect_contiguous(), c.expect_apart(fa), c.expect_apart(fb);
    factors = {fa.array(), fb.array()};
  } else if (o.scale_a || o.scale_b) {
    throw ArgumentError("gemm: scale_a and scale_b need a scaling other than none");
  }
  if (o.bias) {
    const Tensor bias(o.bias, "gemm", "bias");
    const std::uint64_t n[] = {p.n};
    bias.expect({DType::f32, DType::f16, DType::bf16}), bias.expect_shape(n, "n"), bias.expect_contiguous(),
        c.expect_apart(bias);
    p.epilogue = p.epilogue | kernels::epilogue::bias(bias.array());
  }
  if (o.activation) p.epilogue = p.epilogue | activation(o.activation);
  if (o.swiglu < 0 || o.swiglu > 2) throw ArgumentError(text::cat("gemm: there is no swiglu ", o.swiglu));
  if (o.swiglu)
    p.epilogue = p.epilogue | kernels::epilogue::swiglu(o.swiglu == 1 ? kernels::Pairing::interleaved
                                                                      : kernels::Pairing::halves);
  if (o.residual) {
    const Tensor r(o.residual, "gemm", "residual");
    r.expect_shape(c.shape(), "c"), c.expect_apart(r, true);
    const Operand at = operand(r);
    if (at.transposed) r.fail("its rows must be contiguous");
    if (oc.batch > p.batch && at.stride != c.size(-2) * at.ld)
      r.fail("its matrices must follow each other without gaps");
    p.epilogue = p.epilogue | kernels::epilogue::residual(r.array(), 1, at.ld, p.batch > 1 ? at.stride : 0);
  }
  if (oc.transposed) c.fail("its rows must be contiguous");
  if (c.size(-1) != p.columns()) c.fail(text::cat("it must have ", p.columns(), " columns"));
  auto to = c.array();
  const auto group = 16 / std::uint64_t(bytes(c.dtype()));
  if (o.c_spare && to.size) to.size += (group - c.size(-1) % group) % group;
  kernels::gemm(s.stream, p, a.array(), b.array(), to, factors, o.c_spare != 0);
}

}  // namespace
}  // namespace cgp::capi

cgp_status cgp_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b, const cgp_gemm_options* options,
                    const cgp_tensor* c) {
  return cgp::capi::guarded([&] {
    cgp::capi::require(s, "s");
    cgp_gemm_options defaults{};
    defaults.size = sizeof defaults, defaults.alpha = 1;
    using cgp::capi::Tensor;
    cgp::capi::gemm(*s, Tensor(a, "gemm", "a"), Tensor(b, "gemm", "b"),
                    cgp::capi::known(options, defaults, "gemm"), Tensor(c, "gemm", "c"));
  });
}
