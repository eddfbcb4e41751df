// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm, backward. With g = dy * (weight + offset), n = (x - mean) * rstd:
//   LayerNorm  dx = rstd * (g - mean(g) - n * mean(g * n))      dweight = sum over rows of dy * n
//   RMSNorm    the same without the mean(g) term                 dbias   = sum over rows of dy
//   dx_sum = sum over rows of dx, with dsum, before it is rounded
//   memory   x and dy read once, dx written once; sums over rows stay in the registers of persistent blocks,
//            and are added up by a second launch (row/column_reduce.h)
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/row/column_reduce.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats, row::InRows, row::OutRows, row::Stat, row::Values;

struct NormBackwardConfig {
  row::RowConfig row{};
  bool layer = false;  ///< LayerNorm; the family of the name
  DType x{}, dy{}, dx{};
  std::optional<DType> dsum{}, weight{};
  bool dweight = false, dbias = false, dx_sum = false;  ///< are computed
  bool offset = false;                                  ///< is added to the weight
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("x", "", c.x);
    v.type("dy", "dy_", c.dy, c.x);
    v.type("dx", "dx_", c.dx, c.x);
    v.operand("dsum", c.dsum, c.x);
    row::RowConfig::visit(c.row, v);
    v.operand("weight", c.weight, c.x);
    v.flag("dweight", c.dweight);
    v.flag("dbias", c.dbias);
    v.flag("dx_sum", c.dx_sum);
    v.flag("offset", c.offset);
  }
};

int accumulators_of(const NormBackwardConfig& c) { return int(c.dweight) + int(c.dbias) + int(c.dx_sum); }

class Backward : public row::RowOp {
 public:
  Backward(const NormBackwardConfig& b, In<f32> mean, In<f32> rstd, const Val<f32>& offset,
           const Val<u64>& cols, OutRows dx)
      : b_(b),
        mean_(mean),
        rstd_(rstd),
        offset_(offset),
        inverse_(rcp<rn>(to<f32>(cols))),
        dx_(std::move(dx)) {
    fold = b.layer ? &two_ : &one_;
    accumulators = accumulators_of(b);
  }

  std::vector<Val<b32>> begin(Kernel&, const Val<u64>& row, const Val<pred>& valid) override {
    std::vector<Val<b32>> of_row{bits<b32>(rstd_.ld_if<1>(valid, row, Val<f32>(0.f))[0])};
    if (b_.layer) of_row.push_back(bits<b32>(mean_.ld_if<1>(valid, row, Val<f32>(0.f))[0]));
    return of_row;
  }

  Stat part(Kernel&, const Values& v) override {
    Floats all_g, all_c;
    for (int j = 0; j < v.count(); ++j) {
      const auto g = gradient(v, j);
      row::append(all_g, g), row::append(all_c, centred(v, j));
    }
    Stat s{row::dot(all_g, all_c) * rstd(v)};
    if (b_.layer) s.push_back(row::sum(all_g));
    return s;
  }

  // dx = dy rstd w - c rstd^2 mean(g n) - rstd mean(g), where c = x - mean = n / rstd: dy rstd is a factor of
  // dweight too.
  std::vector<Floats> finish(Kernel&, const Values& v, const Stat& s, std::vector<Floats> acc) override {
    const auto dx = v.target(dx_);
    const auto along = -(s[0] * inverse_ * rstd(v)) * rstd(v);
    std::optional<Val<f32>> level;
    if (b_.layer) level.emplace(-(s[1] * inverse_) * rstd(v));
    std::vector<Floats> next(acc.size());
    std::size_t at = 0;  // of all elements
    for (int j = 0; j < v.count(); ++j) {
      const auto dy = v.at(1, j, 1), c = centred(v, j, 1);
      Floats out, w, more;
      if (b_.weight) w = weight(v, j, 1);
      if (b_.dsum) more = v.at(2, j);
      for (std::size_t e = 0; e < dy.size(); ++e, ++at) {
        const auto scaled = dy[e] * rstd(v);
        std::size_t a = 0;
        if (b_.dweight) next[a].push_back(fma(scaled, c[e], acc[a][at])), ++a;
        if (b_.dbias) next[a].push_back(acc[a][at] + dy[e]), ++a;
        const auto rest = b_.dsum ? fma(c[e], along, level ? more[e] + *level : more[e])
                          : level ? fma(c[e], along, *level)
                                  : c[e] * along;
        out.push_back(b_.weight ? fma(scaled, w[e], rest) : scaled + rest);
        if (b_.dx_sum) next[a].push_back(acc[a][at] + out.back());
      }
      dx.store(j, out);
    }
    return next;
  }

 private:
  Floats weight(const Values& v, int j, int use = 0) const {
    Floats out;
    for (const auto& w : v.column(0, j, use)) out.push_back(b_.offset ? w + offset_ : w);
    return out;
  }
  Floats gradient(const Values& v, int j) const {
    const auto dy = v.at(1, j);
    if (!b_.weight) return dy;
    const auto w = weight(v, j);
    Floats out;
    for (std::size_t e = 0; e < dy.size(); ++e) out.push_back(dy[e] * w[e]);
    return out;
  }
  // n / rstd.
  Floats centred(const Values& v, int j, int use = 0) const {
    const auto x = v.at(0, j, use);
    if (!b_.layer) return x;
    Floats out;
    for (const auto& e : x) out.push_back(e - mean(v));
    return out;
  }
  static Val<f32> rstd(const Values& v) { return bits<f32>(v.of_row()[0]); }
  static Val<f32> mean(const Values& v) { return bits<f32>(v.of_row()[1]); }

  const NormBackwardConfig& b_;
  row::SumFold one_{1}, two_{2};
  In<f32> mean_, rstd_;
  Val<f32> offset_, inverse_;
  OutRows dx_;
};

template <template <class> class V>
struct NormBackwardArgs {
  V<In<b8>> x, dy, dsum, weight;
  V<In<f32>> mean, rstd;
  V<Out<b8>> dx;
  V<Out<f32>> partials;
  V<u64> rows, cols;
  V<u64> x_pitch, dy_pitch, dsum_pitch, dx_pitch;  ///< in elements
  V<f32> offset;
};

void backward(Kernel& k, NormBackwardConfig b, NormBackwardArgs<DeviceArg> p) {
  Backward op(b, p.mean, p.rstd, p.offset, p.cols, OutRows{p.dx, p.dx_pitch, b.dx});
  op.inputs.push_back({p.x, p.x_pitch, b.x});
  op.inputs.push_back({p.dy, p.dy_pitch, b.dy});
  if (b.dsum) op.inputs.push_back({p.dsum, p.dsum_pitch, *b.dsum});
  if (b.weight) op.columns.push_back({p.weight, *b.weight});
  if (op.accumulators) op.partials.emplace(p.partials);
  row::run_rows(k, b.row, p.rows, p.cols, op);
}

row::RowNeeds needs(const NormBackwardConfig& b) {
  row::RowNeeds n;
  n.inputs = {b.x, b.dy}, n.outputs = {b.dx};
  if (b.dsum) n.inputs.push_back(*b.dsum);
  if (b.weight) n.columns.push_back(*b.weight);
  n.accumulators = accumulators_of(b);
  return n;
}

Variant make(const NormBackwardConfig& c) {
  return config_variant(c.layer ? "layer_norm_backward" : "rms_norm_backward", c,
                        row::min_sm(needs(c), c.row), backward);
}

struct Problem {
  NormBackward n;
  NormBackwardConfig build;
  std::string why;
};

Problem checked(NormBackward n, bool layer, const runtime::DeviceInfo& device) {
  const row::Checker c{layer ? "layer_norm_backward" : "rms_norm_backward"};
  if (n.rows && !n.cols) c.fail("cols", "must be at least 1", "cols = 0");
  c.present("x", n.x, row::kFloats, false);
  c.present("dy", n.dy, row::kFloats, false);
  c.present("dx", n.dx, row::kFloats, true);
  c.present("rstd", n.rstd, {DType::f32}, false), c.vector("rstd", n.rstd, n.rows);
  n.x_layout = c.rows("x", n.x, n.rows, n.cols, n.x_layout);
  n.dy_layout = c.rows("dy", n.dy, n.rows, n.cols, n.dy_layout);
  n.dx_layout = c.rows("dx", n.dx, n.rows, n.cols, n.dx_layout);
  NormBackwardConfig b;
  b.layer = layer, b.x = n.x.dtype, b.dy = n.dy.dtype, b.dx = n.dx.dtype, b.offset = n.weight_offset != 0;
  if (layer)
    c.present("mean", n.mean, {DType::f32}, false), c.vector("mean", n.mean, n.rows);
  else if (n.mean.given)
    c.fail("mean", "is not part of RMSNorm", "it was given", "leave it out");
  if (n.dsum.given) {
    c.present("dsum", n.dsum, row::kFloats, false);
    n.dsum_layout = c.rows("dsum", n.dsum, n.rows, n.cols, n.dsum_layout);
    b.dsum = n.dsum.dtype;
  }
  if (n.weight.given) {
    c.present("weight", n.weight, row::kFloats, false), c.vector("weight", n.weight, n.cols);
    b.weight = n.weight.dtype;
  }
  if (n.dweight.given) {
    c.present("dweight", n.dweight, row::kFloats, true), c.vector("dweight", n.dweight, n.cols);
    b.dweight = true;
  }
  if (n.dbias.given) {
    if (!layer) c.fail("dbias", "is not part of RMSNorm", "it was given", "leave it out");
    c.present("dbias", n.dbias, row::kFloats, true), c.vector("dbias", n.dbias, n.cols);
    b.dbias = true;
  }
  if (n.dx_sum.given) {
    c.present("dx_sum", n.dx_sum, row::kFloats, true), c.vector("dx_sum", n.dx_sum, n.cols);
    b.dx_sum = true;
  }
  for (const auto& [name, l] :
       {std::pair{"x", &n.x_layout}, {"dy", &n.dy_layout}, {"dx", &n.dx_layout}, {"dsum", &n.dsum_layout}})
    if (l->inner > 1) c.fail(name, "cannot have its rows in groups", text::cat("inner = ", l->inner));
  const auto need = needs(b);
  const int e = row::widest_access(need);
  const auto fit = row::fit(
      e, n.cols, {{n.x, n.x_layout}, {n.dy, n.dy_layout}, {n.dx, n.dx_layout}, {n.dsum, n.dsum_layout}},
      {n.weight});
  auto plan =
      n.config ? row::RowPlan{*n.config, "as asked"} : row::plan_rows(need, n.rows, n.cols, fit, device);
  b.row = plan.config;
  return {std::move(n), b, std::move(plan.why)};
}

std::uint64_t workspace(const Problem& p, const runtime::DeviceInfo& device) {
  return std::uint64_t(needs(p.build).accumulators) * row::most_teams(p.build.row, p.n.rows, device) *
         p.n.cols;
}

std::vector<View> column_results(const NormBackward& n) {
  std::vector<View> all;
  for (const View* out : {&n.dweight, &n.dbias, &n.dx_sum})
    if (out->given) all.push_back(*out);
  return all;
}

void launch(runtime::Stream& s, const NormBackward& given, bool layer) {
  const auto info = s.device().info();
  const auto p = checked(given, layer, info);
  const NormBackward& n = p.n;
  const auto need = needs(p.build);
  const std::uint64_t want = workspace(p, info);
  const row::Checker c{layer ? "layer_norm_backward" : "rms_norm_backward"};
  if (want) {
    c.present("workspace", n.workspace, {DType::f32}, true);
    if (n.workspace.elements < want)
      c.fail("workspace", "is too small",
             text::cat("this shape needs ", want, " f32 elements, it has ", n.workspace.elements),
             "ask norm_backward_workspace()");
    if (n.workspace.address % 16)
      c.fail("workspace", "must start at a multiple of 16 bytes",
             text::cat("its address is ", n.workspace.address));
  }
  if (n.cols == 0) return;
  const auto fn = load(s.device(), make(p.build));
  const auto grid = row::grid(fn, p.build.row, need, std::max<std::uint64_t>(n.rows, 1));
  launch::launch_kernel(s, fn, grid,
                        NormBackwardArgs<launch::HostArg>{.x = n.x.arg(),
                                                          .dy = n.dy.arg(),
                                                          .dsum = n.dsum.arg(),
                                                          .weight = n.weight.arg(),
                                                          .mean = n.mean.arg(),
                                                          .rstd = n.rstd.arg(),
                                                          .dx = n.dx.arg(),
                                                          .partials = n.workspace.arg(),
                                                          .rows = n.rows,
                                                          .cols = n.cols,
                                                          .x_pitch = n.x_layout.pitch,
                                                          .dy_pitch = n.dy_layout.pitch,
                                                          .dsum_pitch = n.dsum_layout.pitch,
                                                          .dx_pitch = n.dx_layout.pitch,
                                                          .offset = n.weight_offset});
  const auto teams =
      std::uint64_t(grid.x) / std::uint64_t(p.build.row.cluster) * std::uint64_t(p.build.row.rows);
  row::column_reduce(s, n.workspace, column_results(n), teams, n.cols);
}

}  // namespace

void rms_norm_backward(runtime::Stream& s, const NormBackward& n) { launch(s, n, false); }
void layer_norm_backward(runtime::Stream& s, const NormBackward& n) { launch(s, n, true); }

std::uint64_t norm_backward_workspace(const NormBackward& n, bool layer, const runtime::DeviceInfo& device) {
  return workspace(checked(n, layer, device), device);
}
NormSteps norm_backward_steps(const NormBackward& n, bool layer, const runtime::DeviceInfo& device) {
  const auto p = checked(n, layer, device);
  NormSteps steps{{make(p.build)}, p.why};
  for (auto& v : row::column_reduce_variants(column_results(n))) steps.variants.push_back(std::move(v));
  return steps;
}

}  // namespace cgp::kernels
