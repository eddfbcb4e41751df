// SPDX-License-Identifier: Apache-2.0
// argmax on the skeletons of rows (row/row_kernel.h): rows are read once; the statistics of a part are
// (value, index), the index as the bits of an f32.
#include "cgp/kernels/argmax/argmax.h"

#include <bit>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats, row::InRows, row::Stat, row::Values;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Whether b beats a where a comes first: larger, or a NaN where a is none. Equal ones do not.
Val<pred> beats(const Val<f32>& b, const Val<f32>& a) { return setp<gtu>(b, a) & (a == a); }

Stat better(const Stat& a, const Stat& b) {
  const auto ia = bits<u32>(a[1]), ib = bits<u32>(b[1]);
  const Val<pred> nan = (a[0] != a[0]) & (b[0] != b[0]);
  const Val<pred> take = beats(b[0], a[0]) | (((a[0] == b[0]) | nan) & (ib < ia));
  return {select(take, b[0], a[0]), select(take, b[1], a[1])};
}

class Largest : public row::Fold {
 public:
  /// Behind every index, so that an element of -inf beats it.
  std::vector<float> nothing() const override { return {-kInf, std::bit_cast<float>(0x7f7fffffu)}; }
  Stat merge(const std::vector<Stat>& partials) const override {
    std::vector<Stat> best{partials[0]};
    for (std::size_t i = 1; i < partials.size(); ++i) best.push_back(better(best.back(), partials[i]));
    return best.back();
  }
  Stat lanes(Warp& w, const Stat& part, int width) const override {
    std::vector<Stat> best{part};
    for (int offset = width / 2; offset > 0; offset /= 2) {
      const auto& b = best.back();
      const Stat other{shfl<bfly>(w, b[0], offset), shfl<bfly>(w, b[1], offset)};
      best.push_back(better(b, other));
    }
    return best.back();
  }
};

template <class T>
Val<b32> larger(const Val<b32>& a, const Val<b32>& b) {
  return bits<b32>(max<NaN>(bits<T>(a), bits<T>(b)));
}
// The largest element, NaN if there is one; of zeros with different signs either.
Val<f32> largest(const row::Format& f, const row::Access& words) {
  const auto pair = f.dtype == DType::f32    ? larger<f32>
                    : f.dtype == DType::bf16 ? larger<bf16x2>
                                             : larger<f16x2>;
  row::Access level = words;
  while (level.size() > 1) {
    row::Access next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(pair(level[i], level[i + 1]));
    level.swap(next);
  }
  const auto last = row::floats({f.dtype, std::min(f.elements, f.dtype == DType::f32 ? 1 : 2)}, level);
  return last.size() > 1 ? max<NaN>(last[0], last[1]) : last[0];
}
Val<f32> largest_in_order(const Floats& v) {
  Floats best{v[0]};
  for (std::size_t i = 1; i < v.size(); ++i)
    best.push_back(select(beats(v[i], best.back()), v[i], best.back()));
  return best.back();
}

struct ArgMaxConfig {
  row::RowConfig row{};
  DType type{};
  bool wide = false;     ///< indices are s64
  bool values = false;   ///< are stored too
  bool grouped = false;  ///< rows lie in groups (Layout::inner)
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
    row::RowConfig::visit(c.row, v);
    v.flag("index_s64", c.wide);
    v.flag("values", c.values);
    v.flag("grouped", c.grouped);
  }
};

class Op : public row::RowOp {
 public:
  Op(const ArgMaxConfig& b, const Out<b8>& index, const Out<b8>& values)
      : b_(b), index_(index), values_(values) {
    fold = &largest_, once = true;
  }
  // Which access holds the largest is decided by maxima, packed as the elements came; only that access is
  // searched. A thread's accesses come in the order of their indices: an equal one does not beat. The element
  // before or after them comes last, wherever it is.
  Stat part(Kernel& k, const Values& v) override {
    const bool packed = k.sm() >= 80;  // maxima that pass NaNs on
    std::vector<Stat> partials;
    std::vector<Best> best;
    for (int j = 0; j < v.count(); ++j) {
      const row::Format f{b_.type, v.elements(j)};
      const auto& words = v.words(0, j);
      const auto top = packed ? largest(f, words) : largest_in_order(row::floats(f, words));
      const auto first = to<u32>(v.index(j));
      if (f.elements < v.elements()) {
        partials.push_back({top, bits<f32>(first)});
        continue;
      }
      if (best.empty()) {
        best.push_back({words, top, first});
        continue;
      }
      const auto& was = best.back();
      const auto take = beats(top, was.top);
      row::Access chosen;
      for (std::size_t w = 0; w < words.size(); ++w) chosen.push_back(select(take, words[w], was.words[w]));
      best.push_back({std::move(chosen), select(take, top, was.top), select(take, first, was.first)});
    }
    if (!best.empty()) partials.push_back(found(best.back(), {b_.type, v.elements()}));
    return largest_.merge(partials);
  }
  std::vector<Floats> finish(Kernel&, const Values& v, const Stat& s, std::vector<Floats>) override {
    const auto at = bits<u32>(s[1]);
    if (b_.wide)
      index_.as<u64>().st_if(v.leader(), v.row(), to<u64>(at));
    else
      index_.as<u32>().st_if(v.leader(), v.row(), at);
    if (b_.values) row::store({b_.type, 1}, values_, v.row(), v.leader(), row::pack({b_.type, 1}, {s[0]}));
    return {};
  }

 private:
  struct Best {
    row::Access words;
    Val<f32> top;
    Val<u32> first;
  };
  // What lies outside is -inf at an index beyond the row: it loses against a row of -inf.
  static Stat found(const Best& b, const row::Format& f) {
    const auto x = row::floats(f, b.words);
    std::vector<std::pair<Val<f32>, Val<u32>>> at{{x.back(), Val<u32>(std::uint32_t(x.size() - 1))}};
    for (std::size_t e = x.size() - 1; e-- > 0;) {
      const Val<pred> is = (x[e] == b.top) | (x[e] != x[e]);
      at.push_back(
          {select(is, x[e], at.back().first), select(is, Val<u32>(std::uint32_t(e)), at.back().second)});
    }
    return {at.back().first, bits<f32>(b.first + at.back().second)};
  }
  const ArgMaxConfig& b_;
  Largest largest_;
  Out<b8> index_, values_;
};

template <template <class> class V>
struct ArgMaxArgs {
  V<In<b8>> in;
  V<Out<b8>> index, values;
  V<u64> rows, cols, pitch;  ///< pitch in elements
  V<u32> inner;              ///< rows in groups (ArgMaxConfig::grouped)
  V<u64> outer;              ///< elements between groups
};

void argmax_rows(Kernel& k, ArgMaxConfig b, ArgMaxArgs<DeviceArg> p) {
  Op op(b, p.index, p.values);
  op.inputs.push_back({p.in, p.pitch, b.type, -kInf});
  if (b.grouped) op.inputs[0].outer.emplace(p.outer), op.inputs[0].inner.emplace(p.inner);
  row::run_rows(k, b.row, p.rows, p.cols, op);
}

row::RowNeeds needs(DType t) {
  row::RowNeeds n;
  n.inputs = {t}, n.fold_size = 2, n.once = true, n.registers = 8;
  return n;
}

Variant make(const ArgMaxConfig& c) {
  return config_variant("argmax", c, row::min_sm(needs(c.type), c.row), argmax_rows);
}

struct Problem {
  ArgMax a;
  ArgMaxConfig build;
  std::string why;
};

Problem checked(ArgMax a, const runtime::DeviceInfo& device) {
  const row::Checker check{"argmax"};
  if (a.rows && !a.cols) check.fail("cols", "must be at least 1", "cols = 0: there is no largest element");
  if (a.cols > 1ull << 30) check.fail("cols", "must be at most 2^30", text::cat("cols = ", a.cols));
  check.present("in", a.in, row::kFloats, false);
  a.layout = check.rows("in", a.in, a.rows, a.cols, a.layout);
  if (a.layout.inner > 0xffffffffull)
    check.fail("in", "has rows in groups of less than 2^32", text::cat("inner = ", a.layout.inner));
  check.present("index", a.index, {DType::s32, DType::s64}, true);
  check.vector("index", a.index, a.rows);
  if (a.values.given)
    check.present("values", a.values, {a.in.dtype}, true), check.vector("values", a.values, a.rows);
  const auto n = needs(a.in.dtype);
  const auto fit = row::fit(row::widest_access(n), a.cols, {{a.in, a.layout}});
  auto plan = a.config ? row::RowPlan{*a.config, "as asked"} : row::plan_rows(n, a.rows, a.cols, fit, device);
  const ArgMaxConfig b{plan.config, a.in.dtype, a.index.dtype == DType::s64, a.values.given,
                       a.layout.inner > 1};
  return {std::move(a), b, std::move(plan.why)};
}

// ---------------------------------------------------------------- catalogue
std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> all;
  runtime::DeviceInfo device;
  for (DType t : {DType::bf16, DType::f16, DType::f32}) {
    const auto configs = row::shipped_configs(needs(t), arch);
    const auto step = row::image_step(arch, t, false);
    for (std::size_t i = 0; i < configs.size(); i += step) {
      ArgMax a;
      a.in = View::stand_in(t), a.index = View::stand_in(DType::s64), a.rows = a.cols = 1,
      a.config = configs[i];
      if (i % 2) a.values = View::stand_in(t);
      all.push_back(argmax_variant(a, device, nullptr));
    }
  }
  return images(all, arch);
}

std::uint64_t largest(const HostArray& x, std::uint64_t row, std::uint64_t cols) {
  std::uint64_t best = 0;
  for (std::uint64_t c = 1; c < cols; ++c) {
    const double b = x.at(row * cols + best), v = x.at(row * cols + c);
    if (v > b || (v != v && b == b)) best = c;
  }
  return best;
}

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const auto [t, rows, cols] = row::row_shape(o, given, "x");
  ArgMax a;
  a.rows = rows, a.cols = cols;
  auto c = std::make_unique<row::TensorCase>(d);
  a.in = c->input("x", input_or_random(given, "x", t, {a.rows, a.cols}, seed));
  a.index = c->output("index", o.flag("wide") ? DType::s64 : DType::s32, {a.rows});
  if (o.flag("values")) a.values = c->output("values", t, {a.rows});
  std::string why;
  const auto v = argmax_variant(a, d.info(), &why);
  c->runs({v}, why);
  c->flops = double(a.rows * a.cols);
  c->run = [a](runtime::Stream& s) { argmax(s, a); };
  c->oracle = [a](const row::TensorCase& in) {
    row::Expected index{"index", {}, std::vector<double>(a.rows, 0)}, values{"values", {}, index.tolerance};
    const auto& x = in.host("x");
    for (std::uint64_t r = 0; r < a.rows; ++r) {
      index.want.push_back(double(largest(x, r, a.cols)));
      values.want.push_back(x.at(r * a.cols + std::uint64_t(index.want.back())));
    }
    std::vector<row::Expected> all{index};
    if (a.values.given) all.push_back(values);
    return all;
  };
  return c;
}

}  // namespace

void argmax(runtime::Stream& s, const ArgMax& given) {
  const auto p = checked(given, s.device().info());
  const auto& a = p.a;
  if (a.rows == 0) return;
  const auto fn = load(s.device(), make(p.build));
  launch::launch_kernel(s, fn, row::grid(fn, p.build.row, needs(a.in.dtype), a.rows),
                        ArgMaxArgs<launch::HostArg>{.in = a.in.arg(),
                                                    .index = a.index.arg(),
                                                    .values = a.values.arg(),
                                                    .rows = a.rows,
                                                    .cols = a.cols,
                                                    .pitch = a.layout.pitch,
                                                    .inner = std::uint32_t(a.layout.inner),
                                                    .outer = a.layout.outer});
}

Variant argmax_variant(const ArgMax& a, const runtime::DeviceInfo& device, std::string* why) {
  auto p = checked(a, device);
  if (why) *why = std::move(p.why);
  return make(p.build);
}

KernelEntry argmax_entry() {
  KernelEntry e;
  e.name = "argmax", e.summary = "index of the largest element of each row, the lowest among equals";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"rows", "1024", "rows"},
               {"cols", "32000", "columns"},
               {"wide", "1", "the index is s64, else s32"},
               {"values", "0", "the elements too"}};
  e.inputs = {"x"};
  e.images = ships, e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
