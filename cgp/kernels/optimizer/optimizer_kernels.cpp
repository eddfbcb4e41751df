// SPDX-License-Identifier: Apache-2.0
// Optimizer steps over a table of tensors.
//   who      a block of 1024 threads (the norm: 256) for each chunk of 16384 elements of one tensor
//   memory   each element once; four elements an access where all of a tensor's addresses are aligned, else one
//            8-bit states: a warp for each 256 elements, which have one scale; codes are looked up in shared memory
//   sync     none in the update; partial sums are stored by chunk and added by one block in a fixed order
//   needs    any device for f32 and f16, sm_80 for bf16
#include <bit>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/common/philox.h"
#include "cgp/kernels/optimizer/optimizer_code.h"
#include "cgp/kernels/optimizer/optimizer_rule.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using Rule = OptimizerRule;

// Blocks of 1024: with 256 threads four times as many places of memory are read and written at a time, and the H200 gives 94 %
// of a copy's bandwidth instead of 97 %.
constexpr std::uint32_t kThreads = 1024, kNormThreads = 256, kControlThreads = 512, kChunk = 16384;
constexpr std::uint32_t kThreadsOf8Bits = 384, kStateBlock = kOptimizerStateBlock;
static_assert(kChunk % kStateBlock == 0);

// Words of an OptimizerRow, of 8 bytes each; the last holds the group and the tensor's number.
enum TableWord { kWeight, kGradient, kMaster, kFirst, kSecond, kStep, kElements, kGroup, kTableWords };
static_assert(kTableWords == kOptimizerRowWords && sizeof(OptimizerRow) == 8 * kOptimizerRowWords);
enum GroupWord { kLr, kBeta1, kBeta2, kEps, kDecay, kMaximize, kGroupWords };
static_assert(kGroupWords == kOptimizerGroupWords);

constexpr std::string_view kRules[] = {"adamw", "adam", "sgd", "nesterov", "lion", "descent"};

struct UpdateConfig {
  Rule rule = Rule::adamw;
  DType weight{}, gradient{};
  bool master = false, stochastic = false, states8 = false;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("rule", kRules, c.rule);
    v.type("weight", "", c.weight);
    v.type("gradient", "grad_", c.gradient, c.weight);
    v.flag("master", c.master);
    v.flag("stochastic", c.stochastic);
    v.flag("states8", c.states8);
  }
};
struct GradientConfig {
  DType gradient{};
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("gradient", "", c.gradient);
  }
};
struct ControlConfig {
  Rule rule = Rule::adamw;
  bool clip = false;  ///< for optimizer_clip alone
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("rule", kRules, c.rule);
    v.flag("clip", c.clip);
  }
};

template <template <class> class V>
struct UpdateArgs {
  V<In<u64>> table;
  V<In<u32>> chunks;
  V<In<f32>> rates;
  V<In<u32>> control;
  V<u64> seed;
};
template <template <class> class V>
struct NormArgs {
  V<In<u64>> table;
  V<In<u32>> chunks;
  V<Out<f32>> partial;
};
template <template <class> class V>
struct ClipArgs {
  V<In<u64>> table;
  V<In<u32>> chunks, control;
};
template <template <class> class V>
struct ControlArgs {
  V<In<f32>> partial;
  V<In<u64>> table;
  V<InOut<u32>> control;
  V<In<f64>> groups;
  V<Out<f32>> rates;
  V<u32> partials, tensors, growth_interval, use_found;
  V<f32> max_norm, growth, backoff;
};

// A block's chunk: its tensor's row, its first element, how many it has, and how many accesses of four elements.
struct Chunk {
  In<u64> row;
  Val<u64> index, first;
  Val<u32> count, vectors;
};
Chunk chunk(const In<u64>& table, const In<u32>& chunks, const Val<u32>& block,
            const std::vector<std::pair<TableWord, int>>& accessed) {
  const auto which = chunks.at(to<u64>(block) * 2).template ld<2>();
  const auto index = to<u64>(which[0]);
  const auto row = table.at(index * std::uint64_t(kTableWords));
  const auto first = to<u64>(which[1]) * std::uint64_t(kChunk);
  const auto count = to<u32>(dsl::min(row.ld(int(kElements)) - first, Val<u64>(std::uint64_t(kChunk))));
  std::vector<Val<u64>> odd{Val<u64>(std::uint64_t(0))};  // bits of addresses that no aligned one has
  for (const auto& [word, bytes] : accessed)
    odd.push_back(odd.back() | (row.ld(int(word)) & std::uint64_t(4 * bytes - 1)));
  const auto vectors = select(odd.back() == 0, count / 4u, Val<u32>(0));
  return {row, index, first, count, vectors};
}
// body(std::integral_constant<int, N>, i): elements N * i and up, by accesses of four, then of one.
template <class Body>
void each(Kernel& k, const Chunk& c, Body&& body) {
  k.loop(range(k.tid(), c.vectors, Val<u32>(kThreads)),
         [&](Val<u32> i) { body(std::integral_constant<int, 4>(), i); });
  k.loop(range(c.vectors * 4u + k.tid(), c.count, Val<u32>(kThreads)),
         [&](Val<u32> i) { body(std::integral_constant<int, 1>(), i); });
}

template <class T>
Ptr<global, T> elements(const Chunk& c, TableWord word) {
  return Ptr<global, T>(c.row.ld(int(word))).at(c.first);
}

// x, moved to one of the two bf16 beside it: up by as many of 2^16 cases as it lies above the lower one.
Val<f32> stochastically_rounded(const Val<f32>& x, const Val<u32>& random) {
  const auto word = bits<u32>(x);
  const auto finite = (word & 0x7f800000u) != 0x7f800000u;
  return bits<f32>(select(finite, (word + (random & 0xffffu)) & 0xffff0000u, word));
}

UpdateRates rates_of(const Chunk& c, const In<f32>& rates) {
  const auto own = rates.at(c.index * std::uint64_t(kOptimizerRateWords));
  const auto r = own.template ld<4>(0), r4 = own.template ld<4>(1), r8 = own.template ld<4>(2);
  return {r[0], r[1], r[2], r[3], r4[0], r4[1], r4[2], r4[3], r8[0], r8[1]};
}

// What is stored of the weights of elements N * i and up.
template <class W, int N>
RegGroup<W, N> rounded_weights(const UpdateConfig& c, const Chunk& at, const Val<u32>& i,
                               const Val<u64>& seed, const Val<f32>& step_number,
                               const std::vector<UpdatedElement>& out) {
  std::vector<Val<f32>> rounded;
  if (c.stochastic) {
    const auto element = at.first + to<u64>(i) * std::uint64_t(N);
    const auto number = to<u64>(to<u32>(at.row.ld(int(kGroup)) >> 32)) << 32;
    const auto random = philox(element >> 2, seed, number | to<u64>(bits<u32>(step_number)));
    const auto which = to<u32>(element) & 3;
    for (int e = 0; e < N; ++e)
      rounded.push_back(stochastically_rounded(
          out[std::size_t(e)].w, N == 4 ? random[std::size_t(e)]
                                        : select(which < 2, select(which == 0, random[0], random[1]),
                                                 select(which == 2, random[2], random[3]))));
  } else {
    for (const auto& e : out) rounded.push_back(e.w);
  }
  return RegGroup<W, N>::generate([&](int e) { return to<W>(rounded[std::size_t(e)]); });
}

template <class W, class G>
void update_kernel(Kernel& k, UpdateConfig c, UpdateArgs<DeviceArg> p) {
  k.block(int(kThreads));
  k.exit_if(p.control.ld(int(OptimizerControl::kSkip)) != 0);
  const bool has_m = has_first_state(c.rule), has_v = has_second_state(c.rule);
  std::vector<std::pair<TableWord, int>> accessed{{kWeight, Elem<W>::bytes}, {kGradient, Elem<G>::bytes}};
  for (auto [used, word] : {std::pair{c.master, kMaster}, {has_m, kFirst}, {has_v, kSecond}})
    if (used) accessed.emplace_back(word, 4);
  // From the last chunk on: of what the norm has read, that is still in L2.
  const auto at = chunk(p.table, p.chunks, k.nctaid_x() - 1u - k.ctaid_x(), accessed);
  const auto rate = rates_of(at, p.rates);
  const auto weight = elements<W>(at, kWeight);
  const auto gradient = elements<G>(at, kGradient);
  const auto master = elements<f32>(at, kMaster), first = elements<f32>(at, kFirst),
             second = elements<f32>(at, kSecond);
  each(k, at, [&](auto n, const Val<u32>& i) {
    constexpr int N = decltype(n)::value;
    const auto g = gradient.template ld<N>(i);
    const auto m = has_m ? first.template ld<N>(i) : RegGroup<f32, N>::splat(Val<f32>(0.f));
    const auto v = has_v ? second.template ld<N>(i) : m;
    const auto w = [&] {
      if (c.master) return master.template ld<N>(i);
      const auto stored = weight.template ld<N>(i);
      return RegGroup<f32, N>::generate([&](int e) { return to<f32>(stored[e]); });
    }();
    std::vector<UpdatedElement> out;
    for (int e = 0; e < N; ++e)
      out.push_back(updated(c.rule, rate, {w[e], m[e], v[e]}, to<f32>(g[e]) * rate.gradient_rate));
    const auto get = [&](auto member) {
      return RegGroup<f32, N>::generate([&](int e) { return out[std::size_t(e)].*member; });
    };
    if (has_m) first.template st<N>(i, get(&UpdatedElement::m));
    if (has_v) second.template st<N>(i, get(&UpdatedElement::v));
    if (c.master) master.template st<N>(i, get(&UpdatedElement::w));
    weight.template st<N>(i, rounded_weights<W, N>(c, at, i, p.seed, rate.step_number, out));
  });
}

// The tables of a code in shared memory.
class SharedCode {
 public:
  static constexpr int kWords = 256 + 2 * 32 + 4 * 9;
  static std::vector<float> words(bool is_signed) {
    const auto code = dynamic_code(is_signed);
    std::vector<float> out(code.values.begin(), code.values.end());
    for (const auto& b : code.binades)
      out.insert(out.end(), {b.threshold, std::bit_cast<float>(std::uint32_t(b.decade))});
    for (const auto& d : code.decades) out.insert(out.end(), {d.scale, d.offset, d.first, d.last});
    return out;
  }
  SharedCode(const Ptr<shared, f32>& words, bool is_signed) : words_(words), signed_(is_signed) {}

  int zero() const { return signed_ ? 127 : 0; }
  Val<f32> decode(const Val<u32>& code) const { return words_.ld(code); }
  /// The nearest code of x, -1 to 1.
  Val<u32> encode(const Val<f32>& x) const {
    const auto size = abs(x);
    constexpr auto lowest = DynamicCode::kLowestExponent;
    const auto exponent = dsl::min(dsl::max(bits<u32>(size) >> 23, Val<u32>(lowest)), Val<u32>(lowest + 31));
    const auto binade = words_.at(256 - 2 * int(lowest)).template ld<2>(exponent);
    const auto decade = bits<u32>(binade[1]) + select(size >= binade[0], Val<u32>(1), Val<u32>(0));
    const auto d = words_.at(256 + 64).template ld<4>(decade);
    const auto place = dsl::min(dsl::max(fma<rn>(size, d[0], d[1]), d[2]), d[3]);
    const auto part =
        bits<u32>(add<rm>(place, Val<f32>(0x1p23f))) & 255u;  // cut to an integer: cheaper than cvt
    if (!signed_) return part;
    return select(x < 0.f, 127u - dsl::min(part, Val<u32>(127)), 127u + part);  // there is no -1
  }

 private:
  Ptr<shared, f32> words_;
  bool signed_;
};

// A state of 8 bits: codes, and a scale for each 256 elements.
struct CodedState {
  SharedCode code;
  Ptr<global, u8> codes;
  Ptr<global, f32> scales;
  Val<f32> UpdatedElement::*member;
};

template <class W, class G>
void update_8bit_kernel(Kernel& k, UpdateConfig c, UpdateArgs<DeviceArg> p) {
  k.block(int(kThreadsOf8Bits))
      .min_blocks(2);  // 80 registers: more warps beside each other are worth more than more registers
  k.exit_if(p.control.ld(int(OptimizerControl::kSkip)) != 0);
  const int states = has_second_state(c.rule) ? 2 : 1;
  std::vector<std::pair<TableWord, int>> accessed{
      {kWeight, Elem<W>::bytes}, {kGradient, Elem<G>::bytes}, {kFirst, 1}};
  std::vector<float> words = SharedCode::words(true);
  if (states == 2) {
    const auto more = SharedCode::words(false);
    words.insert(words.end(), more.begin(), more.end());
    accessed.emplace_back(kSecond, 1);
  }
  const auto tables = k.constant<f32>(words);
  const auto held = k.shared<f32>(int(words.size()), 16);
  k.loop(range(k.tid(), Val<u32>(std::uint32_t(words.size())), Val<u32>(kThreadsOf8Bits)),
         [&](Val<u32> i) { held.st(i, tables.ld(i)); });
  k.sync();

  const auto at = chunk(p.table, p.chunks, k.nctaid_x() - 1u - k.ctaid_x(), accessed);
  const auto rate = rates_of(at, p.rates);
  const auto weight = elements<W>(at, kWeight);
  const auto gradient = elements<G>(at, kGradient);
  const auto scales = Ptr<global, f32>(at.row.ld(int(kMaster))).at(at.first / std::uint64_t(kStateBlock));
  const auto all_blocks =
      (at.row.ld(int(kElements)) + std::uint64_t(kStateBlock - 1)) / std::uint64_t(kStateBlock);
  std::vector<CodedState> coded{
      {SharedCode(held, true), elements<u8>(at, kFirst), scales, &UpdatedElement::m}};
  if (states == 2)
    coded.push_back({SharedCode(held.at(SharedCode::kWords), false), elements<u8>(at, kSecond),
                     scales.at(all_blocks), &UpdatedElement::v});

  const auto body = [&](auto n, const Val<u32>& block) {
    constexpr int N = decltype(n)::value, groups = int(kStateBlock) / 32 / N;
    auto warp = k.warp();
    const auto index = [&](int q) {
      return block * std::uint32_t(kStateBlock / N) + std::uint32_t(32 * q) + warp.lane();
    };
    const auto load = [&](const auto& from, int q, auto otherwise) {
      if constexpr (N == 1)
        return from.ld_if(index(q) < at.count, index(q), otherwise);
      else
        return from.template ld<N>(index(q));
    };
    const auto store = [&](const auto& into, int q, const auto& values) {
      if constexpr (N == 1)
        into.st_if(index(q) < at.count, index(q), values);
      else
        into.template st<N>(index(q), values);
    };
    std::vector<Val<f32>> scale;
    for (const auto& s : coded) scale.push_back(s.scales.ld(block));
    std::vector<std::vector<UpdatedElement>> out;
    for (int q = 0; q < groups; ++q) {
      const auto g = load(gradient, q, Val<G>(0.f));
      const auto w = load(weight, q, Val<W>(0.f));
      std::vector<RegGroup<u8, N>> codes;
      for (const auto& s : coded) codes.push_back(load(s.codes, q, Val<u8>(s.code.zero())));
      out.emplace_back();
      for (int e = 0; e < N; ++e) {
        const auto state = [&](std::size_t i) {
          return i < coded.size() ? coded[i].code.decode(to<u32>(codes[i][e])) * scale[i] : Val<f32>(0.f);
        };
        const UpdatedElement before{to<f32>(w[e]), state(0), state(1)};
        out.back().push_back(updated<approx>(c.rule, rate, before, to<f32>(g[e]) * rate.gradient_rate));
      }
      store(weight, q, rounded_weights<W, N>(c, at, index(q), p.seed, rate.step_number, out.back()));
    }
    warp.sync();  // all lanes have read the scales
    for (const auto& s : coded) {
      std::vector<Val<f32>> largest{Val<f32>(0.f)};
      for (const auto& group : out)
        for (const auto& e : group) largest.push_back(dsl::max(largest.back(), abs(e.*s.member)));
      const auto all = reduce(warp, largest.back(), [](auto x, auto y) { return dsl::max(x, y); });
      const auto factor =
          select(all >= std::numeric_limits<float>::min(), div<rn>(Val<f32>(1.f), all), Val<f32>(0.f));
      for (int q = 0; q < groups; ++q)
        store(s.codes, q, RegGroup<u8, N>::generate([&](int e) {
                return to<u8>(s.code.encode(out[std::size_t(q)][std::size_t(e)].*s.member * factor));
              }));
      k.if_(warp.lane() == 0, [&] { s.scales.st(block, all); });
    }
  };
  const auto blocks = (at.count + (kStateBlock - 1)) / kStateBlock;
  k.loop(range(k.warp_index(), blocks, Val<u32>(kThreadsOf8Bits / 32)), [&](Val<u32> b) {
    const auto block = assume_uniform(b, Uniform::warp);
    k.if_((block + 1u) * (kStateBlock / 4) <= assume_uniform(at.vectors, Uniform::cta),
          [&] { body(std::integral_constant<int, 4>(), block); },
          [&] { body(std::integral_constant<int, 1>(), block); });
  });
}

template <class G>
void norm_kernel(Kernel& k, GradientConfig, NormArgs<DeviceArg> p) {
  k.block(int(kNormThreads));
  const auto at = chunk(p.table, p.chunks, k.ctaid_x(), {{kGradient, Elem<G>::bytes}});
  const auto gradient = elements<G>(at, kGradient);
  const auto squares = [&](auto n, const Val<u32>& i, const Val<f32>& sum) {
    constexpr int N = decltype(n)::value;
    const auto g = gradient.template ld<N>(i);
    std::vector<Val<f32>> partial{sum};
    for (int e = 0; e < N; ++e) {
      const auto x = to<f32>(g[e]);
      partial.push_back(fma<rn>(x, x, partial.back()));
    }
    return partial.back();
  };
  const auto vectors =
      k.loop(range(k.tid(), at.vectors, Val<u32>(kNormThreads)), Val<f32>(0.f),
             [&](Val<u32> i, Val<f32> sum) { return squares(std::integral_constant<int, 4>(), i, sum); });
  const auto all =
      k.loop(range(at.vectors * 4u + k.tid(), at.count, Val<u32>(kNormThreads)), vectors,
             [&](Val<u32> i, Val<f32> sum) { return squares(std::integral_constant<int, 1>(), i, sum); });
  auto cta = k.cta();
  const auto total = reduce(
      cta, all, [](auto x, auto y) { return x + y; }, 0.f);
  k.if_(k.tid() == 0, [&] { p.partial.st(k.ctaid_x(), total); });
}

template <class G>
void clip_kernel(Kernel& k, GradientConfig, ClipArgs<DeviceArg> p) {
  k.block(int(kThreads));
  const auto factor = bits<f32>(p.control.ld(int(OptimizerControl::kFactor)));
  k.exit_if(factor == 1.f);
  const auto at = chunk(p.table, p.chunks, k.nctaid_x() - 1u - k.ctaid_x(), {{kGradient, Elem<G>::bytes}});
  const auto gradient = elements<G>(at, kGradient);
  each(k, at, [&](auto n, const Val<u32>& i) {
    constexpr int N = decltype(n)::value;
    const auto g = gradient.template ld<N>(i);
    gradient.template st<N>(i,
                            RegGroup<G, N>::generate([&](int e) { return to<G>(to<f32>(g[e]) * factor); }));
  });
}

// b^n, by squaring.
Val<f64> power(Kernel& k, const Val<f64>& b, const Val<u32>& n) {
  using State = std::tuple<Val<f64>, Val<f64>>;
  return std::get<0>(k.loop(Val<u32>(32u), State{Val<f64>(1.0), b}, [&](Val<u32> bit, State s) {
    const auto [result, base] = s;
    return State{select(((n >> bit) & 1u) != 0, result * base, result), base * base};
  }));
}

// The sum of all partial sums, in every thread, added in an order that does not change.
Val<f64> total(Kernel& k, const ControlArgs<DeviceArg>& p) {
  auto partial = k.shared<f64>(int(kControlThreads));
  const auto tid = k.tid();
  const auto vectors = p.partials / 4u;
  const auto wide =
      k.loop(range(tid, vectors, Val<u32>(kControlThreads)), Val<f64>(0.0), [&](Val<u32> i, Val<f64> sum) {
        const auto x = p.partial.template ld<4>(i);
        return sum + ((to<f64>(x[0]) + to<f64>(x[1])) + (to<f64>(x[2]) + to<f64>(x[3])));
      });
  partial.st(tid, k.loop(range(vectors * 4u + tid, p.partials, Val<u32>(kControlThreads)), wide,
                         [&](Val<u32> i, Val<f64> sum) { return sum + to<f64>(p.partial.ld(i)); }));
  for (std::uint32_t half = kControlThreads / 2; half > 0; half /= 2) {
    k.sync();
    k.if_(tid < half, [&] {
      const auto low = partial.ld(tid);
      const auto high = partial.ld(tid + half);
      partial.st(tid, low + high);
    });
  }
  k.sync();
  return partial.ld(0);
}

void prepare_rates(Kernel& k, Rule rule, const ControlArgs<DeviceArg>& p, const Val<f32>& factor) {
  k.loop(range(k.tid(), p.tensors, Val<u32>(kControlThreads)), [&](Val<u32> i) {
    const auto row = p.table.at(to<u64>(i) * std::uint64_t(kTableWords));
    const auto counter = Ptr<global, f32>(row.ld(int(kStep)));
    const auto number = counter.ld() + 1.f;
    counter.st(0, number);
    const auto step = cvt<rni, u32>(number);
    const auto group = p.groups.at(to<u64>(to<u32>(row.ld(int(kGroup)))) * std::uint64_t(kGroupWords));
    std::vector<Val<f64>> g;
    for (int w = 0; w < kGroupWords; ++w) g.push_back(group.ld(w));
    const auto lr = g[kLr], b1 = g[kBeta1], b2 = g[kBeta2];
    const Val<f64> one(1.0);
    const bool adam = has_second_state(rule);
    const Val<f32> zero(0.f);
    const std::vector<Val<f32>> rate{// the members of UpdateRates
                                     to<f32>(adam ? lr / (one - power(k, b1, step)) : lr),
                                     to<f32>(decoupled(rule) ? lr * g[kDecay] : g[kDecay]),
                                     to<f32>(b1),
                                     to<f32>(one - b1),
                                     to<f32>(b2),
                                     to<f32>(one - b2),
                                     to<f32>(g[kEps]),
                                     adam ? to<f32>(one / sqrt<rn>(one - power(k, b2, step))) : Val<f32>(1.f),
                                     select(g[kMaximize] != 0.0, -factor, factor),
                                     number,
                                     zero,
                                     zero};
    const auto own = p.rates.at(to<u64>(i) * std::uint64_t(kOptimizerRateWords));
    for (int w = 0; w < int(kOptimizerRateWords); w += 4)
      own.template st<4>(w / 4, RegGroup<f32, 4>::generate([&](int e) { return rate[std::size_t(w + e)]; }));
  });
}

void control_kernel(Kernel& k, ControlConfig c, ControlArgs<DeviceArg> p) {
  using C = OptimizerControl;
  k.block(int(kControlThreads));
  const auto sum = total(k, p);
  const auto found = bits<f32>(p.control.ld(int(C::kFound)));
  const auto scale = bits<f32>(p.control.ld(int(C::kScale)));
  const auto finite = (sum < std::numeric_limits<double>::max()) &  // false of NaN
                      ((p.use_found == 0) | (found == 0.f));
  const auto norm = to<f32>(sqrt<rn>(sum)) / scale;
  const auto ratio = p.max_norm / (norm + 1e-6f);
  const auto factor = select(ratio >= 1.f, Val<f32>(1.f), ratio) / scale;  // NaN stays NaN
  k.sync();                                                                // all have read what one writes
  k.if_(k.tid() == 0, [&] {
    if (!c.clip) {
      const auto taken = p.control.ld(int(C::kTaken));
      const auto skipped = p.control.ld(int(C::kSkipped));
      const auto good = p.control.ld(int(C::kGood)) + 1u;
      const auto dynamic = p.growth_interval != 0;
      const auto grows = finite & dynamic & (good >= p.growth_interval);
      const auto falls = dynamic & !finite;
      const auto next = select(grows, scale * p.growth, select(falls, scale * p.backoff, scale));
      p.control.st(int(C::kTaken), select(finite, taken + 1u, taken));
      p.control.st(int(C::kSkipped), select(finite, skipped, skipped + 1u));
      p.control.st(int(C::kGood), select(finite & !grows, good, Val<u32>(0)));
      p.control.st(int(C::kScale), bits<u32>(next));
    }
    p.control.st(int(C::kSkip), select(finite, Val<u32>(0), Val<u32>(1)));
    p.control.st(int(C::kFactor), bits<u32>(factor));
    p.control.st(int(C::kNorm), bits<u32>(norm));
    p.control.st(int(C::kFound), bits<u32>(select(finite, Val<f32>(0.f), Val<f32>(1.f))));
  });
  if (!c.clip) k.if_(finite, [&] { prepare_rates(k, c.rule, p, factor); });
}

int lowest_sm(DType a, DType b) { return a == DType::bf16 || b == DType::bf16 ? 80 : 75; }

template <class W, class G>
Variant update(const UpdateConfig& c) {
  return config_variant("optimizer", c, lowest_sm(c.weight, c.gradient),
                        c.states8 ? update_8bit_kernel<W, G> : update_kernel<W, G>);
}
Variant update_variant(const UpdateConfig& c) {
  if (c.weight == DType::f16) return c.gradient == DType::f16 ? update<f16, f16>(c) : update<f16, f32>(c);
  if (c.weight == DType::bf16)
    return c.gradient == DType::bf16 ? update<bf16, bf16>(c) : update<bf16, f32>(c);
  if (c.gradient == DType::f16) return update<f32, f16>(c);
  return c.gradient == DType::bf16 ? update<f32, bf16>(c) : update<f32, f32>(c);
}
Variant norm_variant(DType t) {
  const GradientConfig c{t};
  const int sm = lowest_sm(t, t);
  if (t == DType::f16) return config_variant("optimizer_norm", c, sm, norm_kernel<f16>);
  return t == DType::bf16 ? config_variant("optimizer_norm", c, sm, norm_kernel<bf16>)
                          : config_variant("optimizer_norm", c, sm, norm_kernel<f32>);
}
Variant clip_variant(DType t) {
  const GradientConfig c{t};
  const int sm = lowest_sm(t, t);
  if (t == DType::f16) return config_variant("optimizer_clip", c, sm, clip_kernel<f16>);
  return t == DType::bf16 ? config_variant("optimizer_clip", c, sm, clip_kernel<bf16>)
                          : config_variant("optimizer_clip", c, sm, clip_kernel<f32>);
}
Variant control_variant(Rule r, bool clip = false) {
  return config_variant("optimizer_control", ControlConfig{r, clip}, 75, control_kernel);
}

constexpr std::pair<DType, DType> kTypes[] = {
    {DType::f32, DType::f32}, {DType::f32, DType::f16},   {DType::f32, DType::bf16}, {DType::f16, DType::f16},
    {DType::f16, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

using row::Checker;
std::uint32_t chunk_count(const Checker& c, const View& chunks) {
  c.present("chunks", chunks, {DType::u32}, false);
  if (chunks.address % 8) c.fail("chunks", "must begin at a multiple of 8 bytes", text::hex(chunks.address));
  return std::uint32_t(chunks.elements / 2);
}
void gradient_type(const Checker& c, DType t) {
  for (DType known : row::kFloats)
    if (t == known) return;
  c.fail("gradient", "must be f32, f16 or bf16", text::cat("it is ", name(t)));
}
void words(const Checker& c, std::string_view name, const View& v, DType t, std::uint64_t least, bool out) {
  c.present(name, v, {t}, out);
  if (v.elements < least)
    c.fail(name, text::cat("must have ", least, " words"), text::cat("it has ", v.elements));
  if (v.address % 16) c.fail(name, "must begin at a multiple of 16 bytes", text::hex(v.address));
}

}  // namespace

bool has_first_state(Rule r) { return r != Rule::descent; }
bool has_second_state(Rule r) { return r == Rule::adamw || r == Rule::adam; }

std::vector<std::uint32_t> optimizer_chunks(std::span<const std::uint64_t> elements) {
  std::vector<std::uint32_t> chunks;
  for (std::size_t i = 0; i < elements.size(); ++i)
    for (std::uint64_t at = 0; at < elements[i]; at += kChunk)
      chunks.insert(chunks.end(), {std::uint32_t(i), std::uint32_t(at / kChunk)});
  return chunks;
}

void optimizer_norm(runtime::Stream& s, DType gradient, const View& table, const View& chunks,
                    const View& partial) {
  const Checker c{"optimizer_norm"};
  const auto n = chunk_count(c, chunks);
  gradient_type(c, gradient);
  if (n == 0) return;
  words(c, "table", table, DType::u64, kTableWords, false);
  c.present("partial", partial, {DType::f32}, true), c.vector("partial", partial, n);
  launch::launch_kernel(
      s, load(s.device(), norm_variant(gradient)), runtime::Launch{.grid = {n}},
      NormArgs<launch::HostArg>{.table = table.arg(), .chunks = chunks.arg(), .partial = partial.arg()});
}

void optimizer_control(runtime::Stream& s, const OptimizerDecision& d, const OptimizerTables& t,
                       const View& partial) {
  const Checker c{"optimizer_control"};
  words(c, "control", t.control, DType::u32, kOptimizerControlWords, true);
  std::uint64_t tensors = 0;
  if (d.steps) {
    tensors = t.table.elements / kTableWords;
    words(c, "table", t.table, DType::u64, 0, false);
    words(c, "groups", t.groups, DType::f64, kGroupWords, false);
    words(c, "rates", t.rates, DType::f32, tensors * kOptimizerRateWords, true);
  }
  if (partial.given) words(c, "partial", partial, DType::f32, 0, false);
  launch::launch_kernel(s, load(s.device(), control_variant(d.steps ? d.rule : Rule::adamw, !d.steps)),
                        runtime::Launch{.grid = {1}},
                        ControlArgs<launch::HostArg>{
                            .partial = partial.arg(),
                            .table = t.table.arg(),
                            .control = t.control.arg(),
                            .groups = t.groups.arg(),
                            .rates = t.rates.arg(),
                            .partials = std::uint32_t(partial.given ? partial.elements : 0),
                            .tensors = std::uint32_t(tensors),
                            .growth_interval = d.growth_interval,
                            .use_found = std::uint32_t(d.use_found),
                            .max_norm = d.max_norm > 0 ? d.max_norm : std::numeric_limits<float>::infinity(),
                            .growth = d.growth,
                            .backoff = d.backoff});
}

void optimizer_update(runtime::Stream& s, const OptimizerTypes& types, const OptimizerTables& t,
                      const View& chunks, std::uint64_t seed) {
  const Checker c{"optimizer_update"};
  const auto n = chunk_count(c, chunks);
  bool known = false;
  for (const auto& [weight, gradient] : kTypes) known |= types.weight == weight && types.gradient == gradient;
  if (!known)
    c.fail("gradient", "is f32 or has the weight's type",
           text::cat("weights are ", name(types.weight), ", gradients ", name(types.gradient)));
  const bool stochastic = types.rounding == OptimizerRounding::stochastic;
  if (stochastic && (types.weight != DType::bf16 || types.master))
    throw Unsupported({"optimizer_update: stochastic rounding is for bf16 weights without a master",
                       {},
                       text::cat("weights are ", name(types.weight), types.master ? " with a master" : ""),
                       "take bf16 weights, or OptimizerRounding::nearest"});
  if (types.states8 && (types.master || !has_first_state(types.rule)))
    throw Unsupported({"optimizer_update: 8-bit states are for rules with states, without a master",
                       {},
                       types.master ? "there is a master" : "the rule is descent, which has none",
                       "take states of 32 bits"});
  if (n == 0) return;
  words(c, "table", t.table, DType::u64, kTableWords, false);
  words(c, "rates", t.rates, DType::f32, kOptimizerRateWords, false);
  words(c, "control", t.control, DType::u32, kOptimizerControlWords, false);
  const UpdateConfig config{types.rule,   types.weight, types.gradient,
                            types.master, stochastic,   types.states8};
  launch::launch_kernel(s, load(s.device(), update_variant(config)), runtime::Launch{.grid = {n}},
                        UpdateArgs<launch::HostArg>{.table = t.table.arg(),
                                                    .chunks = chunks.arg(),
                                                    .rates = t.rates.arg(),
                                                    .control = t.control.arg(),
                                                    .seed = seed});
}

void optimizer_clip(runtime::Stream& s, DType gradient, const View& table, const View& chunks,
                    const View& control) {
  const Checker c{"optimizer_clip"};
  const auto n = chunk_count(c, chunks);
  gradient_type(c, gradient);
  if (n == 0) return;
  words(c, "table", table, DType::u64, kTableWords, false);
  words(c, "control", control, DType::u32, kOptimizerControlWords, false);
  launch::launch_kernel(
      s, load(s.device(), clip_variant(gradient)), runtime::Launch{.grid = {n}},
      ClipArgs<launch::HostArg>{.table = table.arg(), .chunks = chunks.arg(), .control = control.arg()});
}

std::vector<Variant> optimizer_variants() {
  std::vector<Variant> all;
  for (int r = 0; r < int(std::size(kRules)); ++r) {
    all.push_back(control_variant(Rule(r)));
    for (auto [weight, gradient] : kTypes) {
      for (bool master : {false, true})
        all.push_back(update_variant({Rule(r), weight, gradient, master, false}));
      if (weight == DType::bf16) all.push_back(update_variant({Rule(r), weight, gradient, false, true}));
      if (has_first_state(Rule(r)))
        all.push_back(update_variant({Rule(r), weight, gradient, false, false, true}));
    }
  }
  all.push_back(control_variant(Rule::adamw, true));
  for (DType t : {DType::f32, DType::f16, DType::bf16})
    all.push_back(norm_variant(t)), all.push_back(clip_variant(t));
  return all;
}

}  // namespace cgp::kernels
