// SPDX-License-Identifier: Apache-2.0
// Cross-entropy, softmax, log-softmax and the gradients of both.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/cross_entropy/cross_entropy.h"
#include "cgp/kernels/softmax/softmax.h"

namespace cgp::capi {
namespace {

void expect_one(const Tensor& t) {
  if (t.elements() != 1) t.fail("it must have one element");
}

void cross_entropy(cgp_stream& s, const Tensor& logits, const Tensor& targets,
                   const cgp_cross_entropy_options& o, const cgp_tensor* loss, const cgp_tensor* lse,
                   const cgp_tensor* dlogits) {
  logits.expect_rank(1, CGP_MAX_RANK);
  if (!loss && !lse && !dlogits)
    throw ArgumentError("cross_entropy: one of loss, lse and dlogits must be given");
  auto leading = logits.shape();
  leading.pop_back();
  const auto rows = logits.rows();
  targets.expect({DType::s32, DType::s64});
  targets.expect_shape(leading, "logits without the last dimension"), targets.expect_contiguous();
  kernels::CrossEntropy c;
  c.logits = logits.view(s), c.logits_layout.pitch = rows.pitch, c.rows = rows.rows, c.cols = rows.cols;
  c.targets = targets.view(s);
  c.ignore_index = o.ignore_index, c.label_smoothing = o.label_smoothing, c.z_loss = o.z_loss;
  const auto row_output = [&](const cgp_tensor* given, const char* name, kernels::View& view) {
    if (!given) return;
    const Tensor t(given, "cross_entropy", name);
    t.expect({DType::f32}), t.expect_shape(leading, "targets"), t.expect_contiguous();
    t.expect_apart(logits), t.expect_apart(targets);
    view = t.view(s, true);
  };
  row_output(loss, "loss", c.loss), row_output(lse, "lse", c.lse);
  if (dlogits) {
    const Tensor t(dlogits, "cross_entropy", "dlogits");
    t.expect_shape(logits.shape(), "logits"), t.expect_apart(logits, true), t.expect_apart(targets);
    c.dlogits = t.view(s, true), c.dlogits_layout.pitch = t.rows().pitch;
  }
  if (o.scale) {
    const Tensor t(o.scale, "cross_entropy", "scale");
    t.expect({DType::f32}), expect_one(t);
    c.scale = t.view(s);
  }
  if (o.error_flag) {
    const Tensor t(o.error_flag, "cross_entropy", "error_flag");
    t.expect({DType::u32, DType::s32}), expect_one(t);
    c.error_flag = t.view(s, true), c.error_flag.dtype = DType::u32;
  }
  kernels::cross_entropy(s.stream, c);
}

void softmax(cgp_stream& s, void (*kernel)(runtime::Stream&, const kernels::Softmax&), const Tensor& in,
             const Tensor* dy, const Tensor& out) {
  in.expect_rank(1, CGP_MAX_RANK), in.expect({DType::f32, DType::f16, DType::bf16});
  const auto rows = in.rows();
  kernels::Softmax r;
  r.in = in.view(s), r.in_layout.pitch = rows.pitch, r.rows = rows.rows, r.cols = rows.cols;
  const auto shape = in.shape();
  if (dy) {
    dy->expect_shape(shape, "y");
    r.dy = dy->view(s), r.dy_layout.pitch = dy->rows().pitch;
    out.expect_apart(*dy);
  }
  out.expect_shape(shape, dy ? "y" : "x"), out.expect_apart(in, !dy);
  r.out = out.view(s, true), r.out_layout.pitch = out.rows().pitch;
  kernel(s.stream, r);
}

}  // namespace
}  // namespace cgp::capi

using cgp::capi::guarded;
using cgp::capi::require;
using cgp::capi::Tensor;

cgp_status cgp_cross_entropy(cgp_stream* s, const cgp_tensor* logits, const cgp_tensor* targets,
                             const cgp_cross_entropy_options* options, const cgp_tensor* loss,
                             const cgp_tensor* lse, const cgp_tensor* dlogits) {
  return guarded([&] {
    require(s, "s");
    cgp_cross_entropy_options defaults{};
    defaults.size = sizeof defaults, defaults.ignore_index = -100;
    cgp::capi::cross_entropy(*s, Tensor(logits, "cross_entropy", "logits"),
                             Tensor(targets, "cross_entropy", "targets"),
                             cgp::capi::known(options, defaults, "cross_entropy"), loss, lse, dlogits);
  });
}
cgp_status cgp_count_targets(cgp_stream* s, const cgp_tensor* targets, int64_t ignore_index,
                             const cgp_tensor* scale) {
  return guarded([&] {
    require(s, "s");
    const Tensor t(targets, "count_targets", "targets"), out(scale, "count_targets", "scale");
    t.expect_contiguous(), cgp::capi::expect_one(out);
    cgp::kernels::count_targets(s->stream, t.view(*s), ignore_index, out.view(*s, true));
  });
}
cgp_status cgp_mean_loss(cgp_stream* s, const cgp_tensor* losses, const cgp_tensor* targets,
                         int64_t ignore_index, const cgp_tensor* scale, const cgp_tensor* loss) {
  return guarded([&] {
    require(s, "s");
    const char* op = "mean_loss";
    const Tensor in(losses, op, "losses"), out(loss, op, "loss");
    in.expect({cgp::DType::f32}), in.expect_contiguous();
    out.expect({cgp::DType::f32}), cgp::capi::expect_one(out), out.expect_apart(in);
    cgp::kernels::View counted, factor;
    if (scale) {
      const Tensor t(targets, op, "targets"), f(scale, op, "scale");
      t.expect_shape(in.shape(), "losses"), t.expect_contiguous(), cgp::capi::expect_one(f),
          f.expect_apart(in);
      counted = t.view(*s), factor = f.view(*s, true);
    }
    cgp::kernels::mean_loss(s->stream, in.view(*s), counted, ignore_index, factor, out.view(*s, true));
  });
}
cgp_status cgp_softmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    cgp::capi::softmax(*s, cgp::kernels::softmax, Tensor(x, "softmax", "x"), nullptr,
                       Tensor(y, "softmax", "y"));
  });
}
cgp_status cgp_log_softmax(cgp_stream* s, const cgp_tensor* x, const cgp_tensor* y) {
  return guarded([&] {
    require(s, "s");
    cgp::capi::softmax(*s, cgp::kernels::log_softmax, Tensor(x, "log_softmax", "x"), nullptr,
                       Tensor(y, "log_softmax", "y"));
  });
}
cgp_status cgp_softmax_backward(cgp_stream* s, const cgp_tensor* y, const cgp_tensor* dy,
                                const cgp_tensor* dx) {
  return guarded([&] {
    require(s, "s");
    const Tensor gradient(dy, "softmax_backward", "dy");
    cgp::capi::softmax(*s, cgp::kernels::softmax_backward, Tensor(y, "softmax_backward", "y"), &gradient,
                       Tensor(dx, "softmax_backward", "dx"));
  });
}
cgp_status cgp_log_softmax_backward(cgp_stream* s, const cgp_tensor* y, const cgp_tensor* dy,
                                    const cgp_tensor* dx) {
  return guarded([&] {
    require(s, "s");
    const Tensor gradient(dy, "log_softmax_backward", "dy");
    cgp::capi::softmax(*s, cgp::kernels::log_softmax_backward, Tensor(y, "log_softmax_backward", "y"),
                       &gradient, Tensor(dx, "log_softmax_backward", "dx"));
  });
}
