// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_launch.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/lora/lora.h"

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
void fit_batch(const Tensor& a, const Operand& oa, const Tensor& b, const Operand& ob, const Tensor& c,
               const Operand& oc, GemmProblem& p) {
  if (oa.batch != p.batch) a.fail(text::cat("its batch of ", oa.batch, " does not fit c's of ", p.batch));
  if (ob.batch != 1 && ob.batch != p.batch)
    b.fail(text::cat("its batch of ", ob.batch, " does not fit c's of ", p.batch));
  if (p.batch <= 1) return;
  if (ob.batch == 1) {
    // Of matrices of one row the distance is that of rows.
    if (p.m == 1 && !oa.transposed && oa.stride >= p.k && oc.stride >= c.size(-1))
      p.lda = oa.stride, p.ldc = oc.stride;
    else if (a.elements() && (oa.transposed || oa.stride != p.m * oa.ld || oc.stride != p.m * oc.ld))
      b.fail("one matrix serves a batch only where the matrices of a and c follow each other without gaps",
             "pass a.contiguous()");
    p.m *= p.batch, p.batch = 1;
    return;
  }
  p.stride_a = oa.stride, p.stride_b = ob.stride, p.stride_c = oc.stride;
}

/// What the options ask for besides alpha and beta.
struct Asked {
  kernels::GemmPrecision precision;
  kernels::GemmScaling scaling;
  kernels::GemmScales scales{};
  Epilogue epilogue{};
};

/// Scales of a and of b, for so many sets of each.
struct ScaleCounts {
  std::uint64_t a, b;
};
ScaleCounts scale_counts(std::int32_t scaling, std::uint64_t m, std::uint64_t n, std::uint64_t k,
                         std::uint64_t sets_a, std::uint64_t sets_b) {
  const auto blocks = [](std::uint64_t x) { return (x + 127) / 128; };
  if (scaling == int(kernels::GemmScaling::tensor)) return {sets_a, sets_b};
  if (scaling == int(kernels::GemmScaling::channel)) return {sets_a * m, sets_b * n};
  return {sets_a * m * blocks(k), sets_b * blocks(n) * blocks(k)};
}

/// `rows`: elements of a vector of rows. `batched`: the matrices of c are batches of the product.
Asked asked(const char* op, const cgp_gemm_options& o, std::uint64_t rows, std::uint64_t n,
            ScaleCounts scales, const Tensor& c, bool batched) {
  const auto none = [&](const char* what, std::int32_t value) {
    throw ArgumentError(text::cat(op, ": there is no ", what, " ", value));
  };
  if (o.precision < 0 || o.precision > CGP_PRECISION_STRICT) none("precision", o.precision);
  if (o.scaling < 0 || o.scaling > 3) none("scaling", o.scaling);
  if (o.activation < 0 || o.activation > CGP_ACT_GELU_TANH) none("activation", o.activation);
  if (o.swiglu < 0 || o.swiglu > 2) none("swiglu", o.swiglu);
  Asked r{kernels::GemmPrecision(o.precision), kernels::GemmScaling(o.scaling)};
  const auto counted = [&](const cgp_tensor* t, const char* name, std::uint64_t count,
                           std::initializer_list<DType> types) {
    const Tensor v(t, op, name);
    v.expect(types), v.expect_contiguous(), c.expect_apart(v);
    if (v.elements() != count) v.fail(text::cat("it must have ", count, " elements"));
    return v.array();
  };
  if (o.scaling)
    r.scales = {counted(o.scale_a, "scale_a", scales.a, {DType::f32}),
                counted(o.scale_b, "scale_b", scales.b, {DType::f32})};
  else if (o.scale_a || o.scale_b)
    throw ArgumentError(text::cat(op, ": scale_a and scale_b need a scaling other than none"));
  namespace e = kernels::epilogue;
  const auto vector = [&](const cgp_tensor* t, const char* name, std::uint64_t count,
                          Epilogue (*apply)(const DeviceArray&)) {
    if (t) r.epilogue = r.epilogue | apply(counted(t, name, count, {DType::f32, DType::f16, DType::bf16}));
  };
  vector(o.multiply_rows, "multiply_rows", rows, e::scale_rows);
  vector(o.multiply_columns, "multiply_columns", n, e::scale_columns);
  vector(o.bias, "bias", n, e::bias);
  vector(o.bias_rows, "bias_rows", rows, e::bias_rows);
  r.epilogue = r.epilogue | activation(o.activation);
  if (o.swiglu)
    r.epilogue =
        r.epilogue | e::swiglu(o.swiglu == 1 ? kernels::Pairing::interleaved : kernels::Pairing::halves);
  if (o.residual) {
    const Tensor t(o.residual, op, "residual");
    t.expect_shape(c.shape(), "c"), c.expect_apart(t, true);
    Operand at = operand(t);
    if (at.transposed) t.fail("its rows must be contiguous");
    if (!batched && at.batch > 1) {
      if (c.size(-2) == 1)
        at.ld = at.stride;
      else if (at.stride != c.size(-2) * at.ld)
        t.fail("its matrices must follow each other without gaps");
    }
    r.epilogue = r.epilogue | e::residual(t.array(), 1, at.ld, batched ? at.stride : 0);
  }
  return r;
}

void gemm(cgp_stream& s, const Tensor& a, const Tensor& b, const cgp_gemm_options& o, const Tensor& c) {
  const Operand oa = operand(a), oc = operand(c);
  Operand ob = operand(b);
  if (ob.batch == oc.batch && ob.stride == 0) ob.batch = 1;  // one matrix, expanded
  for (const auto& [t, of] : {std::pair{&a, &oa}, {&c, &oc}})
    if (of->batch > 1 && of->stride == 0 && t->elements())
      t->fail("its matrices are one and the same (stride 0)", "pass x.contiguous()");
  GemmProblem p;
  p.type = a.dtype(), p.type_b = b.dtype(), p.type_c = c.dtype();
  p.trans_a = oa.transposed, p.trans_b = ob.transposed;
  p.m = a.size(-2), p.k = a.size(-1), p.n = b.size(-1);
  if (b.size(-2) != p.k) b.fail(text::cat("it must have the ", p.k, " rows that a has columns"));
  if (c.size(-2) != p.m) c.fail(text::cat("it must have the ", p.m, " rows of a"));
  c.expect_apart(a), c.expect_apart(b);
  p.lda = oa.ld, p.ldb = ob.ld, p.ldc = oc.ld;
  p.batch = oc.batch;
  fit_batch(a, oa, b, ob, c, oc, p);
  p.alpha = o.alpha, p.beta = o.beta;
  const auto sets = o.scaling == int(kernels::GemmScaling::block) ? p.batch : 1;
  auto r = asked("gemm", o, p.m, p.n, scale_counts(o.scaling, p.m, p.n, p.k, sets, sets), c, p.batch > 1);
  p.precision = r.precision, p.scaling = r.scaling, p.epilogue = r.epilogue;
  if (o.amax) {
    const Tensor t(o.amax, "gemm", "amax");
    const std::uint64_t blocks = p.batch * ((p.m + 127) / 128) * ((p.columns() + 127) / 128);
    t.expect({DType::f32}), t.expect_contiguous(), t.expect_apart(a), t.expect_apart(b), t.expect_apart(c);
    if (t.elements() != blocks) t.fail(text::cat("it must have ", blocks, " elements"));
    p.epilogue = p.epilogue | kernels::epilogue::amax(t.array());
  }
  if (oc.transposed) c.fail("its rows must be contiguous");
  if (c.size(-1) != p.columns()) c.fail(text::cat("it must have ", p.columns(), " columns"));
  auto to = c.array();
  if (o.padded_ldc && to.size) to.size += kernels::c_padding(p.dense());
  kernels::gemm(s.stream, p, a.array(), b.array(), to, r.scales, o.padded_ldc != 0);
}

using kernels::GroupedForm;
using kernels::GroupedProblem;

/// The last of its dimensions is contiguous, and so is all of it; or, of b, the last two the other way round.
bool grouped_transposed(const Tensor& b) {
  const Operand o = operand(b);
  const auto rows = b.size(-2), cols = b.size(-1);
  if (o.ld != (o.transposed ? rows : cols) || (o.batch > 1 && o.stride != rows * cols))
    b.fail("its matrices must follow each other without gaps", "pass x.contiguous()");
  return o.transposed;
}

GroupedProblem grouped_problem(GroupedForm form, const Tensor& a, const Tensor& b, const cgp_gemm_options& o,
                               const Tensor& c) {
  GroupedProblem p;
  p.form = form, p.alpha = o.alpha, p.beta = o.beta;
  p.type = a.dtype(), p.type_b = b.dtype(), p.type_c = c.dtype();
  return p;
}

void ask(GroupedProblem& p, kernels::GroupedAddresses& at, const char* op, const Asked& r) {
  p.precision = r.precision, p.scaling = r.scaling, p.epilogue = r.epilogue;
  at.scale_a = r.scales.a.address, at.scale_b = r.scales.b.address;
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat(op, ": ", why));
}

void no_amax(const char* op, const cgp_gemm_options& o) {
  if (o.amax) throw ArgumentError(text::cat(op, ": amax: rows of a group are not blocks of 128 rows of c"));
  if (o.padded_ldc) throw ArgumentError(text::cat(op, ": padded_ldc is cgp_gemm's"));
}

void grouped(cgp_stream& s, GroupedForm form, const Tensor& a, const Tensor& b, const Tensor& ends,
             const cgp_tensor* index, const cgp_gemm_options& o, const Tensor& c) {
  const bool depth = form == GroupedForm::depth;
  const char* op = depth ? "grouped_gemm_depth" : "grouped_gemm";
  no_amax(op, o);
  a.expect_rank(2, 2), b.expect_rank(depth ? 2 : 3, depth ? 2 : 3),
      c.expect_rank(depth ? 3 : 2, depth ? 3 : 2);
  ends.expect({DType::s32, DType::u32, DType::s64, DType::u64}), ends.expect_rank(1, 1);
  for (const Tensor* t : {&a, &ends, &c}) t->expect_contiguous();
  auto p = grouped_problem(form, a, b, o, c);
  kernels::GroupedAddresses at{a.address(), b.address(), c.address(), ends.address()};
  p.groups = ends.size(0), p.wide_ends = bytes(ends.dtype()) == 8, p.n = b.size(-1);
  p.rows = depth ? a.size(0) : c.size(0);
  if (depth) {
    p.m = a.size(1);
    b.expect_contiguous();
    if (b.size(0) != p.rows) b.fail(text::cat("it must have the ", p.rows, " rows of a"));
  } else {
    p.k = a.size(1), p.trans_b = grouped_transposed(b);
    if (b.size(0) != p.groups)
      b.fail(text::cat("it must have as many matrices as there are ends, ", p.groups));
    if (b.size(1) != p.k) b.fail(text::cat("its matrices must have the ", p.k, " rows that a has columns"));
    if (index) {
      const Tensor i(index, op, "index");
      const std::uint64_t rows[] = {p.rows};
      i.expect({DType::s32, DType::u32}), i.expect_shape(rows, "c"), i.expect_contiguous(), c.expect_apart(i);
      at.index = i.address(), p.a_rows = a.size(0);
      if (!p.a_rows && p.rows) a.fail("it has no rows that index could name");
    } else if (a.size(0) != p.rows) {
      c.fail(text::cat("it must have the ", a.size(0), " rows of a"));
    }
  }
  c.expect_apart(a), c.expect_apart(b), c.expect_apart(ends);
  const auto counts =
      depth ? ScaleCounts{p.groups, p.groups} : scale_counts(o.scaling, p.rows, p.n, p.k, 1, p.groups);
  ask(p, at, op, asked(op, o, depth ? p.m : p.rows, p.n, counts, c, depth));
  if (c.size(-1) != p.columns()) c.fail(text::cat("it must have ", p.columns(), " columns"));
  if (depth && (c.size(0) != p.groups || c.size(1) != p.m))
    c.fail(text::cat("it must have ", p.groups, " matrices of ", p.m, " rows"));
  kernels::grouped_gemm(s.stream, p, at);
}

/// A matrix that stands for others of its kind: its address does not matter.
Tensor standing(const cgp_tensor* t, const char* name) {
  if (!t) return {t, "gemm_pointers", name};
  cgp_tensor one = *t;
  one.address = 256;
  return {&one, "gemm_pointers", name};
}

void pointers(cgp_stream& s, const Tensor& a, const Tensor& b, const Tensor& a_at, const Tensor& b_at,
              const Tensor& c_at, const cgp_gemm_options& o, const Tensor& items, const Tensor& c) {
  const char* op = "gemm_pointers";
  no_amax(op, o);
  for (const Tensor* t : {&a, &b, &c}) t->expect_rank(2, 2);
  const Operand oa = operand(a), ob = operand(b), oc = operand(c);
  if (oc.transposed) c.fail("its rows must be contiguous");
  if (o.residual) throw ArgumentError(text::cat(op, ": a residual would have to lie in one place"));
  auto p = grouped_problem(GroupedForm::problems, a, b, o, c);
  p.trans_a = oa.transposed, p.trans_b = ob.transposed;
  p.m = a.size(0), p.n = b.size(1), p.k = a.size(1), p.groups = c_at.elements();
  if (b.size(0) != p.k) b.fail(text::cat("it must have the ", p.k, " rows that a has columns"));
  if (c.size(0) != p.m) c.fail(text::cat("it must have the ", p.m, " rows of a"));
  for (const Tensor* t : {&a_at, &b_at, &c_at}) {
    const std::uint64_t count[] = {p.groups};
    t->expect({DType::u64, DType::s64}), t->expect_shape(count, "c_at"), t->expect_contiguous();
    items.expect_apart(*t);
  }
  items.expect_contiguous();
  if (items.elements() * std::uint64_t(bytes(items.dtype())) < p.groups * sizeof(kernels::GroupedItem) ||
      items.address() % 16)
    items.fail(
        text::cat("it must have ", p.groups * sizeof(kernels::GroupedItem), " bytes at a multiple of 16"));
  kernels::GroupedAddresses at;
  at.items = items.address();
  const auto scales = ScaleCounts{p.groups, p.groups};
  ask(p, at, op, asked(op, o, p.m, p.n, scales, c, false));
  if (c.size(1) != p.columns()) c.fail(text::cat("it must have ", p.columns(), " columns"));
  for (const auto ld : {oa.ld, ob.ld, oc.ld})
    if (ld > 0x7fffffff)
      throw ArgumentError(text::cat(op, ": rows ", ld, " elements apart; at most 2^31 - 1"));
  const auto word = [](std::uint64_t v) { return std::uint32_t(v); };
  kernels::run_grouped_items(
      s.stream, at.items, p.groups, a_at.address(), b_at.address(), c_at.address(),
      {0, 0, 0, word(p.m), word(p.n), word(p.k), word(oa.ld), word(ob.ld), word(oc.ld)});
  kernels::grouped_gemm(s.stream, p, at);
}

cgp_gemm_options options_of(const cgp_gemm_options* given, const char* op) {
  cgp_gemm_options defaults{};
  defaults.size = sizeof defaults, defaults.alpha = 1;
  return known(given, defaults, op);
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::options_of;
using cgp::capi::Tensor;

cgp_status cgp_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b, const cgp_gemm_options* options,
                    const cgp_tensor* c) {
  return guarded([&] {
    cgp::capi::require(s, "s");
    cgp::capi::gemm(*s, Tensor(a, "gemm", "a"), Tensor(b, "gemm", "b"), options_of(options, "gemm"),
                    Tensor(c, "gemm", "c"));
  });
}

cgp_status cgp_grouped_gemm(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b, const cgp_tensor* ends,
                            const cgp_tensor* index, const cgp_gemm_options* options, const cgp_tensor* c) {
  return guarded([&] {
    const char* op = "grouped_gemm";
    cgp::capi::require(s, "s");
    cgp::capi::grouped(*s, cgp::kernels::GroupedForm::rows, Tensor(a, op, "a"), Tensor(b, op, "b"),
                       Tensor(ends, op, "ends"), index, options_of(options, op), Tensor(c, op, "c"));
  });
}

cgp_status cgp_grouped_gemm_depth(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b,
                                  const cgp_tensor* ends, const cgp_gemm_options* options,
                                  const cgp_tensor* c) {
  return guarded([&] {
    const char* op = "grouped_gemm_depth";
    cgp::capi::require(s, "s");
    cgp::capi::grouped(*s, cgp::kernels::GroupedForm::depth, Tensor(a, op, "a"), Tensor(b, op, "b"),
                       Tensor(ends, op, "ends"), nullptr, options_of(options, op), Tensor(c, op, "c"));
  });
}

cgp_status cgp_lora_linear(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* weight, const cgp_tensor* a,
                           const cgp_tensor* b, float scale, int32_t transposed, const cgp_tensor* t,
                           const cgp_tensor* y) {
  return guarded([&] {
    const char* op = "lora_linear";
    cgp::capi::require(s, "s");
    const Tensor of_x(x, op, "x"), of_t(t, op, "t"), of_y(y, op, "y");
    for (const auto* each : {&of_x, &of_t, &of_y}) each->expect_rank(2, 2);
    const std::uint64_t m = of_x.size(0), k = of_x.size(1), r = of_t.size(1), n = of_y.size(1);
    const auto view = [&](const Tensor& of, std::uint64_t rows, std::uint64_t cols, bool out = false) {
      of.expect({of_x.dtype()});
      of.expect_shape(std::array{rows, cols}, "the other arguments");
      of.expect_contiguous();
      return of.view(*s, out);
    };
    const auto matrix = [&](const cgp_tensor* given, const char* name, std::uint64_t rows,
                            std::uint64_t cols) {
      return transposed ? view(Tensor(given, op, name), cols, rows)
                        : view(Tensor(given, op, name), rows, cols);
    };
    cgp::kernels::lora_linear(
        s->stream, {.type = of_x.dtype(), .m = m, .n = n, .k = k, .r = r, .scale = scale}, transposed != 0,
        {view(of_x, m, k), matrix(weight, "weight", k, n), matrix(a, "a", k, r), matrix(b, "b", r, n),
         view(of_t, m, r, true), view(of_y, m, n, true)});
  });
}

cgp_status cgp_gemm_pointers(cgp_stream* s, const cgp_tensor* a, const cgp_tensor* b, const cgp_tensor* a_at,
                             const cgp_tensor* b_at, const cgp_tensor* c_at, const cgp_gemm_options* options,
                             const cgp_tensor* items, const cgp_tensor* c) {
  return guarded([&] {
    const char* op = "gemm_pointers";
    using cgp::capi::standing;
    cgp::capi::require(s, "s");
    cgp::capi::pointers(*s, standing(a, "a"), standing(b, "b"), Tensor(a_at, op, "a_at"),
                        Tensor(b_at, op, "b_at"), Tensor(c_at, op, "c_at"), options_of(options, op),
                        Tensor(items, op, "items"), standing(c, "c"));
  });
}
