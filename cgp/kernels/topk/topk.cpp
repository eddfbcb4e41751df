// SPDX-License-Identifier: Apache-2.0
// topk: the k largest elements of rows, sorted.
//   who      a block for a row: of 128 threads where each has few accesses, else of 512
//   how      elements as integers of the same order. The k-th largest of the maxima of groups is a lower
//   bound,
//            found bit by bit with barriers that count. What is not below it goes into a list in any order; a
//            bitonic sort of (element, index) orders it, so that arrival does not matter. Where the list is
//            too short (many equals), elements are counted by digits of eight bits (2 digits for 16-bit
//            types, 4 for f32) until the k-th largest is known; those above it are put down, then its equals
//            by index.
//   memory   the row is read once for the bound and once to collect; with digits once more for each, and
//   again
#include "cgp/kernels/topk/topk.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kBins = 256;
constexpr float kLeast = -std::numeric_limits<float>::infinity();
// Accesses in flight: two keep the code of the passes small that are seldom made.
constexpr int kMaxima = 4, kLoads = 2;

struct TopKConfig {
  DType type{};
  int elements = 1;  ///< of an access
  int slots = 0;     ///< of the list: a power of two, at least twice k
  int groups = 1;    ///< of a thread, whose maxima give the bound: 1 or kMaxima
  int threads = 0;
  bool wide = false;  ///< indices are s64
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
    v.number("elements", "vec", c.elements, 1);
    v.number("threads", "threads", c.threads);
    v.number("slots", "slots", c.slots);
    v.number("groups", "groups", c.groups, 1);
    v.flag("index_s64", c.wide);
  }
};

using Keys = std::vector<Val<u32>>;

class TopKernel {
 public:
  TopKernel(Kernel& k, const TopKConfig& b, const In<b8>& row, const Val<u64>& accesses)
      : k_(k),
        f_{b.type, b.elements},
        threads_(b.threads),
        digits_(cgp::bytes(b.type)),
        row_(row),
        accesses_(to<u32>(accesses)),
        w_(k.warp()),
        bins_(k.shared<u32>(kBins)),
        warps_(k.shared<u32>(b.threads / 32)),
        counter_(k.shared<u32>(1)) {}

  struct Threshold {
    Val<u32> key, equals;  // of these so many belong to the result
    static auto carried() { return std::tuple(&Threshold::key, &Threshold::equals); }
  };

  /// Maxima of the groups of one thread, without NaNs: as f32, which takes two instructions an element.
  Keys maxima(int groups) {
    const auto n = std::size_t(groups);
    const auto found = k_.loop(turns(kMaxima), row::Floats(n, Val<f32>(kLeast)),
                               [&](const Val<u32>& base, const row::Floats& m) {
                                 const auto all = load(base, kMaxima);
                                 std::vector<row::Floats> best;
                                 for (const auto& first : m) best.push_back({first});
                                 for (std::size_t j = 0; j < kMaxima; ++j)
                                   for (const auto& x : row::floats(f_, all[j].words))
                                     best[j % n].push_back(dsl::max(best[j % n].back(), x));
                                 row::Floats next;
                                 for (const auto& b : best) next.push_back(b.back());
                                 return next;
                               });
    const row::Format one{f_.dtype, 1};
    Keys out;
    for (const auto& m : found) out.push_back(keys(one, row::pack(one, {m}), Val<pred>(true))[0]);
    return out;
  }
  /// The need-th largest of the threads' keys, at least 1, which is below all elements.
  Val<u32> bound(const Keys& own, const Val<u32>& need) {
    auto cta = k_.cta();
    const auto found = k_.loop(range(Val<u32>(0), Val<u32>(std::uint32_t(8 * digits_))),
                               std::pair{Val<u32>(0), Val<u32>(1u << (8 * digits_ - 1))},
                               [&](const Val<u32>&, const std::pair<Val<u32>, Val<u32>>& state) {
                                 const auto& [least, bit] = state;
                                 const auto more = least | bit;
                                 std::vector<Val<u32>> count;
                                 for (const auto& key : own) {
                                   const auto here = bar_red<op::popc>(cta, key >= more);
                                   count.push_back(count.empty() ? here : count.back() + here);
                                 }
                                 return std::pair{select(count.back() >= need, more, least), bit >> 1};
                               });
    return dsl::max(found.first, Val<u32>(1));
  }
  /// Puts all elements from `least` on into the list, in any order: how many there are, which may be too
  /// many.
  Val<u32> collect_from(const Val<u32>& least, const Ptr<shared, u64>& list, int slots) {
    k_.if_(k_.tid() == 0, [&] { counter_.st(0, Val<u32>(0)); });
    k_.sync();
    const auto bound = value_of(least);
    k_.loop(turns(kMaxima), [&](const Val<u32>& base) {
      const auto all = load(base, kMaxima);
      for (int j = 0; j < kMaxima; ++j) {
        const auto& access = all[std::size_t(j)];
        std::vector<Val<pred>> some;  // NaNs too, and everything where the bound is below all elements
        for (const auto& x : row::floats(f_, access.words))
          some.push_back(some.empty() ? !(x < bound) : some.back() | !(x < bound));
        k_.if_(some.back(), [&] {
          const auto all_keys = keys(f_, access.words, access.inside);
          for (std::size_t e = 0; e < all_keys.size(); ++e)
            k_.if_(all_keys[e] >= least, [&] {
              const auto slot = atom<relaxed, cta, op::add>(counter_, 0, Val<u32>(1));
              k_.if_(slot < std::uint32_t(slots),
                     [&] { list.st(slot, entry(index_of(base, j), e, all_keys[e])); });
            });
        });
      }
    });
    k_.sync();
    return counter_.ld(0);
  }
  Threshold select_above(const Val<u32>& bound, const Val<u32>& need) {
    return radix(need, [&](auto&& count) {
      k_.loop(turns(kLoads), [&](const Val<u32>& base) {
        for (const auto& access : load(base, kLoads))
          for (const auto& key : keys(f_, access.words, access.inside))
            k_.if_(key >= bound, [&] { count(key); });
      });
    });
  }
  /// Fills the list: above the threshold in any order, then its equals by index.
  void collect(const Threshold& t, const Val<u32>& wanted, const Ptr<shared, u64>& list) {
    k_.if_(k_.tid() == 0, [&] { counter_.st(0, Val<u32>(0)); });
    k_.sync();
    const auto above = wanted - t.equals;
    (void)k_.loop(turns(kLoads), Val<u32>(0), [&](const Val<u32>& base, Val<u32> taken) {
      const auto all = load(base, kLoads);
      std::vector<Val<u32>> state{taken};
      for (int j = 0; j < kLoads; ++j)
        state.push_back(collect_access(keys(f_, all[std::size_t(j)].words, all[std::size_t(j)].inside),
                                       index_of(base, j), t, above, state.back(), list));
      return state.back();
    });
    k_.sync();
  }
  void sort(const Ptr<shared, u64>& list, int slots) {
    const auto i = k_.tid();
    std::uint32_t steps = 0;
    for (std::uint32_t size = 2, n = 1; size <= std::uint32_t(slots); size *= 2) steps += n++;
    // Runs of `size`, compared `stride` apart. A loop: unrolled it would be most of the kernel's code.
    (void)k_.loop(range(Val<u32>(0), Val<u32>(steps)), std::pair{Val<u32>(2), Val<u32>(1)},
                  [&](const Val<u32>&, std::pair<Val<u32>, Val<u32>> state) {
                    const auto& [size, stride] = state;
                    for (int first = 0; first < slots / 2; first += threads_) {
                      const auto pair = i + std::uint32_t(first);
                      k_.if_(pair < std::uint32_t(slots / 2), [&] {
                        const auto low = pair * 2 - (pair & (stride - 1)), high = low + stride;
                        const auto a = list.ld(low), b = list.ld(high);
                        const auto falls = (low & size) == 0;
                        const auto more = dsl::max(a, b), less = dsl::min(a, b);
                        list.st(low, select(falls, more, less)), list.st(high, select(falls, less, more));
                      });
                    }
                    k_.sync();
                    const auto last = stride == 1;
                    return std::pair{select(last, size << 1, size), select(last, size, stride >> 1)};
                  });
  }
  /// Elements as unsigned integers of the same order; those that are not there are 0, below all others.
  static Keys keys(const row::Format& f, const row::Access& a, const Val<pred>& inside) {
    Keys out;
    const int bits_of = 8 * cgp::bytes(f.dtype);
    const std::uint32_t infinity = f.dtype == DType::f16 ? 0x7c000000u : 0x7f800000u;
    for (const auto& word : a)
      for (int half = 0; half < (bits_of == 32 || f.elements == 1 ? 1 : 2); ++half) {
        const auto w = bits<u32>(word);
        const auto u = bits_of == 32 ? w : half ? w & 0xffff0000u : w << 16;
        const auto zero = select(u == 0x80000000u, Val<u32>(0), u);
        const auto mask = bits<u32>(bits<s32>(zero) >> 31) | 0x80000000u;
        const auto key = select((u & 0x7fffffffu) > infinity, Val<u32>(0xffffffffu), zero ^ mask);
        out.push_back(select(inside, bits_of == 32 ? key : key >> 16, Val<u32>(0)));
      }
    return out;
  }

 private:
  Range<u32> turns(int loads) const {
    return range(Val<u32>(0), accesses_, Val<u32>(std::uint32_t(threads_ * loads)));
  }
  Val<u32> access_of(const Val<u32>& base, int j) const {
    return base + k_.tid() + std::uint32_t(j * threads_);
  }
  Val<u32> index_of(const Val<u32>& base, int j) const {
    return access_of(base, j) * std::uint32_t(f_.elements);
  }
  struct Loaded {
    row::Access words;
    Val<pred> inside;
  };
  // Elements that are not there are -infinity.
  std::vector<Loaded> load(const Val<u32>& base, int loads) const {
    std::vector<Loaded> got;
    for (int j = 0; j < loads; ++j) {
      const auto at = access_of(base, j);
      const Val<pred> inside = at < accesses_;
      got.push_back({row::load<nc>(f_, row_, at, inside, kLeast), inside});
    }
    return got;
  }
  // The element of a key, as f32; NaN where no element has it.
  Val<f32> value_of(const Val<u32>& key) const {
    const std::uint32_t sign = 1u << (8 * digits_ - 1);
    const auto word = select((key & sign) != 0, key ^ sign, ~key);
    return row::floats({f_.dtype, 1}, {bits<b32>(digits_ == 2 ? word & 0xffffu : word)})[0];
  }

  // The need-th largest key of those that `visit` hands to its argument, digit by digit.
  template <class Visit>
  Threshold radix(const Val<u32>& need, Visit&& visit) {
    std::vector<Threshold> t{{Val<u32>(0), need}};
    for (int d = digits_ - 1; d >= 0; --d) {
      for (int first = 0; first < kBins; first += threads_) {
        const auto bin = k_.tid() + std::uint32_t(first);
        k_.if_(bin < std::uint32_t(kBins), [&] { bins_.st(bin, Val<u32>(0)); });
      }
      k_.sync();
      const auto prefix = t.back().key;
      visit([&](const Val<u32>& key) {
        const auto digit = (key >> std::uint32_t(8 * d)) & 255u;
        const auto count = [&] { red<relaxed, cta, op::add>(bins_, digit, Val<u32>(1)); };
        if (d == digits_ - 1)
          count();
        else
          k_.if_((key >> std::uint32_t(8 * d + 8)) == prefix, count);
      });
      k_.sync();
      t.push_back(digit(t.back()));
      k_.sync();
    }
    return t.back();
  }
  // Which bin the need-th largest is in, and its place there. Each warp by itself: a lane has eight bins,
  // lane 0 the highest.
  Threshold digit(const Threshold& t) {
    const auto add = [](Val<u32> a, Val<u32> b) { return a + b; };
    const auto first = Val<u32>(kBins - 1) - w_.lane() * 8;
    std::vector<Val<u32>> bins, through;
    for (std::uint32_t i = 0; i < 8; ++i) {
      bins.push_back(bins_.ld(first - i));
      through.push_back(i ? through.back() + bins.back() : bins.back());
    }
    const auto before = inclusive_scan(w_, through.back(), add) - through.back();
    std::vector<Val<u32>> key{Val<u32>(0)}, place{Val<u32>(0)};
    for (std::uint32_t i = 0; i < 8; ++i) {
      const auto lower = i ? before + through[i - 1] : before;
      const Val<pred> here = (lower < t.equals) & (t.equals <= lower + bins[i]);
      key.push_back(select(here, first - i, key.back()));
      place.push_back(select(here, t.equals - lower, place.back()));
    }
    const auto found = reduce(w_, key.back(), add);
    return {t.key.is_literal() ? found : (t.key << 8) | found, reduce(w_, place.back(), add)};
  }

  static Val<u64> entry(const Val<u32>& first, std::size_t e, const Val<u32>& key) {
    return pack<u64>(~(first + std::uint32_t(e)), key);
  }

  // Returns how many equals the list has then.
  Val<u32> collect_access(const Keys& keys, const Val<u32>& first, const Threshold& t, const Val<u32>& above,
                          const Val<u32>& taken, const Ptr<shared, u64>& list) {
    std::vector<Val<u32>> equal{Val<u32>(0)};
    for (std::size_t e = 0; e < keys.size(); ++e) {
      k_.if_(keys[e] > t.key, [&] {
        list.st(atom<relaxed, cta, op::add>(counter_, 0, Val<u32>(1)), entry(first, e, keys[e]));
      });
      const auto same = to<u32>(keys[e] == t.key);
      equal.push_back(e ? equal.back() + same : same);
    }
    auto cta = k_.cta();
    const auto some = bar_red<op::or_>(cta, (equal.back() != 0) & (taken < t.equals));
    const auto add = [](Val<u32> a, Val<u32> b) { return a + b; };
    return k_.if_(
        some,
        [&] {
          const auto through = inclusive_scan(w_, equal.back(), add);
          k_.if_(w_.lane() == 31, [&] { warps_.st(k_.warp_index(), through); });
          k_.sync();
          const auto total =
              warps_.ld_if(w_.lane() < std::uint32_t(threads_ / 32), w_.lane(), Val<u32>(0))[0];
          const auto all = inclusive_scan(w_, total, add);
          const auto own = shfl<idx>(w_, all - total, k_.warp_index());
          const auto before = taken + own + (through - equal.back());
          for (std::size_t e = 0; e < keys.size(); ++e) {
            const auto rank = before + equal[e];
            k_.if_((keys[e] == t.key) & (rank < t.equals),
                   [&] { list.st(above + rank, entry(first, e, keys[e])); });
          }
          const auto sum = shfl<idx>(w_, all, threads_ / 32 - 1);
          k_.sync();
          return taken + sum;
        },
        [&] { return taken; });
  }

  Kernel& k_;
  row::Format f_;
  int threads_;
  int digits_;
  In<b8> row_;
  Val<u32> accesses_;
  Warp w_;
  Ptr<shared, u32> bins_, warps_, counter_;
};

template <template <class> class V>
struct TopKArgs {
  V<In<b8>> in;
  V<Out<b8>> values, index;
  V<u64> accesses;  ///< of a row
  V<u64> pitch;     ///< in elements
  V<u32> wanted;
};

void topk_rows(Kernel& k, TopKConfig b, TopKArgs<DeviceArg> p) {
  k.block(b.threads);
  const auto row = to<u64>(k.ctaid_x());
  const auto from = p.in.at(row * (p.pitch * std::uint64_t(cgp::bytes(b.type))));
  TopKernel top(k, b, from, p.accesses);
  const auto list = k.shared<u64>(b.slots);
  const auto clear = [&] {
    for (int i = 0; i < b.slots; i += b.threads)
      k.if_(k.tid() + std::uint32_t(i) < std::uint32_t(b.slots),
            [&] { list.st(k.tid() + std::uint32_t(i), Val<u64>(0)); });
  };
  clear();
  const auto bound = top.bound(top.maxima(b.groups), p.wanted);
  const auto found = assume_uniform(top.collect_from(bound, list, b.slots), Uniform::cta);
  k.if_(found > std::uint32_t(b.slots), [&] {
    clear();
    top.collect(top.select_above(bound, p.wanted), p.wanted, list);
  });
  top.sort(list, b.slots);
  k.loop(range(k.tid(), p.wanted, Val<u32>(std::uint32_t(b.threads))), [&](const Val<u32>& r) {
    const auto at = ~to<u32>(list.ld(r));
    const auto to_slot = row * to<u64>(p.wanted) + to<u64>(r);
    if (b.wide)
      p.index.as<u64>().st(to_slot, to<u64>(at));
    else
      p.index.as<u32>().st(to_slot, at);
    if (b.type == DType::f32)
      p.values.as<b32>().st(to_slot, from.as<const b32>().ld<nc>(at));
    else
      p.values.as<b16>().st(to_slot, from.as<const b16>().ld<nc>(at));
  });
}

Variant make(const TopKConfig& c) {
  return config_variant("topk", c, c.type == DType::bf16 ? 80 : 75, topk_rows);
}

struct Problem {
  TopK t;
  TopKConfig build;
};

Problem checked(TopK t) {
  const row::Checker check{"topk"};
  check.present("in", t.in, row::kFloats, false);
  if (t.cols > 1ull << 30) check.fail("cols", "must be at most 2^30", text::cat("cols = ", t.cols));
  if (t.k > std::min(t.cols, kMostTopK))
    check.fail("k", text::cat("must be at most cols and ", kMostTopK),
               text::cat("k = ", t.k, ", cols = ", t.cols), "sort the rows for more");
  if (t.rows > 0x7fffffffull) check.fail("rows", "must be below 2^31", text::cat("rows = ", t.rows));
  if (t.layout.inner > 1) check.fail("in", "cannot have its rows in groups", "inner > 1");
  t.layout = check.rows("in", t.in, t.rows, t.cols, t.layout);
  check.present("values", t.values, {t.in.dtype}, true);
  check.present("index", t.index, {DType::s32, DType::s64}, true);
  check.vector("values", t.values, t.rows * t.k), check.vector("index", t.index, t.rows * t.k);
  const int n = 16 / cgp::bytes(t.in.dtype);
  const int slots = t.k <= 64 ? 128 : t.k <= 256 ? 512 : 2048;
  const int elements = row::fits(t.in, t.cols, t.layout, n) ? n : 1;
  const bool few = t.cols <= 1024ull * std::uint64_t(elements) && t.k <= 256;
  const TopKConfig b{
      t.in.dtype, elements, slots, t.k > 64 ? kMaxima : 1, few ? 128 : 512, t.index.dtype == DType::s64};
  return {std::move(t), b};
}

// ---------------------------------------------------------------- catalogue
std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> all;
  const bool main_target = arch == "sm_90a" || arch == "sm_100a";
  for (DType t : {DType::bf16, DType::f16, DType::f32})
    for (auto [cols, k] : {std::pair<std::uint64_t, std::uint64_t>{4096, 50}, {32000, 50}, {4097, 1000}}) {
      const bool plain = t == (arch == "sm_75" ? DType::f16 : DType::bf16);
      if (!main_target ? !plain || k != 50 : !plain && k != (t == DType::f32 ? 1000 : 50)) continue;
      TopK p;
      p.in = p.values = View::stand_in(t),
      p.index = View::stand_in(t == DType::f16 ? DType::s32 : DType::s64);
      p.rows = 1, p.cols = cols, p.k = k;
      all.push_back(topk_variant(p));
    }
  return images(all, arch);
}

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const auto [t, rows, cols] = row::row_shape(o, given, "x");
  TopK p;
  p.rows = rows, p.cols = cols, p.k = o.size("k");
  auto c = std::make_unique<row::TensorCase>(d);
  p.in = c->input("x", input_or_random(given, "x", t, {p.rows, p.cols}, seed));
  p.values = c->output("values", t, {p.rows, p.k});
  p.index = c->output("index", o.flag("wide") ? DType::s64 : DType::s32, {p.rows, p.k});
  c->runs({topk_variant(p)}, "a bound from maxima of groups, then a sort of what is above it");
  c->flops = double(p.rows * p.cols);
  c->run = [p](runtime::Stream& s) { topk(s, p); };
  c->oracle = [p](const row::TensorCase& in) {
    row::Expected values{"values", {}, std::vector<double>(p.rows * p.k, 0)},
        index{"index", {}, values.tolerance};
    const auto x = in.host("x").as_doubles();
    std::vector<std::uint64_t> order(p.cols);
    for (std::uint64_t r = 0; r < p.rows; ++r) {
      const double* row = x.data() + r * p.cols;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) {
        return row[a] > row[b] || (row[a] != row[a] && row[b] == row[b]);
      });
      for (std::uint64_t i = 0; i < p.k; ++i)
        index.want.push_back(double(order[i])), values.want.push_back(row[order[i]]);
    }
    return std::vector<row::Expected>{index, values};
  };
  return c;
}

}  // namespace

void topk(runtime::Stream& s, const TopK& given) {
  const auto p = checked(given);
  const auto& t = p.t;
  if (t.rows == 0 || t.k == 0) return;
  launch::launch_kernel(s, load(s.device(), make(p.build)), runtime::grid_for(t.rows, 1),
                        TopKArgs<launch::HostArg>{.in = t.in.arg(),
                                                  .values = t.values.arg(),
                                                  .index = t.index.arg(),
                                                  .accesses = t.cols / std::uint64_t(p.build.elements),
                                                  .pitch = t.layout.pitch,
                                                  .wanted = std::uint32_t(t.k)});
}

Variant topk_variant(const TopK& t) { return make(checked(t).build); }

KernelEntry topk_entry() {
  KernelEntry e;
  e.name = "topk", e.summary = "the k largest elements of each row, sorted, with their indices";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"rows", "256", "rows"},
               {"cols", "32000", "columns"},
               {"k", "50", "elements of each row, at most 1024"},
               {"wide", "1", "indices are s64, else s32"}};
  e.inputs = {"x"};
  e.images = ships, e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
