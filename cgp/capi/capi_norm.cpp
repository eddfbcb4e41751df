// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/norm/norm.h"

namespace cgp::capi {
namespace {

using kernels::View;

/// An optional argument, checked and made a view where it is given.
class Arguments {
 public:
  Arguments(const cgp_stream& s, const char* op, const Tensor& x) : s_(s), op_(op), x_(x), rows_(x.rows()) {
    x.expect_rank(1, CGP_MAX_RANK);
  }
  /// As x: rows at a distance.
  void rows(const cgp_tensor* given, const char* name, View& view, kernels::row::Layout& layout,
            bool out) const {
    if (!given) return;
    const Tensor t(given, op_, name);
    t.expect_shape(x_.shape(), "x");
    view = t.view(s_, out), layout.pitch = t.rows().pitch;
    if (out) apart(t);
  }
  void vector(const cgp_tensor* given, const char* name, View& view, bool out = false) const {
    const std::uint64_t cols[] = {rows_.cols};
    plain(given, name, cols, "the last dimension of x", view, out);
  }
  void statistic(const cgp_tensor* given, const char* name, View& view, bool out) const {
    if (!given) return;
    auto shape = x_.shape();
    shape.pop_back();
    Tensor(given, op_, name).expect({DType::f32});
    plain(given, name, shape, "x without its last dimension", view, out);
  }
  std::uint64_t count() const { return rows_.rows; }
  std::uint64_t cols() const { return rows_.cols; }
  std::uint64_t pitch() const { return rows_.pitch; }
  /// Inputs that outputs checked after this must not share memory with.
  void keep(const cgp_tensor* given, const char* name) {
    if (given) kept_.emplace_back(given, op_, name);
  }

 private:
  void plain(const cgp_tensor* given, const char* name, std::span<const std::uint64_t> shape,
             const char* like, View& view, bool out) const {
    if (!given) return;
    const Tensor t(given, op_, name);
    t.expect_shape(shape, like), t.expect_contiguous();
    view = t.view(s_, out);
    if (out) apart(t);
  }
  void apart(const Tensor& t) const {
    for (const Tensor& k : kept_) t.expect_apart(k);
  }

  const cgp_stream& s_;
  const char* op_;
  const Tensor& x_;
  Tensor::Rows rows_;
  std::vector<Tensor> kept_;
};

void norm(cgp_stream& s, bool layer, const cgp_tensor* given_x, const cgp_norm_options& o,
          const cgp_tensor* y) {
  const char* op = layer ? "layer_norm" : "rms_norm";
  const Tensor x(given_x, op, "x");
  require(y, "y");
  Arguments a(s, op, x);
  kernels::Norm n;
  n.x = x.view(s), n.x_layout.pitch = a.pitch();
  n.rows = a.count(), n.cols = a.cols(), n.eps = o.eps, n.weight_offset = o.weight_offset;
  a.vector(o.weight, "weight", n.weight), a.vector(o.bias, "bias", n.bias);
  a.rows(o.residual, "residual", n.residual, n.residual_layout, false);
  a.keep(given_x, "x"), a.keep(o.weight, "weight"), a.keep(o.bias, "bias"), a.keep(o.residual, "residual");
  a.rows(y, "y", n.y, n.y_layout, true);
  a.keep(y, "y");
  a.rows(o.sum, "sum", n.sum, n.sum_layout, true);
  a.keep(o.sum, "sum");
  a.statistic(o.mean, "mean", n.mean, true), a.statistic(o.rstd, "rstd", n.rstd, true);
  if (layer)
    kernels::layer_norm(s.stream, n);
  else
    kernels::rms_norm(s.stream, n);
}

void norm_backward(cgp_stream& s, bool layer, const cgp_tensor* given_x, const cgp_tensor* dy,
                   const cgp_norm_backward_options& o, const cgp_tensor* dx) {
  const char* op = layer ? "layer_norm_backward" : "rms_norm_backward";
  const Tensor x(given_x, op, "x");
  require(dy, "dy"), require(dx, "dx");
  Arguments a(s, op, x);
  kernels::NormBackward n;
  n.x = x.view(s), n.x_layout.pitch = a.pitch();
  n.rows = a.count(), n.cols = a.cols(), n.weight_offset = o.weight_offset;
  a.rows(dy, "dy", n.dy, n.dy_layout, false), a.rows(o.dsum, "dsum", n.dsum, n.dsum_layout, false);
  a.vector(o.weight, "weight", n.weight);
  a.statistic(o.mean, "mean", n.mean, false), a.statistic(o.rstd, "rstd", n.rstd, false);
  a.keep(given_x, "x"), a.keep(dy, "dy"), a.keep(o.dsum, "dsum"), a.keep(o.weight, "weight");
  a.rows(dx, "dx", n.dx, n.dx_layout, true);
  a.keep(dx, "dx");
  a.vector(o.dweight, "dweight", n.dweight, true), a.vector(o.dbias, "dbias", n.dbias, true);
  const std::uint64_t floats = kernels::norm_backward_workspace(n, layer, s.device.info());
  if (floats) {
    const std::uint64_t scratch = s.stream.scratch(floats * sizeof(float));
    n.workspace = View(scratch, floats, DType::f32, true, s.device.backend().get());
  }
  if (layer)
    kernels::layer_norm_backward(s.stream, n);
  else
    kernels::rms_norm_backward(s.stream, n);
}

cgp_status run(cgp_stream* s, bool layer, const cgp_tensor* x, const cgp_norm_options* options,
               const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    cgp_norm_options defaults{};
    defaults.size = sizeof defaults, defaults.eps = layer ? 1e-5f : 1e-6f;
    norm(*s, layer, x, known(options, defaults, "norms"), y);
  });
}
cgp_status run_backward(cgp_stream* s, bool layer, const cgp_tensor* x, const cgp_tensor* dy,
                        const cgp_norm_backward_options* options, const cgp_tensor* dx) {
  return guarded([&] {
    require(s, "s");
    require(options, "options (with rstd of the forward pass)");
    norm_backward(*s, layer, x, dy, known(options, {}, "norms' gradients"), dx);
  });
}

}  // namespace
}  // namespace cgp::capi

cgp_status cgp_rms_norm(cgp_stream* s, const cgp_tensor* x, const cgp_norm_options* options,
                        const cgp_tensor* y) {
  return cgp::capi::run(s, false, x, options, y);
}
cgp_status cgp_layer_norm(cgp_stream* s, const cgp_tensor* x, const cgp_norm_options* options,
                          const cgp_tensor* y) {
  return cgp::capi::run(s, true, x, options, y);
}
cgp_status cgp_rms_norm_backward(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* dy,
                                 const cgp_norm_backward_options* options, const cgp_tensor* dx) {
  return cgp::capi::run_backward(s, false, x, dy, options, dx);
}
cgp_status cgp_layer_norm_backward(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* dy,
                                   const cgp_norm_backward_options* options, const cgp_tensor* dx) {
  return cgp::capi::run_backward(s, true, x, dy, options, dx);
}
