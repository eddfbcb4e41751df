// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm, forward. Skeletons and selection: row/row_kernel.h, row/row_plan.h.
//   memory   x (and residual) read once, y (and sum) written once; weight and bias come from
//            the caches, or stay in registers (row/row_plan.h)
#include "cgp/kernels/norm/norm.h"

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats, row::InRows, row::OutRows, row::Stat, row::Values;

struct NormConfig {
  row::RowConfig row{};
  bool layer = false;  ///< LayerNorm; the family of the name
  DType x{}, y{};
  std::optional<DType> residual{}, sum{}, weight{}, bias{};
  bool mean = false, rstd = false;  ///< are stored
  bool offset = false;              ///< is added to the weight
  bool grouped = false;             ///< rows lie in groups (Layout::inner)
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("x", "", c.x);
    v.type("y", "y_", c.y, c.x);
    v.operand("residual", c.residual, c.x);
    v.operand("sum", c.sum, c.x);
    row::RowConfig::visit(c.row, v);
    v.operand("weight", c.weight, c.x);
    v.operand("bias", c.bias, c.x);
    v.flag("mean", c.mean);
    v.flag("rstd", c.rstd);
    v.flag("offset", c.offset);
    v.flag("grouped", c.grouped);
  }
};

class Forward : public row::RowOp {
 public:
  Forward(const NormConfig& b, const Val<f32>& eps, const Val<f32>& offset, const Val<u64>& cols, OutRows y,
          std::optional<OutRows> sum, Out<f32> mean, Out<f32> rstd)
      : b_(b), eps_(eps), offset_(offset), y_(y), sum_(std::move(sum)), mean_(mean), rstd_(rstd) {
    fold = b.layer ? static_cast<const row::Fold*>(&moments_) : &sum_fold_;
    // Rings that hold their columns: every row has the same parts.
    if (b.layer && b.row.stages && b.row.hold_columns && !b.row.edges) fold = counted = &counted_;
    if (!b.layer) inverse_.push_back(rcp<rn>(to<f32>(cols)));
  }

  Stat part(Kernel&, const Values& v) override {
    kept_.clear();
    Floats all;
    for (int j = 0; j < v.count(); ++j) row::append(all, h(v, j));
    if (!b_.layer) return {row::dot(all, all)};
    Floats counts, squares;
    for (int j = 0; j < v.count() && !counted; ++j)
      counts.push_back(select(v.inside(j), Val<f32>(float(v.elements(j))), Val<f32>(0.f)));
    Stat s;
    if (!counted) s.push_back(row::sum(counts));
    const auto mean =
        counted ? row::sum(all) * counted->of_thread() : row::sum(all) / max(s[0], Val<f32>(1.f));
    for (int j = 0; j < v.count(); ++j) {
      Floats away;
      for (const auto& x : h(v, j, 1)) away.push_back(x - mean);
      squares.push_back(select(v.inside(j), row::dot(away, away), Val<f32>(0.f)));
    }
    s.push_back(mean), s.push_back(row::sum(squares));
    return s;
  }

  std::vector<Floats> finish(Kernel&, const Values& v, const Stat& s, std::vector<Floats>) override {
    const auto mean = counted ? s[0] : b_.layer ? s[1] : Val<f32>(0.f);
    const auto variance = counted ? s[1] * counted->of_row() : b_.layer ? s[2] / s[0] : s[0] * inverse_[0];
    const auto rstd = rsqrt<approx>(variance + eps_);
    // (x - mean) rstd in one operation: it rounds mean rstd once more, less than what the mean is wrong by.
    Floats shift;
    if (counted) shift.push_back(-mean * rstd);
    const auto y = v.target(y_);
    std::vector<Values::Target> sum;
    if (sum_) sum.push_back(v.target(*sum_));
    for (int j = 0; j < v.count(); ++j) {
      const auto x = h(v, j, b_.layer ? 2 : 1);
      if (sum_)
        sum[0].store_packed(j,
                            kept_.empty() ? row::pack({*b_.sum, v.elements(j)}, x) : kept_[std::size_t(j)]);
      Floats weight, bias, out;
      int column = 0;
      if (b_.weight) weight = v.column(column++, j, 1);
      if (b_.bias) bias = v.column(column, j, 1);
      for (std::size_t e = 0; e < x.size(); ++e) {
        const Val<f32> n = counted    ? fma(x[e], rstd, shift[0])
                           : b_.layer ? (x[e] - mean) * rstd
                                      : x[e] * rstd;
        const Val<f32> w = b_.weight ? (b_.offset ? weight[e] + offset_ : weight[e]) : Val<f32>(1.f);
        if (b_.bias)
          out.push_back(b_.weight ? fma(n, w, bias[e]) : n + bias[e]);
        else
          out.push_back(b_.weight ? n * w : n);
      }
      y.store(j, out);
    }
    if (b_.layer && b_.mean) mean_.st_if(v.leader(), v.row(), mean);
    if (b_.rstd) rstd_.st_if(v.leader(), v.row(), rstd);
    return {};
  }

 private:
  // x, or x + residual as it is stored.
  Floats h(const Values& v, int j, int use = 0) {
    if (!b_.residual) return v.at(0, j, use);
    const row::Format f{b_.sum.value_or(b_.x), v.elements(j)};
    if (v.kept() && std::size_t(j) < kept_.size()) return row::floats(f, kept_[std::size_t(j)], v.zero(use));
    const auto a = v.at(0, j), b = v.at(1, j);
    Floats s;
    for (std::size_t e = 0; e < a.size(); ++e) s.push_back(a[e] + b[e]);
    const auto packed = row::pack(f, s);
    if (v.kept()) kept_.push_back(packed);
    return row::floats(f, packed);
  }

  const NormConfig& b_;
  row::SumFold sum_fold_{1};
  row::Moments moments_;
  row::CountedMoments counted_;
  Val<f32> eps_, offset_;
  Floats inverse_;  // 1 / cols
  OutRows y_;
  std::optional<OutRows> sum_;
  Out<f32> mean_, rstd_;
  std::vector<row::Access> kept_;
};

template <template <class> class V>
struct NormArgs {
  V<In<b8>> x, residual, weight, bias;
  V<Out<b8>> y, sum;
  V<Out<f32>> mean, rstd;
  V<u64> rows, cols;
  V<u64> x_pitch, residual_pitch, y_pitch, sum_pitch;  ///< in elements
  V<f32> eps, offset;
  V<u32> inner;             ///< rows in groups (NormConfig::grouped)
  V<u64> x_outer, y_outer;  ///< elements between groups
};

void forward(Kernel& k, NormConfig b, NormArgs<DeviceArg> p) {
  InRows in{p.x, p.x_pitch, b.x};
  OutRows out{p.y, p.y_pitch, b.y};
  if (b.grouped) {
    in.outer.emplace(p.x_outer), in.inner.emplace(p.inner);
    out.outer.emplace(p.y_outer), out.inner.emplace(p.inner);
  }
  std::optional<OutRows> sum_rows;
  if (b.sum) sum_rows.emplace(OutRows{p.sum, p.sum_pitch, *b.sum});
  Forward op(b, p.eps, p.offset, p.cols, out, std::move(sum_rows), p.mean, p.rstd);
  op.inputs.push_back(in);
  if (b.residual) op.inputs.push_back({p.residual, p.residual_pitch, *b.residual});
  if (b.weight) op.columns.push_back({p.weight, *b.weight});
  if (b.bias) op.columns.push_back({p.bias, *b.bias});
  row::run_rows(k, b.row, p.rows, p.cols, op);
}

row::RowNeeds needs(const NormConfig& b) {
  row::RowNeeds n;
  n.inputs = {b.x}, n.outputs = {b.y}, n.fold_size = b.layer ? 3 : 1;
  if (b.residual) n.inputs.push_back(*b.residual);
  if (b.sum) n.outputs.push_back(*b.sum);
  if (b.weight) n.columns.push_back(*b.weight);
  if (b.bias) n.columns.push_back(*b.bias);
  return n;
}

Variant make(const NormConfig& c) {
  return config_variant(c.layer ? "layer_norm" : "rms_norm", c, row::min_sm(needs(c), c.row), forward);
}

// The checked problem: layouts filled in, build and plan decided.
struct Problem {
  Norm n;
  NormConfig build;
  std::string why;
};

Problem checked(Norm n, bool layer, const runtime::DeviceInfo& device) {
  const row::Checker c{layer ? "layer_norm" : "rms_norm"};
  if (n.rows && !n.cols) c.fail("cols", "must be at least 1", "cols = 0");
  if (!(n.eps >= 0) || std::isinf(n.eps))
    c.fail("eps", "must be a finite number, 0 or more", text::cat("eps = ", n.eps));
  c.present("x", n.x, row::kFloats, false);
  c.present("y", n.y, row::kFloats, true);
  n.x_layout = c.rows("x", n.x, n.rows, n.cols, n.x_layout);
  n.y_layout = c.rows("y", n.y, n.rows, n.cols, n.y_layout);
  NormConfig b;
  b.layer = layer, b.x = n.x.dtype, b.y = n.y.dtype, b.offset = n.weight_offset != 0;
  if (n.residual.given) {
    c.present("residual", n.residual, row::kFloats, false);
    n.residual_layout = c.rows("residual", n.residual, n.rows, n.cols, n.residual_layout);
    b.residual = n.residual.dtype;
  }
  if (n.sum.given) {
    if (!n.residual.given) c.fail("sum", "needs a residual", "without one it would be a copy of x");
    c.present("sum", n.sum, row::kFloats, true);
    n.sum_layout = c.rows("sum", n.sum, n.rows, n.cols, n.sum_layout);
    b.sum = n.sum.dtype;
  }
  if (n.weight.given) {
    c.present("weight", n.weight, row::kFloats, false), c.vector("weight", n.weight, n.cols);
    b.weight = n.weight.dtype;
  }
  if (n.bias.given) {
    if (!layer) c.fail("bias", "is not part of RMSNorm", "it was given", "use layer_norm, or leave it out");
    c.present("bias", n.bias, row::kFloats, false), c.vector("bias", n.bias, n.cols);
    b.bias = n.bias.dtype;
  }
  if (n.mean.given) {
    if (!layer) c.fail("mean", "is not part of RMSNorm", "it was given", "leave it out");
    c.present("mean", n.mean, {DType::f32}, true), c.vector("mean", n.mean, n.rows);
    b.mean = true;
  }
  if (n.rstd.given) {
    c.present("rstd", n.rstd, {DType::f32}, true), c.vector("rstd", n.rstd, n.rows);
    b.rstd = true;
  }
  b.grouped = n.x_layout.inner > 1 || n.y_layout.inner > 1;
  if (b.grouped && n.x_layout.inner != n.y_layout.inner)
    c.fail("y", "must have its rows in groups as x has",
           text::cat("inner = ", n.y_layout.inner, ", that of x is ", n.x_layout.inner));
  const auto need = needs(b);
  const int e = row::widest_access(need);
  const auto fit =
      row::fit(e, n.cols,
               {{n.x, n.x_layout}, {n.y, n.y_layout}, {n.residual, n.residual_layout}, {n.sum, n.sum_layout}},
               {n.weight, n.bias});
  auto plan = row::plan_rows(need, n.rows, n.cols, fit, device);
  b.row = n.config.value_or(plan.config);
  return {std::move(n), b, std::move(plan.why)};
}

void launch(runtime::Stream& s, const Norm& norm, bool layer) {
  const auto info = s.device().info();
  const auto p = checked(norm, layer, info);
  const Norm& n = p.n;
  if (n.rows == 0) return;
  const auto fn = load(s.device(), make(p.build));
  launch::launch_kernel(s, fn, row::grid(fn, p.build.row, needs(p.build), n.rows),
                        NormArgs<launch::HostArg>{.x = n.x.arg(),
                                                  .residual = n.residual.arg(),
                                                  .weight = n.weight.arg(),
                                                  .bias = n.bias.arg(),
                                                  .y = n.y.arg(),
                                                  .sum = n.sum.arg(),
                                                  .mean = n.mean.arg(),
                                                  .rstd = n.rstd.arg(),
                                                  .rows = n.rows,
                                                  .cols = n.cols,
                                                  .x_pitch = n.x_layout.pitch,
                                                  .residual_pitch = n.residual_layout.pitch,
                                                  .y_pitch = n.y_layout.pitch,
                                                  .sum_pitch = n.sum_layout.pitch,
                                                  .eps = n.eps,
                                                  .offset = n.weight_offset,
                                                  .inner = std::uint32_t(n.x_layout.inner),
                                                  .x_outer = n.x_layout.outer,
                                                  .y_outer = n.y_layout.outer});
}

}  // namespace

void rms_norm(runtime::Stream& s, const Norm& n) { launch(s, n, false); }
void layer_norm(runtime::Stream& s, const Norm& n) { launch(s, n, true); }

NormSteps norm_steps(const Norm& n, bool layer, const runtime::DeviceInfo& device) {
  const auto p = checked(n, layer, device);
  return {{make(p.build)}, p.why};
}

void qk_norm(runtime::Stream& s, const QkNorm& n) {
  const auto one = [&](const View& x, const View& y, const View& weight, const View& rstd,
                       std::uint64_t heads, std::uint64_t x_pitch, std::uint64_t y_pitch) {
    Norm r;
    r.x = x, r.y = y, r.weight = weight, r.rstd = rstd;
    r.rows = n.tokens * heads, r.cols = n.head_dim, r.eps = n.eps;
    r.x_layout = {n.head_dim, heads, x_pitch ? x_pitch : heads * n.head_dim};
    r.y_layout = {n.head_dim, heads, y_pitch ? y_pitch : heads * n.head_dim};
    rms_norm(s, r);
  };
  if (n.tokens && !n.head_dim) row::Checker{"qk_norm"}.fail("head_dim", "must be at least 1", "head_dim = 0");
  if (n.q_heads) one(n.q, n.q_out, n.q_weight, n.q_rstd, n.q_heads, n.q_pitch, n.q_out_pitch);
  if (n.k_heads) one(n.k, n.k_out, n.k_weight, n.k_rstd, n.k_heads, n.k_pitch, n.k_out_pitch);
}

}  // namespace cgp::kernels
