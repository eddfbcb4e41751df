// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient.
//   memory   logits read once (rows beyond registers: twice), the gradient written once, maybe over the
//            logits
//   who      skeletons of row/row_kernel.h; the thread that owns the target's column stores the loss, and
//            that element again
#include "cgp/kernels/cross_entropy/cross_entropy.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats, row::InRows, row::OutRows, row::Stat, row::Values;

struct CrossEntropyConfig {
  row::RowConfig row{};
  DType type{};  ///< of the logits
  std::optional<DType> gradient{};
  bool wide_targets = false;  ///< s64
  bool smooth = false, scale = false;
  bool loss = false, lse = false, error_flag = false;  ///< are stored
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("logits", "", c.type);
    row::RowConfig::visit(c.row, v);
    v.flag("targets_s64", c.wide_targets);
    v.flag("label_smoothing", c.smooth);
    v.flag("scaled", c.scale);
    v.flag("loss", c.loss);
    v.flag("lse", c.lse);
    v.flag("checked", c.error_flag);
    v.operand("gradient", c.gradient, c.type);
  }
};

template <template <class> class V>
struct CrossEntropyArgs {
  V<In<b8>> logits, targets;
  V<In<f32>> scale;
  V<Out<f32>> loss, lse;
  V<Out<b8>> dlogits;
  V<Out<u32>> error_flag;
  V<u64> rows, cols;
  V<u64> pitch, gradient_pitch;  ///< in elements
  V<s64> ignore;
  V<f32> smoothing, z_loss;
};
using Params = CrossEntropyArgs<DeviceArg>;

class Loss : public row::RowOp {
 public:
  Loss(const CrossEntropyConfig& b, const Params& p, std::optional<OutRows> out)
      : b_(b), p_(p), max_sum_(b.smooth ? 1 : 0), out_(std::move(out)) {
    fold = &max_sum_, once = !out_;
  }

  // The target as it is in memory: nobody waits for it before finish(). Where there is no gradient finish()
  // has no elements, and the target's comes too.
  std::vector<Val<b32>> begin(Kernel&, const Val<u64>& row, const Val<pred>& valid) override {
    std::vector<Val<b32>> words = load_target(row, valid);
    if (out_) return words;
    const auto t = target(words);
    const Val<pred> known = t.known & valid;
    const row::Format one{b_.type, 1};
    const auto& in = inputs[0];
    const auto element = in.base.at((row * in.pitch + select(known, t.column, Val<u64>(0))) *
                                    std::uint64_t(cgp::bytes(b_.type)));
    words.push_back(bits<b32>(row::floats(one, row::load<nc>(one, element, 0, known))[0]));
    return words;
  }

  Stat part(Kernel&, const Values& v) override {
    Floats all;
    for (int j = 0; j < v.count(); ++j) row::append(all, v.at(0, j));
    const auto m = row::largest(all), base = row::reference(m);
    Floats terms;
    for (int j = 0; j < v.count(); ++j)
      for (const auto& x : v.at(0, j, 1)) terms.push_back(row::exp_minus(x, base));
    Stat s{m, row::sum(terms)};
    if (b_.smooth) {
      Floats inside;
      for (int j = 0; j < v.count(); ++j)
        inside.push_back(select(v.inside(j), row::sum(v.at(0, j)), Val<f32>(0.f)));
      s.push_back(row::sum(inside));
    }
    return s;
  }

  std::vector<Floats> finish(Kernel& k, const Values& v, const Stat& s, std::vector<Floats>) override {
    const auto t = target(v.of_row());
    const auto wrong = (!t.known) & (!t.ignored);
    const auto lse = s[0] + row::natural_log(s[1]);
    const auto share = b_.smooth ? p_.smoothing / to<f32>(p_.cols) : Val<f32>(0.f);
    const auto keep = b_.smooth ? Val<f32>(1.f) - p_.smoothing : Val<f32>(1.f);
    const auto loss = [&](const Val<f32>& x) {
      const auto plain = b_.smooth ? lse - keep * x - share * s[2] : lse - x;
      return fma(p_.z_loss * lse, lse, plain);
    };
    const Val<f32> nan(std::numeric_limits<float>::quiet_NaN());
    if (b_.loss) {
      const auto none = select(t.ignored, Val<f32>(0.f), nan);  // of a row without a target
      if (out_)
        p_.loss.st_if(v.leader() & (wrong | t.ignored), v.row(), none);
      else
        p_.loss.st_if(v.leader(), v.row(),
                      select(wrong | t.ignored, none, loss(bits<f32>(v.of_row().back()))));
    }
    if (b_.lse) p_.lse.st_if(v.leader(), v.row(), lse);
    if (b_.error_flag)
      k.if_(v.leader() & wrong, [&] { red<relaxed, gpu, op::max>(p_.error_flag, 0, Val<u32>(1)); });
    if (!out_) return {};
    const auto scale = select(wrong, nan, b_.scale ? p_.scale.ld(0) : Val<f32>(1.f));
    const auto factor = scale * fma(p_.z_loss * 2.f, lse, Val<f32>(1.f)) * rcp<rn>(s[1]);
    const auto less = share * scale;
    const auto gradient = [&](const Val<f32>& x) {
      const auto p = row::exp_minus(x, s[0]);
      return b_.smooth ? fma(p, factor, -less) : p * factor;
    };
    const auto dx = v.target(*out_);
    const auto stored = [&](int j, const Floats& out) {
      row::Access words;
      for (const auto& w : row::pack({out_->dtype, v.elements(j)}, out))
        words.push_back(select(t.ignored, Val<b32>(0), w));
      dx.store_packed(j, words);
    };
    const Val<pred> used = t.known & (!t.ignored);
    if (v.elements() == 1) {  // many accesses: no branches, and one store of the loss
      std::vector<Val<f32>> found{Val<f32>(0.f)};
      std::vector<Val<pred>> any{Val<pred>(false)};
      for (int j = 0; j < v.count(); ++j) {
        const Val<pred> is_target = v.inside(j) & used & (t.column == v.index(j));
        const auto x = v.at(0, j, 2)[0];
        found.push_back(select(is_target, x, found.back())), any.push_back(any.back() | is_target);
        stored(j, {gradient(x) - select(is_target, keep * scale, Val<f32>(0.f))});
      }
      if (b_.loss) p_.loss.st_if(any.back(), v.row(), loss(found.back()));
      return {};
    }
    for (int j = 0; j < v.count(); ++j) {
      Floats out;
      for (const auto& x : v.at(0, j, 2)) out.push_back(gradient(x));
      stored(j, out);
      // The target's element again, by the thread that has just stored it; it alone has the element.
      const auto place = t.column - v.index(j);
      const auto is_target = v.inside(j) & used & (place < std::uint64_t(v.elements(j)));
      k.if_(is_target, [&] {
        const auto x = element(v.words(0, j), to<u32>(place));
        const row::Format one{out_->dtype, 1};
        const auto at = out_->base.at((v.row() * out_->pitch + t.column) * std::uint64_t(one.bytes()));
        row::store(one, at, 0, is_target, row::pack(one, {gradient(x) - keep * scale}));
        if (b_.loss) p_.loss.st(v.row(), loss(x));
      });
    }
    return {};
  }

 private:
  struct Target {
    Val<u64> column;
    Val<pred> known, ignored;
  };
  Target target(const std::vector<Val<b32>>& words) const {
    const auto at = b_.wide_targets ? bits<s64>(pack<b64>(words[0], words[1])) : to<s64>(bits<s32>(words[0]));
    const auto column = bits<u64>(at);
    return {column, column < p_.cols, at == p_.ignore};
  }
  std::vector<Val<b32>> load_target(const Val<u64>& row, const Val<pred>& valid) const {
    if (!b_.wide_targets) return {bits<b32>(p_.targets.as<s32>().ld_if<1>(valid, row, Val<s32>(0))[0])};
    const auto halves = unpack<b32>(bits<b64>(p_.targets.as<s64>().ld_if<1>(valid, row, Val<s64>(0))[0]));
    return {halves[0], halves[1]};
  }
  // Element `i` of an access.
  Val<f32> element(const row::Access& words, const Val<u32>& i) const {
    const bool halves = b_.type != DType::f32;
    const auto index = halves ? i >> 1 : i;
    std::vector<Val<b32>> found{words[0]};
    for (std::size_t n = 1; n < words.size(); ++n)
      found.push_back(select(index == std::uint32_t(n), words[n], found.back()));
    const auto& w = found.back();
    if (!halves) return bits<f32>(w);
    return row::floats({b_.type, 1}, {select((i & 1) != 0, w >> 16, w & Val<b32>(0xffffu))})[0];
  }
  const CrossEntropyConfig& b_;
  const Params& p_;
  row::MaxSum max_sum_;
  std::optional<OutRows> out_;
};

void cross_entropy_rows(Kernel& k, CrossEntropyConfig b, CrossEntropyArgs<DeviceArg> p) {
  std::optional<OutRows> out;
  if (b.gradient) out.emplace(OutRows{p.dlogits, p.gradient_pitch, *b.gradient});
  Loss op(b, p, out);
  if (b.row.shift) op.aligned.emplace(*out);
  op.inputs.push_back({p.logits, p.pitch, b.type, -std::numeric_limits<float>::infinity()});
  row::run_rows(k, b.row, p.rows, p.cols, op);
}

// One block, or a cluster of them: 12 bytes a target are nothing to read, if enough of them are on their way.
struct MeanLossConfig {
  bool wide = false;   ///< targets are s64
  bool counts = true;  ///< targets
  bool sum = false;    ///< losses
  int cluster = 1;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.flag("targets_s64", c.wide);
    v.flag("count", c.counts);
    v.flag("sum", c.sum);
    v.number("cluster", "cluster", c.cluster, 1);
  }
};
template <template <class> class V>
struct MeanLossArgs {
  V<In<b8>> targets;
  V<In<f32>> losses;
  V<Out<f32>> scale, loss;
  V<u64> n;
  V<s64> ignore;
};
void mean_loss_kernel(Kernel& k, MeanLossConfig b, MeanLossArgs<DeviceArg> p) {
  constexpr std::uint64_t kTogether = 8;  // loads of a thread on their way
  constexpr std::uint32_t kThreads = 1024;
  const std::uint64_t all = std::uint64_t(b.cluster) * kThreads;
  k.block(kThreads);
  if (b.cluster > 1) k.cluster(b.cluster);
  auto cta = k.cta();
  const Val<u32> rank = b.cluster > 1 ? k.cluster_ctarank() : Val<u32>(0);
  using State = std::tuple<Val<u32>, Val<f32>>;
  const auto sum_of = [](const auto& v) {
    auto total = std::vector{v[0]};
    for (std::size_t i = 1; i < v.size(); ++i) total.push_back(total.back() + v[i]);
    return total.back();
  };
  const auto [count, sum] = k.loop(
      range(to<u64>(rank * kThreads + k.tid()), p.n, Val<u64>(all * kTogether)),
      State(Val<u32>(0), Val<f32>(0)), [&](Val<u64> first, State now) {
        std::vector<Val<u32>> kept{std::get<0>(now)};
        std::vector<Val<f32>> losses{std::get<1>(now)};
        for (std::uint64_t i = 0; i < kTogether; ++i) {
          const auto at = first + i * all;
          const Val<pred> inside = at < p.n;
          if (b.counts) {
            const Val<s64> t =
                b.wide ? p.targets.template as<s64>().template ld_if<1>(inside, at, Val<s64>(0))[0]
                       : to<s64>(p.targets.template as<s32>().template ld_if<1>(inside, at, Val<s32>(0))[0]);
            kept.push_back(to<u32>(inside & (t != p.ignore)));
          }
          if (b.sum) losses.push_back(p.losses.template ld_if<1>(inside, at, Val<f32>(0))[0]);
        }
        return State(sum_of(kept), sum_of(losses));
      });
  const auto add = [](const auto& x, const auto& y) { return x + y; };
  const auto counts = b.counts ? reduce(cta, count, add, Val<u32>(0)) : Val<u32>(0);
  const auto loss = b.sum ? reduce(cta, sum, add, Val<f32>(0)) : Val<f32>(0);
  const auto finish = [&](const Val<u32>& n, const Val<f32>& total) {
    const auto factor = b.counts ? rcp<rn>(to<f32>(n)) : Val<f32>(1);
    if (b.counts) p.scale.st(0, factor);
    if (b.sum) p.loss.st(0, b.counts ? total * factor : total);
  };
  if (b.cluster == 1) {
    k.if_(k.tid() == 0, [&] { finish(counts, loss); });
    return;
  }
  const auto block_counts = k.shared<u32>(b.cluster);
  const auto block_losses = k.shared<f32>(b.cluster);
  k.if_(k.tid() == 0, [&] {
    mapa(block_counts.at(rank), 0u).st(0, counts);
    mapa(block_losses.at(rank), 0u).st(0, loss);
  });
  cluster_sync(cta);
  k.if_((k.tid() == 0) & (rank == 0), [&] {
    std::vector<Val<u32>> n;
    std::vector<Val<f32>> total;
    for (int i = 0; i < b.cluster; ++i) n.push_back(block_counts.ld(i)), total.push_back(block_losses.ld(i));
    finish(sum_of(n), sum_of(total));
  });
}

row::RowNeeds needs(const CrossEntropyConfig& b) {
  row::RowNeeds n;
  n.inputs = {b.type}, n.fold_size = b.smooth ? 3 : 2, n.registers = b.smooth ? 32 : 0, n.expensive = true;
  n.row_loads = true;
  if (b.gradient)
    n.outputs = {*b.gradient};
  else
    n.once = true;
  return n;
}

Variant make(const CrossEntropyConfig& c) {
  return config_variant("cross_entropy", c, row::min_sm(needs(c), c.row), cross_entropy_rows);
}

struct Problem {
  CrossEntropy c;
  CrossEntropyConfig build;
  std::string why;
};

Problem checked(CrossEntropy c, const runtime::DeviceInfo& device) {
  const row::Checker check{"cross_entropy"};
  if (c.rows && !c.cols) check.fail("cols", "must be at least 1", "cols = 0");
  if (!(c.label_smoothing >= 0 && c.label_smoothing <= 1))
    check.fail("label_smoothing", "must be from 0 to 1", text::cat("it is ", c.label_smoothing));
  check.present("logits", c.logits, row::kFloats, false);
  c.logits_layout = check.rows("logits", c.logits, c.rows, c.cols, c.logits_layout);
  check.present("targets", c.targets, {DType::s32, DType::s64}, false);
  check.vector("targets", c.targets, c.rows);
  CrossEntropyConfig b;
  b.type = c.logits.dtype, b.wide_targets = c.targets.dtype == DType::s64, b.smooth = c.label_smoothing > 0;
  const auto optional = [&](const char* name, const View& v, DType t, std::uint64_t n, bool out) {
    if (v.given) check.present(name, v, {t}, out), check.vector(name, v, n);
    return v.given;
  };
  b.loss = optional("loss", c.loss, DType::f32, c.rows, true);
  b.lse = optional("lse", c.lse, DType::f32, c.rows, true);
  b.scale = optional("scale", c.scale, DType::f32, 1, false);
  b.error_flag = optional("error_flag", c.error_flag, DType::u32, 1, true);
  if (c.dlogits.given) {
    check.present("dlogits", c.dlogits, row::kFloats, true);
    c.dlogits_layout = check.rows("dlogits", c.dlogits, c.rows, c.cols, c.dlogits_layout);
    b.gradient = c.dlogits.dtype;
    if (c.dlogits.address == c.logits.address && c.rows &&
        (c.dlogits.dtype != c.logits.dtype || c.dlogits_layout.pitch != c.logits_layout.pitch))
      check.fail("dlogits", "over the logits must have their type and pitch",
                 text::cat("it is ", cgp::name(c.dlogits.dtype), " with pitch ", c.dlogits_layout.pitch));
  }
  if (c.logits_layout.inner > 1 || c.dlogits_layout.inner > 1)
    check.fail("logits", "cannot have its rows in groups", "inner > 1");
  const auto need = needs(b);
  const int e = row::widest_access(need);
  const auto fit = row::fit(e, c.cols, {{c.logits, c.logits_layout}, {c.dlogits, c.dlogits_layout}});
  // Rows of both that begin at different distances from where memory is aligned, as PyTorch's of an odd vocabulary beside a gradient
  // with padded rows.
  const bool shifts = fit == row::Fit::element && c.dlogits.given && c.dlogits.dtype == c.logits.dtype;
  auto shifted = need;
  if (b.loss || b.lse || b.error_flag) shifted.registers += 8;
  auto plan = c.config ? row::RowPlan{*c.config, "as asked"}
              : shifts ? row::plan_shifted_rows(shifted, c.rows, c.cols, device)
                       : row::plan_rows(need, c.rows, c.cols, fit, device);
  b.row = plan.config;
  return {std::move(c), b, std::move(plan.why)};
}

}  // namespace

void cross_entropy(runtime::Stream& s, const CrossEntropy& given) {
  const auto p = checked(given, s.device().info());
  const auto& c = p.c;
  if (c.rows == 0) return;
  const auto fn = load(s.device(), make(p.build));
  launch::launch_kernel(s, fn, row::grid(fn, p.build.row, needs(p.build), c.rows),
                        CrossEntropyArgs<launch::HostArg>{.logits = c.logits.arg(),
                                                          .targets = c.targets.arg(),
                                                          .scale = c.scale.arg(),
                                                          .loss = c.loss.arg(),
                                                          .lse = c.lse.arg(),
                                                          .dlogits = c.dlogits.arg(),
                                                          .error_flag = c.error_flag.arg(),
                                                          .rows = c.rows,
                                                          .cols = c.cols,
                                                          .pitch = c.logits_layout.pitch,
                                                          .gradient_pitch = c.dlogits_layout.pitch,
                                                          .ignore = c.ignore_index,
                                                          .smoothing = c.label_smoothing,
                                                          .z_loss = c.z_loss});
}

void count_targets(runtime::Stream& s, const View& targets, std::int64_t ignore_index, const View& scale) {
  mean_loss(s, {}, targets, ignore_index, scale, {});
}

void mean_loss(runtime::Stream& s, const View& losses, const View& targets, std::int64_t ignore_index,
               const View& scale, const View& loss) {
  MeanLossConfig b{targets.dtype == DType::s64, scale.given, losses.given};
  const row::Checker check{b.sum ? "mean_loss" : "count_targets"};
  if (b.counts || !b.sum) {
    check.present("targets", targets, {DType::s32, DType::s64}, false);
    check.present("scale", scale, {DType::f32}, true), check.vector("scale", scale, 1);
  }
  const std::uint64_t n = b.counts ? targets.elements : losses.elements;
  if (b.sum) {
    check.present("losses", losses, {DType::f32}, false), check.vector("losses", losses, n);
    check.present("loss", loss, {DType::f32}, true), check.vector("loss", loss, 1);
  }
  const auto info = s.device().info();
  if (n > 8192 && info.cc_major >= 9 && info.max_cluster >= 8) b.cluster = 8;
  launch::launch_kernel(
      s, load(s.device(), config_variant("mean_loss", b, b.cluster > 1 ? 90 : 75, mean_loss_kernel)),
      runtime::Dim3{std::uint32_t(b.cluster)},
      MeanLossArgs<launch::HostArg>{.targets = targets.arg(),
                                    .losses = losses.arg(),
                                    .scale = scale.arg(),
                                    .loss = loss.arg(),
                                    .n = n,
                                    .ignore = ignore_index});
}

Variant cross_entropy_variant(const CrossEntropy& c, const runtime::DeviceInfo& device, std::string* why) {
  auto p = checked(c, device);
  if (why) *why = std::move(p.why);
  return make(p.build);
}

}  // namespace cgp::kernels
