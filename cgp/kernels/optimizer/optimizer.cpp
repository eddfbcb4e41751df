// SPDX-License-Identifier: Apache-2.0
// Optimizer steps over a table of tensors.
//   who      a block of 256 threads for each piece of 16384 elements of one tensor
//   memory   each element once; four elements an access where all of a tensor's addresses are aligned, else one
//   sync     none in the update; partial sums are stored by piece and added by one block in a fixed order
//   needs    any device for f32 and f16, sm_80 for bf16
#include "cgp/kernels/optimizer/optimizer.h"

#include <bit>
#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kThreads = 256, kPiece = 16384;

// Words of a tensor in the table, of 8 bytes each.
enum TableWord { kWeight, kGradient, kMaster, kFirst, kSecond, kLength, kGroup, kAligned, kTableWords };
// Words of what the device counts, of 4 bytes each.
enum ControlWord { kStep, kSkipped, kGood, kSkip, kScale, kFactor, kNorm, kControlWords };
// Of a group: what the caller gives (f64), and what the update reads (f32).
enum GroupWord { kLr, kBeta1, kBeta2, kEps, kDecay, kGroupWords };
enum RateWord { kStepSize, kDecayRate, kB1, kOneMinusB1, kB2, kOneMinusB2, kEpsilon, kRootScale, kRateWords };

constexpr std::string_view kRules[] = {"adamw", "adam", "sgd", "nesterov", "lion"};
using Rule = OptimizerRule;

bool has_second(Rule r) { return r == Rule::adamw || r == Rule::adam; }
bool decoupled(Rule r) { return r == Rule::adamw || r == Rule::lion; }

struct UpdateConfig {
  Rule rule = Rule::adamw;
  DType weight{}, gradient{};
  bool master = false;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("rule", kRules, c.rule);
    v.type("weight", "", c.weight);
    v.type("gradient", "grad_", c.gradient, c.weight);
    v.flag("master", c.master);
  }
};
struct NormConfig {
  DType gradient{};
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("gradient", "", c.gradient);
  }
};
struct ControlConfig {
  Rule rule = Rule::adamw;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("rule", kRules, c.rule);
  }
};

template <template <class> class V>
struct UpdateArgs {
  V<In<u64>> table;
  V<In<u32>> pieces;
  V<In<f32>> rates;
  V<In<u32>> control;
};
template <template <class> class V>
struct NormArgs {
  V<In<u64>> table;
  V<In<u32>> pieces;
  V<Out<f32>> partial;
};
template <template <class> class V>
struct ControlArgs {
  V<In<f32>> partial;
  V<InOut<u32>> control;
  V<In<f64>> groups;
  V<Out<f32>> rates;
  V<u32> partials, group_count, growth_interval;
  V<f32> max_norm, growth, backoff;
};

// The piece of this block: its tensor's words, its first element and how many it has.
struct Piece {
  In<u64> tensor;
  Val<u64> first;
  Val<u32> count, vectors;
};
Piece piece(Kernel& k, const In<u64>& table, const In<u32>& pieces) {
  const auto which = pieces.at(to<u64>(k.ctaid_x()) * 2);
  const auto tensor = table.at(to<u64>(which.ld(0)) * std::uint64_t(kTableWords));
  const auto first = to<u64>(which.ld(1)) * std::uint64_t(kPiece);
  const auto count = to<u32>(dsl::min(tensor.ld(int(kLength)) - first, Val<u64>(std::uint64_t(kPiece))));
  const auto vectors = select(tensor.ld(int(kAligned)) != 0, count / 4u, Val<u32>(0));
  return {tensor, first, count, vectors};
}
// body(std::integral_constant<int, N>, i): elements N * i and up, by accesses of four, then of one.
template <class Body>
void each(Kernel& k, const Piece& p, Body&& body) {
  k.loop(range(k.tid(), p.vectors, Val<u32>(kThreads)),
         [&](Val<u32> i) { body(std::integral_constant<int, 4>(), i); });
  k.loop(range(p.vectors * 4u + k.tid(), p.count, Val<u32>(kThreads)),
         [&](Val<u32> i) { body(std::integral_constant<int, 1>(), i); });
}

template <class T>
Ptr<global, T> elements(const Piece& p, TableWord word) {
  return Ptr<global, T>(p.tensor.ld(int(word))).at(p.first);
}

struct Element {
  Val<f32> w, m, v;
};
Element updated(Rule rule, const std::vector<Val<f32>>& rate, const Element& e, const Val<f32>& gradient) {
  const auto step = rate[kStepSize], decay = rate[kDecayRate], b1 = rate[kB1], b2 = rate[kB2];
  const auto w = decoupled(rule) ? e.w - decay * e.w : e.w;
  const auto g = decoupled(rule) ? gradient : gradient + decay * e.w;
  const auto mixed = b1 * e.m + rate[kOneMinusB1] * g;
  switch (rule) {
    case Rule::sgd:
    case Rule::nesterov: {
      const auto m = b1 * e.m + g;
      return {w - step * (rule == Rule::sgd ? m : g + b1 * m), m, e.v};
    }
    case Rule::lion: {
      const auto size = select(mixed > 0.f, step, select(mixed < 0.f, -step, mixed));  // NaN stays NaN
      return {w - size, b2 * e.m + rate[kOneMinusB2] * g, e.v};
    }
    default: {
      const auto v = b2 * e.v + rate[kOneMinusB2] * (g * g);
      const auto below = sqrt<rn>(v) * rate[kRootScale] + rate[kEpsilon];
      return {w - step * div<rn>(mixed, below), mixed, v};
    }
  }
}

template <class W, class G>
void update_kernel(Kernel& k, UpdateConfig c, UpdateArgs<DeviceArg> p) {
  k.block(int(kThreads));
  k.exit_if(p.control.ld(int(kSkip)) != 0);
  const auto at = piece(k, p.table, p.pieces);
  const auto factor = bits<f32>(p.control.ld(int(kFactor)));
  const auto own = p.rates.at(at.tensor.ld(int(kGroup)) * std::uint64_t(kRateWords));
  std::vector<Val<f32>> rate;
  for (int i = 0; i < kRateWords; ++i) rate.push_back(own.ld(i));
  const auto weight = elements<W>(at, kWeight);
  const auto gradient = elements<G>(at, kGradient);
  const auto master = elements<f32>(at, kMaster), first = elements<f32>(at, kFirst),
             second = elements<f32>(at, kSecond);
  each(k, at, [&](auto n, const Val<u32>& i) {
    constexpr int N = decltype(n)::value;
    const auto g = gradient.template ld<N>(i);
    const auto m = first.template ld<N>(i);
    const auto v = has_second(c.rule) ? second.template ld<N>(i) : m;
    const auto w = [&] {
      if (c.master) return master.template ld<N>(i);
      const auto stored = weight.template ld<N>(i);
      return RegGroup<f32, N>::generate([&](int e) { return to<f32>(stored[e]); });
    }();
    std::vector<Element> out;
    for (int e = 0; e < N; ++e)
      out.push_back(updated(c.rule, rate, {w[e], m[e], v[e]}, to<f32>(g[e]) * factor));
    const auto get = [&](auto member) {
      return RegGroup<f32, N>::generate([&](int e) { return out[std::size_t(e)].*member; });
    };
    first.template st<N>(i, get(&Element::m));
    if (has_second(c.rule)) second.template st<N>(i, get(&Element::v));
    if (c.master) master.template st<N>(i, get(&Element::w));
    weight.template st<N>(i, RegGroup<W, N>::generate([&](int e) { return to<W>(out[std::size_t(e)].w); }));
  });
}

// partial[piece] = the sum of the squares of its gradients.
template <class G>
void norm_kernel(Kernel& k, NormConfig, NormArgs<DeviceArg> p) {
  k.block(int(kThreads));
  const auto at = piece(k, p.table, p.pieces);
  const auto gradient = elements<G>(at, kGradient);
  const auto squares = [&](auto n, const Val<u32>& i, const Val<f32>& sum) {
    constexpr int N = decltype(n)::value;
    const auto g = gradient.template ld<N>(i);
    std::vector<Val<f32>> sums{sum};
    for (int e = 0; e < N; ++e) {
      const auto x = to<f32>(g[e]);
      sums.push_back(fma<rn>(x, x, sums.back()));
    }
    return sums.back();
  };
  const auto vectors =
      k.loop(range(k.tid(), at.vectors, Val<u32>(kThreads)), Val<f32>(0.f),
             [&](Val<u32> i, Val<f32> sum) { return squares(std::integral_constant<int, 4>(), i, sum); });
  const auto all =
      k.loop(range(at.vectors * 4u + k.tid(), at.count, Val<u32>(kThreads)), vectors,
             [&](Val<u32> i, Val<f32> sum) { return squares(std::integral_constant<int, 1>(), i, sum); });
  auto cta = k.cta();
  const auto total = reduce(
      cta, all, [](auto x, auto y) { return x + y; }, 0.f);
  k.if_(k.tid() == 0, [&] { p.partial.st(k.ctaid_x(), total); });
}

// b^n, by squaring.
Val<f64> power(Kernel& k, const Val<f64>& b, const Val<u32>& n) {
  using State = std::tuple<Val<f64>, Val<f64>>;
  return std::get<0>(k.loop(Val<u32>(32u), State{Val<f64>(1.0), b}, [&](Val<u32> bit, State s) {
    const auto [result, base] = s;
    return State{select(((n >> bit) & 1u) != 0, result * base, result), base * base};
  }));
}

// Adds the partial sums, decides whether the step is taken, and prepares the rates of each group.
void control_kernel(Kernel& k, ControlConfig c, ControlArgs<DeviceArg> p) {
  k.block(int(kThreads));
  auto sums = k.shared<f64>(int(kThreads));
  auto shared_step = k.shared<u32>(1);
  const auto tid = k.tid();
  sums.st(tid, k.loop(range(tid, p.partials, Val<u32>(kThreads)), Val<f64>(0.0),
                      [&](Val<u32> i, Val<f64> sum) { return sum + to<f64>(p.partial.ld(i)); }));
  for (std::uint32_t half = kThreads / 2; half > 0; half /= 2) {
    k.sync();
    k.if_(tid < half, [&] {
      const auto low = sums.ld(tid);
      const auto high = sums.ld(tid + half);
      sums.st(tid, low + high);
    });
  }
  k.if_(tid == 0, [&] {
    const auto sum = sums.ld(0);
    const auto finite = sum < std::numeric_limits<double>::max();  // false of NaN
    const auto scale = bits<f32>(p.control.ld(int(kScale)));
    const auto norm = to<f32>(sqrt<rn>(sum)) / scale;
    const auto clip = dsl::min(p.max_norm / (norm + 1e-6f), Val<f32>(1.f));
    const auto step = p.control.ld(int(kStep));
    const auto taken = select(finite, step + 1u, step);
    const auto good = p.control.ld(int(kGood)) + 1u;
    const auto dynamic = p.growth_interval != 0;
    const auto grows = finite & dynamic & (good >= p.growth_interval);
    const auto falls = dynamic & !finite;
    const auto next = select(grows, scale * p.growth, select(falls, scale * p.backoff, scale));
    const auto skipped = p.control.ld(int(kSkipped));
    p.control.st(int(kStep), taken);
    p.control.st(int(kSkipped), select(finite, skipped, skipped + 1u));
    p.control.st(int(kGood), select(finite & !grows, good, Val<u32>(0)));
    p.control.st(int(kSkip), select(finite, Val<u32>(0), Val<u32>(1)));
    p.control.st(int(kScale), bits<u32>(next));
    p.control.st(int(kFactor), bits<u32>(clip / scale));
    p.control.st(int(kNorm), bits<u32>(norm));
    shared_step.st(0, taken);
  });
  k.sync();
  const auto step = shared_step.ld(0);
  k.loop(range(tid, p.group_count, Val<u32>(kThreads)), [&](Val<u32> g) {
    const auto group = p.groups.at(g * std::uint32_t(kGroupWords));
    const auto lr = group.ld(int(kLr));
    const auto b1 = group.ld(int(kBeta1));
    const auto b2 = group.ld(int(kBeta2));
    const auto eps = group.ld(int(kEps));
    const auto decay = group.ld(int(kDecay));
    const auto own = p.rates.at(g * std::uint32_t(kRateWords));
    const Val<f64> one(1.0);
    const bool adam = has_second(c.rule);
    own.st(int(kStepSize), to<f32>(adam ? lr / (one - power(k, b1, step)) : lr));
    own.st(int(kDecayRate), to<f32>(decoupled(c.rule) ? lr * decay : decay));
    own.st(int(kB1), to<f32>(b1));
    own.st(int(kOneMinusB1), to<f32>(one - b1));
    own.st(int(kB2), to<f32>(b2));
    own.st(int(kOneMinusB2), to<f32>(one - b2));
    own.st(int(kEpsilon), to<f32>(eps));
    own.st(int(kRootScale), adam ? to<f32>(one / sqrt<rn>(one - power(k, b2, step))) : Val<f32>(1.f));
  });
}

int lowest_sm(DType a, DType b) { return a == DType::bf16 || b == DType::bf16 ? 80 : 75; }

template <class W, class G>
Variant update(const UpdateConfig& c) {
  return config_variant("optimizer", c, lowest_sm(c.weight, c.gradient), update_kernel<W, G>);
}
Variant update_variant(const UpdateConfig& c) {
  if (c.weight == DType::f16) return c.gradient == DType::f16 ? update<f16, f16>(c) : update<f16, f32>(c);
  if (c.weight == DType::bf16)
    return c.gradient == DType::bf16 ? update<bf16, bf16>(c) : update<bf16, f32>(c);
  if (c.gradient == DType::f16) return update<f32, f16>(c);
  return c.gradient == DType::bf16 ? update<f32, bf16>(c) : update<f32, f32>(c);
}
Variant norm_variant(DType t) {
  const NormConfig c{t};
  const int sm = lowest_sm(t, t);
  if (t == DType::f16) return config_variant("optimizer_norm", c, sm, norm_kernel<f16>);
  return t == DType::bf16 ? config_variant("optimizer_norm", c, sm, norm_kernel<bf16>)
                          : config_variant("optimizer_norm", c, sm, norm_kernel<f32>);
}
Variant control_variant(Rule r) {
  return config_variant("optimizer_control", ControlConfig{r}, 75, control_kernel);
}

constexpr std::pair<DType, DType> kTypes[] = {
    {DType::f32, DType::f32}, {DType::f32, DType::f16},   {DType::f32, DType::bf16}, {DType::f16, DType::f16},
    {DType::f16, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

[[noreturn]] void refuse(std::string rule, std::string what, std::string hint = {}) {
  throw ArgumentError({text::cat("optimizer: ", rule), {}, std::move(what), std::move(hint)});
}

std::vector<double> group_words(std::span<const OptimizerGroup> groups) {
  std::vector<double> words;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& g = groups[i];
    const auto within = [&](std::string_view name, double value, double below) {
      if (!(value >= 0 && value < below))
        refuse(text::cat(name, " must be from 0 to ", below == 1 ? "below 1" : "infinity"),
               text::cat("group ", i, " has ", value));
    };
    constexpr double inf = std::numeric_limits<double>::infinity();
    within("lr", g.lr, inf), within("beta1", g.beta1, 1), within("beta2", g.beta2, 1);
    within("eps", g.eps, inf), within("weight_decay", g.weight_decay, inf);
    words.insert(words.end(), {g.lr, g.beta1, g.beta2, g.eps, g.weight_decay});
  }
  return words;
}

}  // namespace

Optimizer::Optimizer(const runtime::Device& device, const OptimizerOptions& o,
                     std::span<const OptimizerTensor> tensors, std::span<const OptimizerGroup> groups)
    : options_(o), groups_(std::uint32_t(groups.size())) {
  if (!(o.max_norm >= 0)) refuse("max_norm must be at least 0", text::cat("it is ", o.max_norm));
  if (!(o.loss_scale > 0)) refuse("loss_scale must be above 0", text::cat("it is ", o.loss_scale));
  if (!(o.growth >= 1 && o.backoff > 0 && o.backoff <= 1))
    refuse("the scale grows by at least 1 and falls by at most 1",
           text::cat("growth is ", o.growth, ", backoff ", o.backoff));
  checks_ = o.max_norm > 0 || o.growth_interval > 0 || o.skip_nonfinite;
  const row::Checker check{"optimizer"};
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& t = tensors[i];
    const auto name = text::cat("tensor ", i);
    check.present(text::cat(name, "'s weight"), t.weight, row::kFloats, true);
    check.present(text::cat(name, "'s gradient"), t.gradient, row::kFloats, false);
    if (t.master.given) check.present(text::cat(name, "'s master"), t.master, {DType::f32}, true);
    if (t.gradient.elements != t.weight.elements ||
        (t.master.given && t.master.elements != t.weight.elements))
      refuse("a weight, its gradient and its master have one length",
             text::cat(name, " has ", t.weight.elements, " weights, ", t.gradient.elements, " gradients"));
    if (t.weight.dtype != tensors[0].weight.dtype || t.gradient.dtype != tensors[0].gradient.dtype ||
        t.master.given != tensors[0].master.given)
      refuse("all tensors have the types of the first", text::cat(name, " differs"),
             "make one Optimizer for each pair of types");
    if (t.group >= groups.size())
      refuse("a tensor's group must exist", text::cat(name, " names ", t.group, " of ", groups.size()));
    lengths_.push_back(t.weight.elements), offsets_.push_back(total);
    total += (t.weight.elements + 3) / 4 * 4;
  }
  if (!tensors.empty()) {
    const std::pair types{tensors[0].weight.dtype, tensors[0].gradient.dtype};
    while (types_ < std::size(kTypes) && kTypes[types_] != types) ++types_;
    if (types_ == std::size(kTypes))
      refuse("a gradient is f32 or has the weight's type",
             text::cat("weights are ", cgp::name(types.first), ", gradients ", cgp::name(types.second)));
    master_ = tensors[0].master.given;
  }
  first_ = device.zeros<float>(total);
  second_ = device.zeros<float>(has_second(o.rule) ? total : 0);
  std::vector<std::uint64_t> table;
  std::vector<std::uint32_t> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& t = tensors[i];
    const auto aligned = [](const View& v) {
      return v.address % (4 * std::uint64_t(cgp::bytes(v.dtype))) == 0;
    };
    const auto m = first_.address() + offsets_[i] * 4,
               v = has_second(o.rule) ? second_.address() + offsets_[i] * 4 : 0;
    const bool vector = aligned(t.weight) && aligned(t.gradient) && (!t.master.given || aligned(t.master));
    table.insert(table.end(), {t.weight.address, t.gradient.address, t.master.given ? t.master.address : 0, m,
                               v, lengths_[i], t.group, vector});
    for (std::uint64_t at = 0; at < lengths_[i]; at += kPiece)
      pieces.insert(pieces.end(), {std::uint32_t(i), std::uint32_t(at / kPiece)});
  }
  pieces_ = std::uint32_t(pieces.size() / 2);
  table_ = device.upload<std::uint64_t>(table);
  piece_table_ = device.upload<std::uint32_t>(pieces);
  partial_ = device.zeros<float>(checks_ ? pieces_ : 0);
  rates_ = device.zeros<float>(groups.size() * kRateWords);
  group_data_ = device.upload<double>(group_words(groups));
  control_ = device.zeros<std::uint32_t>(kControlWords);
  restore({.loss_scale = float(o.loss_scale)});
}

void Optimizer::step(runtime::Stream& s) {
  if (pieces_ == 0) return;
  using launch::launch_kernel;
  const auto [weight, gradient] = kTypes[types_];
  const runtime::Launch all{.grid = {pieces_}}, one{.grid = {1}};
  if (checks_)
    launch_kernel(s, load(s.device(), norm_variant(gradient)), all,
                  NormArgs<launch::HostArg>{.table = runtime::arg(table_),
                                            .pieces = runtime::arg(piece_table_),
                                            .partial = runtime::arg(partial_)});
  const float clip =
      options_.max_norm > 0 ? float(options_.max_norm) : std::numeric_limits<float>::infinity();
  launch_kernel(s, load(s.device(), control_variant(options_.rule)), one,
                ControlArgs<launch::HostArg>{.partial = runtime::arg(partial_),
                                             .control = runtime::arg(control_),
                                             .groups = runtime::arg(group_data_),
                                             .rates = runtime::arg(rates_),
                                             .partials = checks_ ? pieces_ : 0u,
                                             .group_count = groups_,
                                             .growth_interval = options_.growth_interval,
                                             .max_norm = clip,
                                             .growth = float(options_.growth),
                                             .backoff = float(options_.backoff)});
  launch_kernel(s, load(s.device(), update_variant({options_.rule, weight, gradient, master_})), all,
                UpdateArgs<launch::HostArg>{.table = runtime::arg(table_),
                                            .pieces = runtime::arg(piece_table_),
                                            .rates = runtime::arg(rates_),
                                            .control = runtime::arg(control_)});
}

void Optimizer::set_groups(std::span<const OptimizerGroup> groups) {
  if (groups.size() != groups_)
    refuse("the number of groups stays", text::cat("there are ", groups_, ", given are ", groups.size()));
  group_data_.upload(group_words(groups));
}

OptimizerStatus Optimizer::status() const {
  const auto c = control_.to_vector();
  return {c[kStep], c[kSkipped], c[kGood], std::bit_cast<float>(c[kScale]), std::bit_cast<float>(c[kNorm])};
}
void Optimizer::restore(const OptimizerStatus& s) {
  std::vector<std::uint32_t> c(kControlWords);
  c[kStep] = s.step, c[kSkipped] = s.skipped, c[kGood] = s.good;
  c[kScale] = std::bit_cast<std::uint32_t>(s.loss_scale), c[kNorm] = std::bit_cast<std::uint32_t>(s.norm);
  control_.upload(c);
}

runtime::Slice<float> Optimizer::first_state(std::size_t i) {
  return first_.slice(offsets_.at(i), lengths_.at(i));
}
runtime::Slice<float> Optimizer::second_state(std::size_t i) {
  return has_second(options_.rule) ? second_.slice(offsets_.at(i), lengths_.at(i)) : runtime::Slice<float>();
}

std::vector<Variant> optimizer_variants() {
  std::vector<Variant> all;
  for (int r = 0; r < int(std::size(kRules)); ++r) {
    all.push_back(control_variant(Rule(r)));
    for (auto [weight, gradient] : kTypes)
      for (bool master : {false, true}) all.push_back(update_variant({Rule(r), weight, gradient, master}));
  }
  for (DType t : {DType::f32, DType::f16, DType::bf16}) all.push_back(norm_variant(t));
  return all;
}

}  // namespace cgp::kernels
