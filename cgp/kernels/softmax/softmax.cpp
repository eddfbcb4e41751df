// SPDX-License-Identifier: Apache-2.0
// Softmax, log-softmax and the gradients of both. Skeletons and selection: row/row_kernel.h, row/row_plan.h.
//   memory   inputs read once, the output written once (rows beyond registers: inputs twice)
#include "cgp/kernels/softmax/softmax.h"

#include <cmath>
#include <limits>

#include "cgp/base/text.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/softmax/softmax_ref.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats, row::OutRows, row::Stat, row::Values;

constexpr std::string_view kNames[] = {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"};

bool is_forward(SoftmaxOp op) { return op == SoftmaxOp::log_softmax || op == SoftmaxOp::softmax; }

struct SoftmaxConfig {
  row::RowConfig row{};
  SoftmaxOp op{};  ///< the family of the name
  DType in{}, dy{}, out{};
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("in", "", c.in);
    v.type("dy", "dy_", c.dy, c.in);
    v.type("out", "out_", c.out, c.in);
    row::RowConfig::visit(c.row, v);
  }
};

class Rows : public row::RowOp {
 public:
  Rows(SoftmaxOp op, bool persistent, OutRows out) : op_(op), persistent_(persistent), out_(std::move(out)) {
    fold = is_forward(op) ? static_cast<const row::Fold*>(&max_sum_) : &sum_;
  }
  Stat part(Kernel&, const Values& v) override {
    Floats all;
    if (is_forward(op_)) {
      for (int j = 0; j < v.count(); ++j) row::append(all, v.at(0, j));
      const auto m = row::largest(all), base = row::reference(m);
      Floats terms;
      for (int j = 0; j < v.count(); ++j)
        for (const auto& x : v.at(0, j, 1)) terms.push_back(row::exp_minus(x, base));
      return {m, row::sum(terms)};
    }
    for (int j = 0; j < v.count(); ++j) {
      const auto dy = v.at(1, j);
      if (op_ == SoftmaxOp::log_softmax_backward) {
        row::append(all, dy);
        continue;
      }
      const auto y = v.at(0, j);
      for (std::size_t e = 0; e < y.size(); ++e) all.push_back(y[e] * dy[e]);
    }
    return {row::sum(all)};
  }
  std::vector<Floats> finish(Kernel&, const Values& v, const Stat& s, std::vector<Floats>) override {
    const auto to = v.target(out_);
    // The branch of a rounded reciprocal costs a spilled register where there are 64; persistent blocks have
    // 128.
    const auto whole = op_ == SoftmaxOp::log_softmax ? row::natural_log(s[1])
                       : op_ != SoftmaxOp::softmax   ? s[0]
                       : persistent_                 ? rcp<rn>(s[1])
                                                     : rcp<approx, ftz>(s[1]);
    for (int j = 0; j < v.count(); ++j) {
      const auto in = v.at(0, j, is_forward(op_) ? 2 : 1);
      Floats dy, out;
      if (!is_forward(op_)) dy = v.at(1, j, 1);
      for (std::size_t e = 0; e < in.size(); ++e) {
        if (op_ == SoftmaxOp::log_softmax)
          out.push_back(in[e] - s[0] - whole);
        else if (op_ == SoftmaxOp::softmax)
          out.push_back(row::exp_minus(in[e], s[0]) * whole);
        else if (op_ == SoftmaxOp::softmax_backward)
          out.push_back(in[e] * (dy[e] - s[0]));
        else
          out.push_back(fma(row::exp_minus(in[e], Val<f32>(0.f)), -s[0], dy[e]));
      }
      to.store(j, out);
    }
    return {};
  }

 private:
  SoftmaxOp op_;
  bool persistent_;
  row::MaxSum max_sum_;
  row::SumFold sum_{1};
  OutRows out_;
};

template <template <class> class V>
struct SoftmaxArgs {
  V<In<b8>> in, dy;
  V<Out<b8>> out;
  V<u64> rows, cols;
  V<u64> in_pitch, dy_pitch, out_pitch;  ///< in elements
};

void rows_kernel(Kernel& k, SoftmaxConfig b, SoftmaxArgs<DeviceArg> p) {
  Rows op(b.op, b.row.persistent, OutRows{p.out, p.out_pitch, b.out});
  const bool forward = is_forward(b.op);
  op.inputs.push_back({p.in, p.in_pitch, b.in, forward ? -std::numeric_limits<float>::infinity() : 0.f});
  if (!forward) op.inputs.push_back({p.dy, p.dy_pitch, b.dy});
  row::run_rows(k, b.row, p.rows, p.cols, op);
}

row::RowNeeds needs(const SoftmaxConfig& b) {
  row::RowNeeds n;
  const bool forward = is_forward(b.op);
  n.inputs = {b.in}, n.outputs = {b.out}, n.fold_size = forward ? 2 : 1;
  n.expensive = b.op == SoftmaxOp::softmax;
  if (!forward) n.inputs.push_back(b.dy);
  return n;
}

struct Problem {
  Softmax r;
  SoftmaxConfig build;
  std::string why;
};

Problem checked(SoftmaxOp op, Softmax r, const runtime::DeviceInfo& device) {
  const row::Checker c{kNames[int(op)]};
  const bool forward = is_forward(op);
  const char *in = forward ? "x" : "y", *out = forward ? "y" : "dx";
  c.present(in, r.in, row::kFloats, false), c.present(out, r.out, row::kFloats, true);
  r.in_layout = c.rows(in, r.in, r.rows, r.cols, r.in_layout);
  r.out_layout = c.rows(out, r.out, r.rows, r.cols, r.out_layout);
  if (forward && r.dy.given) c.fail("dy", "is not part of the forward pass", "it was given", "leave it out");
  if (!forward) {
    c.present("dy", r.dy, row::kFloats, false);
    r.dy_layout = c.rows("dy", r.dy, r.rows, r.cols, r.dy_layout);
  }
  if (std::max({r.in_layout.inner, r.dy_layout.inner, r.out_layout.inner}) > 1)
    c.fail(in, "cannot have its rows in groups", "inner > 1");
  SoftmaxConfig b{{}, op, r.in.dtype, forward ? r.in.dtype : r.dy.dtype, r.out.dtype};
  const auto need = needs(b);
  const int e = row::widest_access(need);
  const auto fit = row::fit(e, r.cols, {{r.in, r.in_layout}, {r.out, r.out_layout}, {r.dy, r.dy_layout}});
  auto plan =
      r.config ? row::RowPlan{*r.config, "as asked"} : row::plan_rows(need, r.rows, r.cols, fit, device);
  b.row = plan.config;
  return {std::move(r), b, std::move(plan.why)};
}

Variant make(const SoftmaxConfig& c) {
  return config_variant(kNames[int(c.op)], c, row::min_sm(needs(c), c.row), rows_kernel);
}

void launch(SoftmaxOp op, runtime::Stream& s, const Softmax& given) {
  const auto p = checked(op, given, s.device().info());
  const auto& r = p.r;
  if (r.rows == 0 || r.cols == 0) return;
  const auto fn = load(s.device(), make(p.build));
  launch::launch_kernel(s, fn, row::grid(fn, p.build.row, needs(p.build), r.rows),
                        SoftmaxArgs<launch::HostArg>{.in = r.in.arg(),
                                                     .dy = r.dy.arg(),
                                                     .out = r.out.arg(),
                                                     .rows = r.rows,
                                                     .cols = r.cols,
                                                     .in_pitch = r.in_layout.pitch,
                                                     .dy_pitch = r.dy_layout.pitch,
                                                     .out_pitch = r.out_layout.pitch});
}

}  // namespace

void softmax(runtime::Stream& s, const Softmax& r) { launch(SoftmaxOp::softmax, s, r); }
void log_softmax(runtime::Stream& s, const Softmax& r) { launch(SoftmaxOp::log_softmax, s, r); }
void softmax_backward(runtime::Stream& s, const Softmax& r) { launch(SoftmaxOp::softmax_backward, s, r); }
void log_softmax_backward(runtime::Stream& s, const Softmax& r) {
  launch(SoftmaxOp::log_softmax_backward, s, r);
}
Variant softmax_variant(SoftmaxOp op, const Softmax& r, const runtime::DeviceInfo& device, std::string* why) {
  auto p = checked(op, r, device);
  if (why) *why = std::move(p.why);
  return make(p.build);
}

// ---------------------------------------------------------------- catalogue
namespace {

// In double, with the error that f32 arithmetic may make.
row::Expected oracle(SoftmaxOp op, const HostArray& in, const HostArray* dy, std::uint64_t rows,
                     std::uint64_t cols) {
  row::Expected e{is_forward(op) ? "y" : "dx", {}, {}};
  if (op == SoftmaxOp::softmax) {
    e.want = softmax_ref(in, rows, cols);
    std::vector<double> span(rows, 0);  // of the exponents in base 2
    for (std::uint64_t i = 0; i < rows * cols; ++i)
      if (e.want[i] > 0) span[i / cols] = std::max(span[i / cols], -std::log2(e.want[i]));
    for (std::uint64_t i = 0; i < rows * cols; ++i)
      e.tolerance.push_back(softmax_tolerance(in.dtype, e.want[i], span[i / cols], cols));
    return e;
  }
  const double u = unit_roundoff(DType::f32), c = 16 + double(cols) / 512 + std::log2(double(cols) + 1);
  const double store = unit_roundoff(in.dtype), tiny = in.dtype == DType::f16 ? 0x1p-24 : 0x1p-126;
  for (std::uint64_t r = 0; r < rows; ++r) {
    double m = -std::numeric_limits<double>::infinity(), sum = 0, terms = 0;
    const auto x = [&](std::uint64_t i) { return in.at(r * cols + i); };
    for (std::uint64_t i = 0; i < cols; ++i) m = std::fmax(m, x(i));
    for (std::uint64_t i = 0; i < cols; ++i) {
      const double d = dy ? dy->at(r * cols + i) : 0;
      const double t = op == SoftmaxOp::log_softmax        ? std::exp(x(i) - m)
                       : op == SoftmaxOp::softmax_backward ? d * x(i)
                                                           : d;
      sum += t, terms += std::fabs(t);
    }
    for (std::uint64_t i = 0; i < cols; ++i) {
      const double d = dy ? dy->at(r * cols + i) : 0;
      double want = 0, error = 0;
      if (op == SoftmaxOp::log_softmax) {
        want = x(i) - m - std::log(sum);
        error = 2 * u * (c + std::fabs(x(i) - m) + std::log(sum));
      } else if (op == SoftmaxOp::softmax_backward) {
        want = x(i) * (d - sum);
        error = std::fabs(x(i)) * (c * u * terms + 4 * u * (std::fabs(d) + std::fabs(sum)));
      } else {
        const double y = std::exp(x(i));
        want = d - y * sum;
        error = y * (c * u * terms + (8 + 4 * std::fabs(x(i))) * u * std::fabs(sum)) + 4 * u * std::fabs(d);
      }
      e.want.push_back(want);
      e.tolerance.push_back(error + (std::fabs(want) + error) * store + tiny);
    }
  }
  return e;
}

KernelEntry entry(SoftmaxOp op, std::string summary) {
  const bool forward = is_forward(op);
  KernelEntry e;
  e.name = kNames[int(op)], e.summary = std::move(summary);
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"}, {"rows", "1024", "rows"}, {"cols", "4096", "columns"}};
  e.inputs = forward ? std::vector<std::string>{"x"} : std::vector<std::string>{"y", "dy"};
  e.images = [op, forward](std::string_view arch) {
    std::vector<Variant> all;
    runtime::DeviceInfo device;
    for (DType t : {DType::bf16, DType::f16, DType::f32}) {
      row::RowNeeds n;
      n.inputs.assign(forward ? 1 : 2, t), n.outputs = {t}, n.fold_size = forward ? 2 : 1;
      n.expensive = op == SoftmaxOp::softmax;
      const auto configs = row::shipped_configs(n, arch);
      const auto step = row::image_step(arch, t, op == SoftmaxOp::log_softmax_backward);
      for (std::size_t i = 0; i < configs.size(); i += step) {
        Softmax r;
        r.in = r.out = View::stand_in(t);
        if (!forward) r.dy = r.in;
        r.rows = r.cols = 1, r.config = configs[i];
        all.push_back(softmax_variant(op, r, device, nullptr));
      }
    }
    return images(all, arch);
  };
  e.prepare = [op, forward](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                            std::uint64_t seed) -> std::unique_ptr<Case> {
    const char* first = forward ? "x" : "y";
    const auto [type, rows, cols] = row::row_shape(o, given, first);
    auto c = std::make_unique<row::TensorCase>(d);
    Softmax r;
    r.rows = rows, r.cols = cols;
    r.in = c->input(first, input_or_random(given, first, type, {rows, cols}, seed));
    if (!forward) r.dy = c->input("dy", input_or_random(given, "dy", type, {rows, cols}, seed + 1));
    r.out = c->output(forward ? "y" : "dx", type, {rows, cols});
    std::string why;
    const auto v = softmax_variant(op, r, d.info(), &why);
    c->runs({v}, why);
    c->flops = double(rows * cols) * 5;
    c->run = [op, r](runtime::Stream& s) { launch(op, s, r); };
    c->oracle = [=](const row::TensorCase& t) {
      return std::vector<row::Expected>{
          oracle(op, t.host(first), forward ? nullptr : &t.host("dy"), rows, cols)};
    };
    return c;
  };
  return e;
}

}  // namespace

KernelEntry softmax_entry() { return entry(SoftmaxOp::softmax, "y[r, :] = softmax(x[r, :]), f32 inside"); }
KernelEntry log_softmax_entry() { return entry(SoftmaxOp::log_softmax, "y[r, :] = log softmax(x[r, :])"); }
KernelEntry softmax_backward_entry() {
  return entry(SoftmaxOp::softmax_backward, "dx = y (dy - sum dy y), of the softmax y");
}
KernelEntry log_softmax_backward_entry() {
  return entry(SoftmaxOp::log_softmax_backward, "dx = dy - exp(y) sum dy, of the log-softmax y");
}

}  // namespace cgp::kernels
