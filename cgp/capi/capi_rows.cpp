// SPDX-License-Identifier: Apache-2.0
// The C interface of kernels on rows and elements.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/reduce/reduce.h"
#include "cgp/kernels/transpose/transpose.h"
#include "cgp/kernels/vecadd/vecadd.h"

namespace cgp::capi {
namespace {

/// f(type<T>) for the host type of one of the three floating types.
template <class F>
void with_float(const Tensor& t, F f) {
  t.expect({DType::f32, DType::f16, DType::bf16});
  if (t.dtype() == DType::f32) return f(std::type_identity<float>());
  if (t.dtype() == DType::f16) return f(std::type_identity<half>());
  f(std::type_identity<bfloat16>());
}
template <class T>
runtime::Slice<T> slice(cgp_stream& s, const Tensor& t) {
  return {s.device.backend().get(), t.address(), t.extent()};
}
void same_type(const Tensor& t, const Tensor& x) {
  if (t.dtype() != x.dtype()) t.fail(text::cat("its dtype must be that of x, ", name(x.dtype())));
}

void reduce(cgp_stream& s, std::int32_t op, std::int32_t dim, const Tensor& x, const Tensor& y) {
  if (op != 0 && op != 1) throw ArgumentError(text::cat("reduce: there is no operation ", op));
  x.expect_contiguous(), y.expect_contiguous(), same_type(y, x), y.expect_apart(x);
  const auto shape = kernels::reduce_dim(x.shape(), dim);
  if (y.elements() != shape.outer * shape.inner)
    y.fail(text::cat("it must have ", shape.outer * shape.inner, " elements: x without dimension ", dim));
  const bool aligned = x.address() % 16 == 0;
  const auto plan = kernels::plan_reduce(x.dtype(), shape, aligned, s.device.info());
  const std::uint64_t floats = kernels::reduce_workspace(plan, shape);
  const std::uint64_t scratch = floats ? s.stream.scratch(floats * sizeof(float)) : 0;
  with_float(x, [&]<class T>(std::type_identity<T>) {
    kernels::reduce<T>(s.stream, op ? kernels::ReduceOp::max : kernels::ReduceOp::sum, slice<const T>(s, x),
                       slice<T>(s, y), shape, {s.device.backend().get(), scratch, floats});
  });
}

void transpose(cgp_stream& s, const Tensor& x, const Tensor& y) {
  x.expect_rank(2, CGP_MAX_RANK);
  x.expect_contiguous(), y.expect_contiguous(), same_type(y, x), y.expect_apart(x);
  auto shape = x.shape();
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  y.expect_shape(shape, "x");
  const kernels::TransposeShape p{x.leading(2).count, x.size(-2), x.size(-1)};
  const auto run = [&]<class T>(std::type_identity<T>) {
    kernels::transpose<T>(s.stream, slice<const T>(s, x), slice<T>(s, y), p);
  };
  switch (bytes(x.dtype())) {
    case 1:
      return run(std::type_identity<std::uint8_t>());
    case 2:
      return run(std::type_identity<std::uint16_t>());
    case 4:
      return run(std::type_identity<std::uint32_t>());
    default:
      return run(std::type_identity<std::uint64_t>());
  }
}

void add(cgp_stream& s, const Tensor& x, const Tensor& y, const Tensor& z) {
  same_type(y, x), same_type(z, x);
  y.expect_shape(x.shape(), "x"), z.expect_shape(x.shape(), "x");
  x.expect_contiguous(), y.expect_contiguous(), z.expect_contiguous();
  z.expect_apart(x, true), z.expect_apart(y, true);
  with_float(x, [&]<class T>(std::type_identity<T>) {
    kernels::vecadd<T>(s.stream, slice<const T>(s, x), slice<const T>(s, y), slice<T>(s, z));
  });
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_reduce(cgp_stream* s, int32_t op, int32_t dim, const cgp_tensor* x, const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    cgp::capi::reduce(*s, op, dim, Tensor(x, "reduce", "x"), Tensor(y, "reduce", "y"));
  });
}
cgp_status cgp_transpose(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    cgp::capi::transpose(*s, Tensor(x, "transpose", "x"), Tensor(y, "transpose", "y"));
  });
}
cgp_status cgp_add(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y, const cgp_tensor* z) {
  return guarded([&] {
    require(s, "s");
    cgp::capi::add(*s, Tensor(x, "add", "x"), Tensor(y, "add", "y"), Tensor(z, "add", "z"));
  });
}
