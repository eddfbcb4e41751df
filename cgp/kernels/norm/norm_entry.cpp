// SPDX-License-Identifier: Apache-2.0
// The norms in the catalogue.
#include "cgp/base/error.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/norm/norm_ref.h"

namespace cgp::kernels {
namespace {

using row::Expected, row::TensorCase;

std::vector<double> rounded_sum(const HostArray& x, const HostArray* residual) {
  if (!residual) return x.as_doubles();
  HostArray h(x.dtype, x.shape);
  for (std::uint64_t i = 0; i < x.size(); ++i) h.set(i, double(float(x.at(i)) + float(residual->at(i))));
  return h.as_doubles();
}

std::unique_ptr<Case> prepare_forward(const runtime::Device& d, const Options& o,
                                      const std::vector<NamedArray>& given, std::uint64_t seed, bool layer) {
  const auto s = row::row_shape(o, given, "x");
  auto c = std::make_unique<TensorCase>(d);
  const std::vector<std::uint64_t> shape{s.rows, s.cols}, along{s.cols};
  const bool residual = o.flag("residual"), weight = o.flag("weight");
  Norm n;
  n.rows = s.rows, n.cols = s.cols, n.eps = float(o.real("eps")), n.weight_offset = float(o.real("offset"));
  n.x = c->input("x", input_or_random(given, "x", s.type, shape, seed));
  if (residual)
    n.residual = c->input("residual", input_or_random(given, "residual", s.type, shape, seed + 1));
  if (weight) n.weight = c->input("weight", input_or_random(given, "weight", s.type, along, seed + 2));
  if (weight && layer) n.bias = c->input("bias", input_or_random(given, "bias", s.type, along, seed + 3));
  n.y = c->output("y", s.type, shape);
  if (residual) n.sum = c->output("sum", s.type, shape);
  if (layer) n.mean = c->output("mean", DType::f32, {s.rows});
  n.rstd = c->output("rstd", DType::f32, {s.rows});
  const auto steps = norm_steps(n, layer, d.info());
  c->runs(steps.variants, steps.why);
  c->flops = double(s.rows * s.cols) * (layer ? 8 : 4);
  c->run = [n, layer](runtime::Stream& stream) { layer ? layer_norm(stream, n) : rms_norm(stream, n); };
  c->oracle = [=](const TensorCase& t) {
    auto h = rounded_sum(t.host("x"), residual ? &t.host("residual") : nullptr);
    const auto vector = [&](const char* name, bool have) {
      return have ? t.host(name).as_doubles() : std::vector<double>();
    };
    auto want = norm_ref(std::move(h), vector("weight", weight), vector("bias", weight && layer), s.rows,
                         s.cols, layer, n.eps, n.weight_offset, s.type);
    std::vector<Expected> all{{"y", want.y, want.y_tolerance}, {"rstd", want.rstd, want.rstd_tolerance}};
    if (layer) all.push_back({"mean", want.mean, want.mean_tolerance});
    if (residual) all.push_back({"sum", want.h, std::vector<double>(want.h.size(), 0.0)});
    return all;
  };
  return c;
}

std::unique_ptr<Case> prepare_backward(const runtime::Device& d, const Options& o,
                                       const std::vector<NamedArray>& given, std::uint64_t seed, bool layer) {
  const auto s = row::row_shape(o, given, "x");
  auto c = std::make_unique<TensorCase>(d);
  const std::vector<std::uint64_t> shape{s.rows, s.cols}, along{s.cols};
  const bool weight = o.flag("weight"), dsum = o.flag("residual");
  NormBackward n;
  n.rows = s.rows, n.cols = s.cols, n.weight_offset = float(o.real("offset"));
  auto x = input_or_random(given, "x", s.type, shape, seed);
  const auto forward = norm_ref(x.as_doubles(), {}, {}, s.rows, s.cols, layer, o.real("eps"), 0, s.type);
  const auto stored = [&](const std::vector<double>& v) {
    HostArray a(DType::f32, {s.rows});
    for (std::uint64_t r = 0; r < s.rows; ++r) a.set(r, v[r]);
    return a;
  };
  n.rstd = c->input("rstd", stored(forward.rstd));
  if (layer) n.mean = c->input("mean", stored(forward.mean));
  n.x = c->input("x", std::move(x));
  n.dy = c->input("dy", input_or_random(given, "dy", s.type, shape, seed + 1));
  if (weight) n.weight = c->input("weight", input_or_random(given, "weight", s.type, along, seed + 2));
  if (dsum) n.dsum = c->input("dsum", input_or_random(given, "dsum", s.type, shape, seed + 3));
  n.dx = c->output("dx", s.type, shape);
  if (weight) n.dweight = c->output("dweight", s.type, along);
  if (weight && layer) n.dbias = c->output("dbias", s.type, along);
  n.workspace = c->workspace(DType::f32, norm_backward_workspace(n, layer, d.info()));
  const auto steps = norm_backward_steps(n, layer, d.info());
  c->runs(steps.variants, steps.why);
  c->flops = double(s.rows * s.cols) * 12;
  c->run = [n, layer](runtime::Stream& stream) {
    layer ? layer_norm_backward(stream, n) : rms_norm_backward(stream, n);
  };
  c->oracle = [=](const TensorCase& t) {
    const auto vector = [&](const char* name, bool have) {
      return have ? t.host(name).as_doubles() : std::vector<double>();
    };
    const auto want = norm_backward_ref(vector("x", true), vector("dy", true), vector("dsum", dsum),
                                        vector("weight", weight), vector("mean", layer), vector("rstd", true),
                                        s.rows, s.cols, n.weight_offset, s.type, s.type);
    std::vector<Expected> all{{"dx", want.dx, want.dx_tolerance}};
    if (weight) all.push_back({"dweight", want.dweight, want.dweight_tolerance});
    if (weight && layer) all.push_back({"dbias", want.dbias, want.dbias_tolerance});
    return all;
  };
  return c;
}

std::vector<OptionInfo> options() {
  return {{"dtype", "bf16", "f32, f16 or bf16"},
          {"rows", "1024", "rows"},
          {"cols", "4096", "columns"},
          {"weight", "1", "with weight (LayerNorm: and bias)"},
          {"residual", "0", "forward: add a residual and store the sum; backward: add the sum's gradient"},
          {"eps", "1e-6", "added to the mean square"},
          {"offset", "0", "added to the weight"}};
}

// Every config of the plain form in bf16; the other types and forms with a few.
std::vector<Variant> ships(std::string_view arch, bool layer, bool backward) {
  std::vector<Variant> all;
  runtime::DeviceInfo device;
  const auto add = [&](DType t, bool extra, const row::RowConfig& config) {
    if (backward) {
      NormBackward n;
      n.x = n.dy = n.weight = View::stand_in(t), n.dx = n.dweight = View::stand_in(t),
      n.rstd = View::stand_in(DType::f32);
      if (layer) n.mean = View::stand_in(DType::f32), n.dbias = View::stand_in(t);
      if (extra) n.dsum = View::stand_in(t);
      n.rows = n.cols = 1, n.config = config;
      for (auto& v : norm_backward_steps(n, layer, device).variants) all.push_back(std::move(v));
    } else {
      Norm n;
      n.x = n.weight = View::stand_in(t), n.y = View::stand_in(t), n.rstd = View::stand_in(DType::f32);
      if (layer) n.bias = View::stand_in(t);
      if (extra) n.residual = View::stand_in(t), n.sum = View::stand_in(t);
      n.rows = n.cols = 1, n.config = config;
      for (auto& v : norm_steps(n, layer, device).variants) all.push_back(std::move(v));
    }
  };
  for (DType t : {DType::bf16, DType::f16, DType::f32})
    for (bool extra : {false, true}) {
      row::RowNeeds n;
      n.inputs.assign(std::size_t(1 + backward + extra), t), n.outputs = {t}, n.columns = {t};
      n.accumulators = backward ? 1 + layer : 0;
      if (layer && !backward) n.columns.push_back(t), n.fold_size = 3;  // as norm.cpp asks for them
      const auto configs = row::shipped_configs(n, arch);
      const std::size_t step = row::image_step(arch, t, extra);
      for (std::size_t i = 0; i < configs.size(); i += step) add(t, extra, configs[i]);
    }
  return all;
}

KernelEntry entry(std::string name, std::string summary, bool layer, bool backward) {
  KernelEntry e;
  e.name = std::move(name), e.summary = std::move(summary), e.options = options();
  e.inputs = backward ? std::vector<std::string>{"x", "dy", "weight", "dsum"}
             : layer  ? std::vector<std::string>{"x", "residual", "weight", "bias"}
                      : std::vector<std::string>{"x", "residual", "weight"};
  e.images = [=](std::string_view arch) { return images(ships(arch, layer, backward), arch); };
  e.prepare = [=](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                  std::uint64_t seed) {
    return backward ? prepare_backward(d, o, given, seed, layer) : prepare_forward(d, o, given, seed, layer);
  };
  return e;
}

}  // namespace

KernelEntry rms_norm_entry() {
  return entry("rms_norm", "y = x * rstd * weight, optionally of x + residual", false, false);
}
KernelEntry layer_norm_entry() {
  return entry("layer_norm", "y = (x - mean) * rstd * weight + bias, optionally of x + residual", true,
               false);
}
KernelEntry rms_norm_backward_entry() {
  return entry("rms_norm_backward", "gradients of RMSNorm: x and weight", false, true);
}
KernelEntry layer_norm_backward_entry() {
  return entry("layer_norm_backward", "gradients of LayerNorm: x, weight and bias", true, true);
}

}  // namespace cgp::kernels
