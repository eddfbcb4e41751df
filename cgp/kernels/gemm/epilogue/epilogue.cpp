// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/epilogue/epilogue.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/kernels/gemm/api/any_element.h"
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {
using namespace dsl;

// ---------------------------------------------------------------- Epilogue
std::string Epilogue::name() const {
  std::string out;
  for (const auto& s : stages_) text::append(out, text::cat(out.empty() ? "" : "_", s->name));
  if (pairing_ == Pairing::halves) text::append(out, "_halves");
  return out;
}

std::vector<runtime::Arg> Epilogue::arguments(const GemmProblem& p) const {
  std::vector<runtime::Arg> out;
  for (const auto& s : stages_)
    if (s->arguments)
      for (const auto& a : s->arguments(p)) out.push_back(a);
  return out;
}

std::string Epilogue::reject(const GemmProblem& p) const {
  for (const auto& s : stages_)
    if (s->reject)
      if (auto why = s->reject(p); !why.empty()) return why;
  return {};
}

void Epilogue::before(runtime::Stream& s, const GemmProblem& p) const {
  for (const auto& stage : stages_)
    if (stage->before) stage->before(s, p);
}

Epilogue Epilogue::in_words(const GemmProblem& p) const {
  Epilogue out = *this;
  for (auto& s : out.stages_)
    if (s->has_words && s->has_words(p)) {
      EpilogueStage words = *s;
      text::append(words.name, "x2");
      words.declare = s->declare_words;
      s = std::make_shared<const EpilogueStage>(std::move(words));
    }
  return out;
}

bool Epilogue::pointwise() const {
  return std::all_of(stages_.begin(), stages_.end(), [](const auto& s) { return s->pointwise; });
}

Epilogue Epilogue::operator|(const Epilogue& next) const {
  if (pairing_ != Pairing::none && next.pairing_ != Pairing::none)
    throw ArgumentError("epilogue: at most one stage makes one element of two");
  Epilogue out = *this;
  out.stages_.insert(out.stages_.end(), next.stages_.begin(), next.stages_.end());
  if (out.pairing_ == Pairing::none) out.pairing_ = next.pairing_;
  return out;
}

// ---------------------------------------------------------------- EpilogueProgram
EpilogueProgram::EpilogueProgram(Kernel& k, const Epilogue& e) {
  for (const auto& s : e.stages()) code_.emplace_back(s->pair, s->declare(k));
}

Val<f32> EpilogueProgram::apply(const EpiloguePoint& at, const Val<f32>& x) const {
  std::vector<Val<f32>> v{x};
  for (const auto& [pair, code] : code_) v.push_back(code->apply(at, v.back()));
  return v.back();
}

Val<f32> EpilogueProgram::apply(const EpiloguePoint& at, const EpiloguePoint& first,
                                const EpiloguePoint& second, const Val<f32>& x, const Val<f32>& y) const {
  std::vector<Val<f32>> v{x}, w{y};
  bool combined = false;
  for (const auto& [pair, code] : code_) {
    if (pair) {
      v.push_back(code->combine(at, v.back(), w.back()));
      combined = true;
    } else if (combined) {
      v.push_back(code->apply(at, v.back()));
    } else {
      v.push_back(code->apply(first, v.back()));
      w.push_back(code->apply(second, w.back()));
    }
  }
  return v.back();
}

void EpilogueProgram::finish(const EpilogueGroup& g) const {
  for (const auto& [pair, code] : code_) code->finish(g);
}

// ---------------------------------------------------------------- the stages that come with the library
namespace epilogue {
namespace detail {

std::string code_name(std::string_view name, const std::type_info& code) {
  std::string out;
  for (char c : name) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  std::uint64_t h = 1469598103934665603ull;  // FNV-1a: two codes of one name are two kernels
  for (const char* c = code.name(); *c; ++c) h = (h ^ std::uint8_t(*c)) * 1099511628211ull;
  return text::cat(out, "_", text::hex(h));
}

}  // namespace detail

namespace {

constexpr float kLog2e = 1.44269504088896341f;

// ftz: with subnormal numbers kept, rcp and ex2 take seven instructions more. Sums of 1 and a power need
// none.
Val<f32> logistic(const Val<f32>& power) { return rcp<approx, ftz>(ex2<approx, ftz>(power) + 1.f); }
Val<f32> sigmoid(const Val<f32>& x) { return logistic(x * -kLog2e); }

// x * Phi(x) as max(x, 0) - a * Phi(-a), a = |x|, with 2 Phi(-a) = exp(-x^2 / 2) * P(t), t = 1 / (1 + p a /
// sqrt(2)): Abramowitz and Stegun 7.1.26, absolute error of P 1.5e-7.
Val<f32> gelu_of(const Val<f32>& x) {
  const auto a = dsl::min(dsl::abs(x), 1e18f);  // infinity times exp's 0
  const auto t = rcp<approx, ftz>(fma(a, 0.3275911f * 0.70710678118654752f, 1.f));
  const auto p4 = fma(t, 1.061405429f / 2, -1.453152027f / 2), p3 = fma(p4, t, 1.421413741f / 2),
             p2 = fma(p3, t, -0.284496736f / 2), p1 = fma(p2, t, 0.254829592f / 2);
  const auto tail = ex2<approx, ftz>(x * (x * (-kLog2e / 2))) * a;
  return fma(-tail, p1 * t, dsl::max(x, 0.f));
}
constexpr float kTanh0 = 0.79788456080286536f, kTanh1 = 0.79788456080286536f * 0.044715f;
Val<f32> gelu_tanh_of(const Val<f32>& x) {
  return x * logistic(x * fma(x * x, -2 * kLog2e * kTanh1, -2 * kLog2e * kTanh0));
}
Val<f32> gelu_tanh_fast_of(const Val<f32>& x) {
  const auto t = tanh<approx>(x * fma(x * x, kTanh1, kTanh0));
  const auto half = x * 0.5f;
  return fma(half, t, half);
}
Val<f32> silu_of(const Val<f32>& x) { return x * sigmoid(x); }
Val<f32> relu_of(const Val<f32>& x) { return select(x < 0.f, Val<f32>(0.f), x); }

class Function : public EpilogueCode {
 public:
  explicit Function(Val<f32> (*f)(const Val<f32>&)) : f_(f) {}
  Val<f32> apply(const EpiloguePoint&, const Val<f32>& x) override { return f_(x); }

 private:
  Val<f32> (*f_)(const Val<f32>&);
};
Epilogue function(std::string name, Val<f32> (*f)(const Val<f32>&)) {
  return Epilogue(EpilogueStage{std::move(name),
                                false,
                                [f](Kernel&) { return std::make_shared<Function>(f); },
                                {},
                                {},
                                {},
                                {},
                                {},
                                true});
}

class SwiGlu : public EpilogueCode {
 public:
  Val<f32> apply(const EpiloguePoint&, const Val<f32>& x) override { return x; }
  Val<f32> combine(const EpiloguePoint&, const Val<f32>& gate, const Val<f32>& up) override {
    return silu_of(gate) * up;
  }
};

// One number for each row or column, added or multiplied.
class Vector : public EpilogueCode {
 public:
  Vector(Kernel& k, DType t, bool rows, bool times) : p_(k, t), rows_(rows), times_(times) {}
  Val<f32> apply(const EpiloguePoint& at, const Val<f32>& x) override {
    const auto v = load(rows_ ? at.row : at.col);
    return times_ ? x * v : x + v;
  }

 private:
  Val<f32> load(const EpilogueLine& line) {
    switch (p_.type()) {
      case DType::f16:
        return line.load(Ptr<global, const f16>(p_.address(), 0, true));
      case DType::bf16:
        return line.load(Ptr<global, const bf16>(p_.address(), 0, true));
      default:
        return line.load(Ptr<global, const f32>(p_.address(), 0, true));
    }
  }
  AnyIn p_;
  bool rows_, times_;
};

std::string bad_type(std::string_view what, const DeviceArray& a) {
  return a.type == DType::f32 || a.type == DType::f16 || a.type == DType::bf16
             ? std::string()
             : text::cat("epilogue: ", what, " must be f32, f16 or bf16, not ", cgp::name(a.type));
}
std::string too_short(std::string_view what, const DeviceArray& a, std::uint64_t need) {
  return a.size < need ? text::cat("epilogue: ", what, " has ", a.size, " elements, the problem needs ", need)
                       : std::string();
}

Epilogue vector(std::string_view what, const DeviceArray& a, bool rows, bool times) {
  return Epilogue(EpilogueStage{
      text::cat(what, "_", cgp::name(a.type)),
      false,
      [t = a.type, rows, times](Kernel& k) { return std::make_shared<Vector>(k, t, rows, times); },
      [a](const GemmProblem&) { return std::vector{runtime::Arg::address(a.address)}; },
      [what = std::string(what), a, rows](const GemmProblem& p) {
        auto why = bad_type(what, a);
        return why.empty() ? too_short(what, a, rows ? p.m : p.n) : why;
      },
      {},
      {},
      {},
      true});
}

// A matrix times a factor is added; its elements come one by one, or as words of two.
class Added : public EpilogueCode {
 public:
  Added(Kernel& k, DType t, bool written, bool words)
      : p_(k, t, written),
        factor_(Param<Val<f32>>::make(k)),
        ld_(Param<Val<u64>>::make(k)),
        stride_(Param<Val<u64>>::make(k)),
        written_(written),
        words_(words) {}
  Val<f32> apply(const EpiloguePoint& at, const Val<f32>& x) override { return fma(load(at), factor_, x); }

 private:
  Val<f32> load(const EpiloguePoint& at) const {
    const auto from = at.place(p_.address(), bytes(p_.type()), ld_, stride_);
    const int offset = at.col.offset();
    if (!words_) return AnyIn(p_.type(), from, written_).load(Val<u64>(0), offset, at.inside);
    const auto key = std::uint64_t(1) << 62 | std::uint64_t(from.reg()) << 24 | std::uint32_t(offset / 2);
    const Val<u32> both(at.row.once(key, [&] {
      return Ptr<global, const u32>(from, 0, !written_).ld_if(at.inside, offset / 2, Val<u32>(0))[0];
    }));
    const bool second = offset % 2 != 0;
    if (p_.type() == DType::bf16) return bits<f32>(second ? both & 0xffff0000u : both << 16);
    return to<f32>(bits<f16>(to<u16>(second ? both >> 16 : both)));
  }
  AnyIn p_;
  Val<f32> factor_;
  Val<u64> ld_, stride_;
  bool written_, words_;
};
std::function<std::shared_ptr<EpilogueCode>(Kernel&)> added(DType t, bool written, bool words) {
  return [=](Kernel& k) { return std::make_shared<Added>(k, t, written, words); };
}
// Whether columns 2 j and 2 j + 1 of it are one aligned word.
bool in_words(const GemmProblem& p, DType t, std::uint64_t address, std::uint64_t ld, std::uint64_t stride) {
  return bytes(t) == 2 && address % 4 == 0 && ld % 2 == 0 && (p.batch == 1 || stride % 2 == 0) &&
         p.columns() % 2 == 0;
}

class Amax : public EpilogueCode {
 public:
  explicit Amax(Kernel& k)
      : out_(Param<Out<u32>>::make(k)), rows_(Param<Val<u64>>::make(k)), cols_(Param<Val<u64>>::make(k)) {}
  // Bits of numbers that are not negative are ordered as the numbers are, NaN above infinity.
  Val<f32> apply(const EpiloguePoint& at, const Val<f32>& x) override {
    seen_.push_back(select(at.inside, bits<u32>(dsl::abs(x)), Val<u32>(0)));
    return x;
  }
  void finish(const EpilogueGroup& g) override {
    if (seen_.empty()) return;
    std::vector<Val<u32>> most{seen_[0]};
    for (std::size_t i = 1; i < seen_.size(); ++i) most.push_back(dsl::max(most.back(), seen_[i]));
    seen_.clear();
    const auto at = (g.batch * rows_ + g.row / 128u) * cols_ + g.col / 128u;
    if (g.whole_warp && g.k.sm() >= 80) {
      Warp w = g.k.warp();
      const auto all = redux<op::max>(w, most.back());
      g.k.if_((g.k.laneid() == 0u) & (all != 0u), [&] { red<relaxed, gpu, op::max>(out_, at, all); });
    } else {
      g.k.if_(most.back() != 0u, [&] { red<relaxed, gpu, op::max>(out_, at, most.back()); });
    }
  }

 private:
  Out<u32> out_;
  Val<u64> rows_, cols_;
  std::vector<Val<u32>> seen_;
};

}  // namespace

Epilogue bias(const DeviceArray& columns) { return vector("bias", columns, false, false); }
Epilogue bias_rows(const DeviceArray& rows) { return vector("bias_rows", rows, true, false); }
Epilogue scale_columns(const DeviceArray& columns) { return vector("scale_columns", columns, false, true); }
Epilogue scale_rows(const DeviceArray& rows) { return vector("scale_rows", rows, true, true); }

Epilogue residual(const DeviceArray& r, float factor, std::uint64_t ld, std::uint64_t stride) {
  const auto row = [ld](const GemmProblem& p) { return ld ? ld : p.columns(); };
  const auto batch = [row, stride](const GemmProblem& p) { return stride ? stride : row(p) * p.m; };
  return Epilogue(
      EpilogueStage{text::cat("residual_", cgp::name(r.type)),
                    false,
                    added(r.type, false, false),
                    [=](const GemmProblem& p) {
                      return std::vector{runtime::Arg::address(r.address), runtime::arg(factor),
                                         runtime::arg(row(p)), runtime::arg(batch(p))};
                    },
                    [=](const GemmProblem& p) {
                      if (auto why = bad_type("residual", r); !why.empty()) return why;
                      if (row(p) < p.columns())
                        return text::cat("epilogue: residual's ld = ", ld, " is less than a row");
                      const bool any = p.m && p.columns() && p.batch;
                      return too_short("residual", r,
                                       any ? (p.batch - 1) * batch(p) + (p.m - 1) * row(p) + p.columns() : 0);
                    },
                    {},
                    added(r.type, false, true),
                    [=](const GemmProblem& p) { return in_words(p, r.type, r.address, row(p), batch(p)); },
                    true});
}

Epilogue amax(const DeviceArray& blocks) {
  const auto count = [](std::uint64_t n) { return (n + 127) / 128; };
  return Epilogue(EpilogueStage{"amax", false, [](Kernel& k) { return std::make_shared<Amax>(k); },
                                [=](const GemmProblem& p) {
                                  return std::vector{runtime::Arg::address(blocks.address),
                                                     runtime::arg(count(p.m)),
                                                     runtime::arg(count(p.columns()))};
                                },
                                [=](const GemmProblem& p) {
                                  if (blocks.type != DType::f32)
                                    return std::string("epilogue: amax writes f32");
                                  return too_short("amax", blocks, p.batch * count(p.m) * count(p.columns()));
                                },
                                [=](runtime::Stream& s, const GemmProblem& p) {
                                  s.fill({s.device().backend().get(), blocks.address,
                                          p.batch * count(p.m) * count(p.columns()) * sizeof(float)},
                                         0);
                                }});
}

Epilogue relu() { return function("relu", relu_of); }
Epilogue silu() { return function("silu", silu_of); }
Epilogue gelu() { return function("gelu", gelu_of); }
Epilogue gelu_tanh() { return function("gelu_tanh", gelu_tanh_of); }
Epilogue gelu_tanh_fast() { return function("gelu_tanh_fast", gelu_tanh_fast_of); }

Epilogue swiglu(Pairing pairing) {
  if (pairing == Pairing::none) throw ArgumentError("epilogue: swiglu says which columns make a pair");
  return Epilogue(
      EpilogueStage{"swiglu", true, [](Kernel&) { return std::make_shared<SwiGlu>(); }, {}, {}, {}}, pairing);
}

// ---------------------------------------------------------------- what the problem itself asks for
namespace {

class Alpha : public EpilogueCode {
 public:
  explicit Alpha(Kernel& k) : alpha_(Param<Val<f32>>::make(k)) {}
  Val<f32> apply(const EpiloguePoint&, const Val<f32>& x) override { return x * alpha_; }

 private:
  Val<f32> alpha_;
};

// Both factors of a tensor, or one for each row and one for each column.
class Scales : public EpilogueCode {
 public:
  Scales(Kernel& k, bool channels)
      : a_(Param<In<f32>>::make(k)), b_(Param<In<f32>>::make(k)), channels_(channels) {}
  Val<f32> apply(const EpiloguePoint& at, const Val<f32>& x) override {
    if (channels_) return x * at.of_row(a_) * at.of_column(b_);
    return x * (a_.ld(0) * b_.ld(0));
  }

 private:
  In<f32> a_, b_;
  bool channels_;
};

Epilogue stage_of(std::string name, std::function<std::shared_ptr<EpilogueCode>(Kernel&)> declare,
                  std::vector<runtime::Arg> arguments) {
  return Epilogue(EpilogueStage{std::move(name),
                                false,
                                std::move(declare),
                                [arguments = std::move(arguments)](const GemmProblem&) { return arguments; },
                                {},
                                {},
                                {},
                                {},
                                true});
}

}  // namespace

Epilogue of_problem(const GemmProblem& p, const GemmAddresses& at) {
  using runtime::Arg;
  Epilogue e;
  if (p.scaling == GemmScaling::tensor || p.scaling == GemmScaling::channel) {
    const bool channels = p.scaling == GemmScaling::channel;
    e = e | stage_of(channels ? "scaled_channels" : "scaled",
                     [channels](Kernel& k) { return std::make_shared<Scales>(k, channels); },
                     {Arg::address(at.scale_a), Arg::address(at.scale_b)});
  }
  if (p.alpha != 1)
    e = e | stage_of("alpha", [](Kernel& k) { return std::make_shared<Alpha>(k); }, {runtime::arg(p.alpha)});
  const auto old = [&] {
    const std::vector<Arg> arguments{Arg::address(at.c), runtime::arg(p.beta), runtime::arg(p.ldc),
                                     runtime::arg(p.stride_c)};
    return Epilogue(EpilogueStage{
        text::cat("beta_", cgp::name(*p.type_c)),
        false,
        added(*p.type_c, true, false),
        [arguments](const GemmProblem&) { return arguments; },
        {},
        {},
        added(*p.type_c, true, true),
        [c = at.c](const GemmProblem& q) { return in_words(q, *q.type_c, c, q.ldc, q.stride_c); },
        true});
  };
  if (p.beta == 0) return e | p.epilogue;
  if (p.epilogue.pairing() == Pairing::none) return e | old() | p.epilogue;
  return e | p.epilogue | old();  // C has the columns that are left after pairing
}

}  // namespace epilogue
}  // namespace cgp::kernels
