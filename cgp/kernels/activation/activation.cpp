// SPDX-License-Identifier: Apache-2.0
// Activations on the element skeleton (row/element_kernel.h).
#include "cgp/kernels/activation/activation.h"

#include <bit>

#include "cgp/base/text.h"

#include "cgp/kernels/activation/activation_code.h"
#include "cgp/kernels/activation/activation_ref.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats;

constexpr float kLog2e = 1.4426950408889634f, kRoot2OverPi = 0.7978845608028654f, kCubic = 0.044715f;

Val<f32> sigmoid(const Val<f32>& x) { return rcp<approx, ftz>(ex2<approx, ftz>(x * -kLog2e) + 1.f); }
Val<f32> clamped(const Val<f32>& x, float most) { return min(max(x, Val<f32>(-most)), Val<f32>(most)); }
// 2 u of the tanh form.
Val<f32> tanh_argument(const Val<f32>& x) {
  return x * fma(x * x, Val<f32>(2 * kRoot2OverPi * kCubic), Val<f32>(2 * kRoot2OverPi));
}

// The normal distribution's Phi(x). With z = |x| / sqrt(2) and t = 1 / (1 + 0.3975 z), ln(erfc(z) / t) + z^2
// is a polynomial of degree 8 in t, fitted so that its largest error is least where f32 allows least (2e-7 at
// 0, 4e-7 at |x| = 2); all in powers of two.
Val<f32> phi(const Val<f32>& x) {
  constexpr double c[] = {-1.4949362060780975, 1.0006788513711125,  0.4091423916081526,
                          0.2679579709598733,  -0.3604642455101836, 0.8884591220548095,
                          -1.3854298146840485, 0.8687523015543874,  -0.19416040700507864};
  constexpr double log2e = 1.4426950408889634;
  const auto z = abs(x) * 0.84932180028801905f;  // |x| sqrt(log2(e) / 2)
  const auto t = rcp<approx, ftz>(fma(abs(x), Val<f32>(0.28107494552164267f), Val<f32>(1.f)));
  const auto power = [&](int i) { return Val<f32>(float(c[i] * log2e - (i == 0))); };  // half of it all
  std::vector<Val<f32>> p{fma(power(8), t, power(7))};
  for (int i = 6; i >= 0; --i) p.push_back(fma(p.back(), t, power(i)));
  const auto tail = t * ex2<approx, ftz>(fma(-z, z, p.back()));
  return select(x > 0.f, Val<f32>(1.f) - tail, tail);
}

}  // namespace

Val<f32> activation_code(Activation a, const Val<f32>& x) {
  switch (a) {
    case Activation::identity:
      return x;
    case Activation::relu:
      return select(x < 0.f, Val<f32>(0.f), x);
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu:
      return x * phi(x);
    case Activation::gelu_tanh:
      return x * sigmoid(tanh_argument(x));
  }
  return x;
}

namespace {

// The second factor is clamped where the first is 0 or 1, so that infinities do not make NaNs.
Val<f32> slope(Activation a, const Val<f32>& x) {
  switch (a) {
    case Activation::identity:
      return Val<f32>(1.f);
    case Activation::relu:
      return select(x > 0.f, Val<f32>(1.f), select(x <= 0.f, Val<f32>(0.f), x));
    case Activation::silu: {
      const auto s = sigmoid(x);
      return fma(clamped(x, 100.f) * s, Val<f32>(1.f) - s, s);
    }
    case Activation::gelu: {
      const auto t = clamped(x, 20.f);
      return fma(t * 0.3989422804014327f, ex2<approx, ftz>(t * t * (-0.5f * kLog2e)), phi(x));
    }
    case Activation::gelu_tanh: {
      const auto t = clamped(x, 20.f), s = sigmoid(tanh_argument(x));
      const auto inner = fma(t * t, Val<f32>(6 * kRoot2OverPi * kCubic), Val<f32>(2 * kRoot2OverPi));
      return fma(t * s * (Val<f32>(1.f) - s), inner, s);
    }
  }
  return x;
}

class Op : public row::ElementOp {
 public:
  Op(Activation a, bool gated, bool backward, bool scaled)
      : a_(a), gated_(gated), backward_(backward), scaled_(scaled) {}
  std::vector<Floats> apply(Kernel&, const std::vector<Floats>& in, const Floats& column, const Val<u64>&,
                            const std::vector<Val<u64>>& parameters) const override {
    std::vector<Floats> out(gated_ && backward_ ? 2 : 1);
    for (std::size_t e = 0; e < in[0].size(); ++e) {
      const auto x = column.empty() ? in[0][e] : in[0][e] + column[e];
      if (gated_ && backward_) {
        out[0].push_back(in[2][e] * in[1][e] * slope(a_, x));
        out[1].push_back(in[2][e] * activation_code(a_, x));
      } else if (gated_) {
        out[0].push_back(activation_code(a_, x) * in[1][e]);
      } else {
        const auto y = backward_ ? in[1][e] * slope(a_, x) : activation_code(a_, x);
        out[0].push_back(scaled_ ? y * bits<f32>(to<u32>(parameters[0])) : y);
      }
    }
    return out;
  }

 private:
  Activation a_;
  bool gated_, backward_, scaled_;
};

row::ElementProblem problem(std::string_view name, Activation a, bool gated, bool backward,
                            std::uint64_t rows, std::uint64_t cols, float scale = 1) {
  row::ElementProblem p;
  p.name = name, p.op = std::make_shared<Op>(a, gated, backward, scale != 1);
  p.form = text::cat(cgp::kernels::name(a), scale != 1 ? "_scaled" : "");
  p.parameters = {std::bit_cast<std::uint32_t>(scale)};
  p.rows = rows, p.cols = cols, p.expensive = a == Activation::gelu;
  return p;
}
row::ElementProblem problem(const Activate& a) {
  auto p = problem("activation", a.activation, false, false, a.rows, a.cols, a.scale);
  p.inputs = {{"x", a.x}}, p.outputs = {{"y", a.y}}, p.column = a.bias;
  p.input_layouts = {a.x_layout}, p.output_layouts = {a.y_layout};
  return p;
}
row::ElementProblem problem(const ActivateBackward& a) {
  auto p = problem("activation_backward", a.activation, false, true, a.rows, a.cols);
  p.inputs = {{"x", a.x}, {"dy", a.dy}}, p.outputs = {{"dx", a.dx}}, p.column = a.bias;
  p.input_layouts = {a.x_layout, a.dy_layout}, p.output_layouts = {a.dx_layout};
  return p;
}
row::ElementProblem problem(const Gate& g) {
  auto p = problem("gated", g.activation, true, false, g.rows, g.cols);
  p.inputs = {{"gate", g.gate}, {"up", g.up}}, p.outputs = {{"out", g.out}};
  p.input_layouts = {g.gate_layout, g.up_layout}, p.output_layouts = {g.out_layout};
  return p;
}
row::ElementProblem problem(const GateBackward& g) {
  auto p = problem("gated_backward", g.activation, true, true, g.rows, g.cols);
  p.inputs = {{"gate", g.gate}, {"up", g.up}, {"dout", g.dout}},
  p.outputs = {{"dgate", g.dgate}, {"dup", g.dup}};
  p.input_layouts = {g.gate_layout, g.up_layout, g.dout_layout},
  p.output_layouts = {g.dgate_layout, g.dup_layout};
  return p;
}

}  // namespace

void activate(runtime::Stream& s, const Activate& a) { row::run_elements(s, problem(a)); }
void activate_backward(runtime::Stream& s, const ActivateBackward& a) { row::run_elements(s, problem(a)); }
void gated(runtime::Stream& s, const Gate& g) { row::run_elements(s, problem(g)); }
void gated_backward(runtime::Stream& s, const GateBackward& g) { row::run_elements(s, problem(g)); }

// ---------------------------------------------------------------- catalogue
namespace {

using row::Expected, row::TensorCase;

constexpr std::string_view kNames[] = {"identity", "relu", "silu", "gelu", "gelu_tanh"};
Activation parse(const Options& o) {
  const auto s = o.choice("f", kNames);
  for (int i = 0; i < 5; ++i)
    if (kNames[i] == s) return Activation(i);
  return Activation::silu;
}

// Fills a problem of one of the four forms with views made by `in` and `out`.
template <class MakeIn, class MakeOut>
row::ElementProblem build(Activation a, bool is_gated, bool backward, bool bias, float scale,
                          std::uint64_t rows, std::uint64_t cols, const MakeIn& in, const MakeOut& out) {
  if (is_gated && backward) {
    GateBackward g;
    g.activation = a, g.rows = rows, g.cols = cols;
    g.gate = in("gate", false), g.up = in("up", false), g.dout = in("dout", false);
    g.dgate = out("dgate"), g.dup = out("dup");
    return problem(g);
  }
  if (is_gated) {
    Gate g;
    g.activation = a, g.rows = rows, g.cols = cols;
    g.gate = in("gate", false), g.up = in("up", false), g.out = out("out");
    return problem(g);
  }
  if (backward) {
    ActivateBackward b;
    b.activation = a, b.rows = rows, b.cols = cols;
    b.x = in("x", false), b.dy = in("dy", false), b.dx = out("dx");
    if (bias) b.bias = in("bias", true);
    return problem(b);
  }
  Activate f;
  f.activation = a, f.scale = scale, f.rows = rows, f.cols = cols, f.x = in("x", false), f.y = out("y");
  if (bias) f.bias = in("bias", true);
  return problem(f);
}

KernelEntry entry(std::string name, std::string summary, bool is_gated, bool backward) {
  KernelEntry e;
  e.name = std::move(name), e.summary = std::move(summary);
  e.options = {{"f", "silu", "identity, relu, silu, gelu or gelu_tanh"},
               {"dtype", "bf16", "f32, f16 or bf16"},
               {"rows", "1024", "rows"},
               {"cols", "4096", "columns"}};
  if (!is_gated) e.options.push_back({"bias", "0", "with a bias"});
  const bool scaled = !is_gated && !backward;
  if (scaled) e.options.push_back({"scale", "1", "of the result"});
  e.inputs = is_gated ? std::vector<std::string>{"gate", "up"} : std::vector<std::string>{"x"};
  if (backward) e.inputs.push_back(is_gated ? "dout" : "dy");
  if (!is_gated) e.inputs.push_back("bias");
  e.images = [=](std::string_view arch) {
    std::vector<Variant> all;
    for (DType t : {DType::bf16, DType::f32})
      for (int f = 1; f < 5; ++f)
        for (std::uint64_t cols : {64, 7}) {
          const auto view = [&](const char*, bool = false) { return View::stand_in(t); };
          for (auto& v : row::element_variants(
                   build(Activation(f), is_gated, backward, !is_gated && cols == 64, 1, 4, cols, view, view)))
            all.push_back(std::move(v));
        }
    return images(all, arch);
  };
  e.prepare = [=](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                  std::uint64_t seed) -> std::unique_ptr<Case> {
    const char* first = is_gated ? "gate" : "x";
    const auto shape = row::row_shape(o, given, first);
    const DType type = shape.type;
    const std::uint64_t rows = shape.rows, cols = shape.cols;
    std::uint64_t next = seed;
    auto c = std::make_unique<TensorCase>(d);
    const Activation a = parse(o);
    const bool bias = !is_gated && o.flag("bias");
    const auto in = [&](const char* n, bool vector) {
      using Shape = std::vector<std::uint64_t>;
      return c->input(n, input_or_random(given, n, type, vector ? Shape{cols} : Shape{rows, cols}, next++));
    };
    const auto out = [&](const char* n) { return c->output(n, type, {rows, cols}); };
    const float scale = scaled ? float(o.real("scale")) : 1;
    const auto p = build(a, is_gated, backward, bias, scale, rows, cols, in, out);
    c->runs(row::element_variants(p), "element by element");
    c->flops = double(rows * cols) * 8;
    c->run = [p](runtime::Stream& s) { row::run_elements(s, p); };
    c->oracle = [=](const TensorCase& t) {
      const auto array = [&](const char* n, bool have) { return have ? &t.host(n) : nullptr; };
      return activation_ref(a, is_gated, backward, t.host(first), array("up", is_gated),
                            array(is_gated ? "dout" : "dy", backward), array("bias", bias), cols,
                            double(scale));
    };
    return c;
  };
  return e;
}

}  // namespace

KernelEntry activation_entry() { return entry("activation", "y = f(x + bias)", false, false); }
KernelEntry activation_backward_entry() {
  return entry("activation_backward", "dx = dy f'(x + bias)", false, true);
}
KernelEntry gated_entry() { return entry("gated", "f(gate) * up: SwiGLU, GeGLU, ReGLU", true, false); }
KernelEntry gated_backward_entry() {
  return entry("gated_backward", "gradients of f(gate) * up", true, true);
}

}  // namespace cgp::kernels
