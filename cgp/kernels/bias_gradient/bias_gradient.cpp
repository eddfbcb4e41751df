// SPDX-License-Identifier: Apache-2.0
// out[c] = sum over rows of dy[r, c].
//   who      32 lanes side by side take an access each, 8 warps walk down the rows; a tile of columns has several splits of rows
//   memory   dy is read once, four accesses in flight a thread; a split leaves one f32 a column in the workspace
//   sync     the block that ends last of a tile adds up its splits, in their order
#include "cgp/kernels/bias_gradient/bias_gradient.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/common/words.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kDepth = 8, kUnroll = 4, kThreads = 32 * kDepth, kTogether = 8;
constexpr std::uint64_t kMostSplits = 64;

struct BiasGradientConfig {
  DType dy{};
  bool vector = false;      ///< 16-byte accesses
  bool accumulate = false;  ///< out is added to
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("dy", "", c.dy);
    v.flag("vector", c.vector);
    v.flag("accumulate", c.accumulate);
  }
  int elements() const { return vector ? 16 / bytes(dy) : 1; }
};

template <template <class> class V>
struct BiasGradientArgs {
  V<In<b8>> dy;
  V<Out<f32>> out;
  V<Out<f32>> partials;  ///< [splits][tiles * columns of a tile]
  V<Out<u32>> ended;     ///< blocks of each tile
  V<u64> rows, cols;
  V<u64> pitch;  ///< of dy, in accesses
  V<u32> tiles, splits;
  V<u64> split_rows;
};

template <class T, bool Vector>
void sum_columns(Kernel& k, BiasGradientConfig c, BiasGradientArgs<DeviceArg> p) {
  using W = Words<T, Vector>;
  using Acc = RegGroup<f32, W::elements>;
  constexpr std::uint32_t kColumns = 32 * W::elements;
  k.block(kThreads);
  const auto tile = k.ctaid_x() % p.tiles, split = k.ctaid_x() / p.tiles;
  const auto lane = k.tid() % 32u, depth = k.tid() / 32u;
  const auto column = (to<u64>(tile) * 32 + to<u64>(lane)) * W::elements;
  const auto first = to<u64>(split) * p.split_rows;
  const auto end = select(column < p.cols, dsl::min(first + p.split_rows, p.rows), Val<u64>(0));
  const auto src = p.dy.at(column * Elem<T>::bytes).template as<typename W::Word>();
  const auto acc =
      k.loop(range(first + to<u64>(depth), end, Val<u64>(kDepth * kUnroll)), Acc::splat(Val<f32>(0.f)),
             [&](Val<u64> row, Acc so_far) {
               std::vector<typename W::Access> got;
               for (int u = 0; u < kUnroll; ++u) {
                 const auto at = row + std::uint64_t(u * kDepth);
                 got.push_back(src.template ld_if<W::per_access, nc>(at < end, at * p.pitch, W::zero()));
               }
               std::vector<Acc> chain{so_far};
               for (const auto& g : got) {
                 const auto f = W::floats(g);
                 chain.push_back(Acc::generate([&](int e) { return chain.back()[e] + f[std::size_t(e)]; }));
               }
               return chain.back();
             });
  // Element-major: neighbours use neighbouring banks.
  const auto slots = k.shared<f32>(kDepth * int(kColumns));
  for (int e = 0; e < W::elements; ++e) slots.st(depth * kColumns + std::uint32_t(e) * 32u + lane, acc[e]);
  k.sync();
  const auto own = to<u64>(tile) * std::uint64_t(kColumns),
             across = to<u64>(p.tiles) * std::uint64_t(kColumns);
  const Val<pred> adds = k.tid() < kColumns;
  // Thread t has column t of the tile, which lane t / elements summed up as its element t % elements.
  k.if_(adds, [&] {
    const auto slot = (k.tid() % std::uint32_t(W::elements)) * 32u + k.tid() / std::uint32_t(W::elements);
    std::vector<Val<f32>> total;
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      const auto v = slots.ld(slot + d * kColumns);
      total.push_back(d ? total.back() + v : v);
    }
    p.partials.st(to<u64>(split) * across + own + to<u64>(k.tid()), total.back());
  });
  const auto last = k.shared<u32>(1);
  fence<acq_rel, gpu>(k);
  k.sync();
  k.if_(k.tid() == 0u, [&] {
    const auto is_last = atom<acq_rel, gpu, op::add>(p.ended, to<u64>(tile), 1u) == p.splits - 1u;
    last.st(0, select(is_last, Val<u32>(1), Val<u32>(0)));
    k.if_(is_last, [&] { p.ended.st(to<u64>(tile), 0u); });
  });
  k.sync();
  const auto at = own + to<u64>(k.tid());
  k.if_((last.ld(0) == 1u) & adds & (at < p.cols), [&] {
    fence<acq_rel, gpu>(k);
    const auto total = k.loop(range(Val<u32>(0), p.splits, Val<u32>(kTogether)), Val<f32>(0.f),
                              [&](Val<u32> i, Val<f32> sum) {
                                std::vector<Val<f32>> all{sum};
                                std::vector<Val<f32>> got;
                                for (std::uint32_t u = 0; u < kTogether; ++u)
                                  got.push_back(p.partials.template ld_if<1>(
                                      i + u < p.splits, to<u64>(i + u) * across + at, Val<f32>(0.f))[0]);
                                for (const auto& g : got) all.push_back(all.back() + g);
                                return all.back();
                              });
    p.out.st(at, c.accumulate ? p.out.ld(at) + total : total);
  });
}

Variant make(const BiasGradientConfig& c) {
  const auto of = [&]<class T>(T) {
    return config_variant("bias_gradient", c, c.dy == DType::bf16 ? 80 : 75,
                          c.vector ? sum_columns<T, true> : sum_columns<T, false>);
  };
  return c.dy == DType::f32 ? of(f32()) : c.dy == DType::f16 ? of(f16()) : of(bf16());
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

struct Plan {
  std::uint64_t tiles = 0, splits = 0, split_rows = 0;
  std::uint64_t counters() const { return ceil_div(tiles, 32) * 32; }
  std::uint64_t workspace(int elements) const {
    return counters() + splits * tiles * 32 * std::uint64_t(elements);
  }
};
/// Four blocks a multiprocessor, each with two turns of work or more.
Plan plan(int elements, std::uint64_t rows, std::uint64_t cols, const runtime::DeviceInfo& device) {
  Plan p;
  p.tiles = ceil_div(cols, 32 * std::uint64_t(elements));
  const auto blocks = 4 * std::uint64_t(std::max(1, device.sm_count));
  const auto useful = std::clamp<std::uint64_t>(rows / (kDepth * kUnroll * 2), 1, kMostSplits);
  p.splits = p.tiles ? std::clamp<std::uint64_t>(blocks / p.tiles, 1, useful) : 1;
  p.split_rows = ceil_div(rows, p.splits);
  return p;
}

struct Problem {
  BiasGradient b;
  BiasGradientConfig config;
  Plan plan;
};
Problem checked(BiasGradient b, const runtime::DeviceInfo& device) {
  const row::Checker c{"bias_gradient"};
  c.present("dy", b.dy, row::kFloats, false);
  c.present("out", b.out, {DType::f32}, true), c.vector("out", b.out, b.cols);
  b.dy_layout = c.rows("dy", b.dy, b.rows, b.cols, b.dy_layout);
  if (b.dy_layout.inner > 1)
    c.fail("dy", "cannot have its rows in groups", text::cat("inner = ", b.dy_layout.inner));
  BiasGradientConfig config{b.dy.dtype, true, b.accumulate};
  const auto e = std::uint64_t(config.elements());
  config.vector = b.dy.address % 16 == 0 && b.dy_layout.pitch % e == 0 && b.cols % e == 0;
  return {b, config, plan(config.elements(), b.rows, b.cols, device)};
}

}  // namespace

std::uint64_t bias_gradient_workspace(DType dy, std::uint64_t rows, std::uint64_t cols,
                                      const runtime::DeviceInfo& device) {
  std::uint64_t most = 0;  // alignment decides
  for (bool vector : {false, true}) {
    const int e = BiasGradientConfig{dy, vector, false}.elements();
    most = std::max(most, plan(e, rows, cols, device).workspace(e));
  }
  return most;
}

void bias_gradient(runtime::Stream& s, const BiasGradient& given) {
  const auto info = s.device().info();
  const auto [b, config, plan] = checked(given, info);
  if (b.cols == 0) return;
  const row::Checker c{"bias_gradient"};
  c.present("workspace", b.workspace, {DType::f32}, true);
  if (const auto want = plan.workspace(config.elements()); b.workspace.elements < want)
    c.fail("workspace", "is too small",
           text::cat("this shape needs ", want, " f32 elements, it has ", b.workspace.elements),
           "ask bias_gradient_workspace()");
  const auto e = std::uint64_t(config.elements());
  launch::launch_kernel(s, load(s.device(), make(config)), runtime::grid_for(plan.tiles * plan.splits, 1),
                        BiasGradientArgs<launch::HostArg>{.dy = b.dy.arg(),
                                                          .out = b.out.arg(),
                                                          .partials = b.workspace.from(plan.counters()).arg(),
                                                          .ended = b.workspace.arg(),
                                                          .rows = b.rows,
                                                          .cols = b.cols,
                                                          .pitch = b.dy_layout.pitch / e,
                                                          .tiles = std::uint32_t(plan.tiles),
                                                          .splits = std::uint32_t(plan.splits),
                                                          .split_rows = plan.split_rows});
}

KernelEntry bias_gradient_entry() {
  KernelEntry entry;
  entry.name = "bias_gradient", entry.summary = "sums of columns in f32, one launch, may be added in";
  entry.options = {{"dtype", "bf16", "f32, f16 or bf16"},
                   {"rows", "8192", "rows"},
                   {"cols", "3072", "columns"},
                   {"accumulate", "no", "yes: add to what out holds (ones)"}};
  entry.inputs = {"dy"};
  entry.images = [](std::string_view arch) {
    std::vector<Variant> all;
    for (DType t : {DType::bf16, DType::f16, DType::f32})
      for (bool vector : {true, false})
        for (bool accumulate : {false, true}) all.push_back(make({t, vector, accumulate}));
    return images(all, arch);
  };
  entry.prepare = [](const runtime::Device& dev, const Options& o, const std::vector<NamedArray>& given,
                     std::uint64_t seed) -> std::unique_ptr<Case> {
    BiasGradient b;
    const auto [t, rows, cols] = row::row_shape(o, given, "dy");
    constexpr std::string_view choices[] = {"no", "yes"};
    b.rows = rows, b.cols = cols, b.accumulate = o.choice("accumulate", choices) == "yes";
    auto c = std::make_unique<row::TensorCase>(dev);
    b.dy = c->input("dy", input_or_random(given, "dy", t, {rows, cols}, seed));
    b.out = c->output("out", DType::f32, {cols});
    const auto needed = bias_gradient_workspace(t, rows, cols, dev.info());
    b.workspace = c->workspace(DType::f32, needed);
    const auto p = checked(b, dev.info());
    c->runs({make(p.config)},
            text::cat(p.plan.tiles, " tiles of columns in ", p.plan.splits, " splits of rows"));
    c->run = [b](runtime::Stream& s) {
      const auto set = [&](const View& v, float value, std::uint64_t n) {
        const runtime::Slice<float> all(const_cast<runtime::Backend*>(v.backend), v.address, std::size_t(n));
        value != 0 ? (void)s.upload(all, std::vector<float>(n, value)) : (void)s.zero(all);
      };
      set(b.workspace, 0, b.workspace.elements);
      if (b.accumulate) set(b.out, 1, b.cols);
      bias_gradient(s, b);
    };
    c->oracle = [b](const row::TensorCase& in) {
      row::Expected out{"out", std::vector<double>(b.cols, b.accumulate ? 1.0 : 0.0), {}};
      std::vector<double> terms = out.want;
      const auto& dy = in.host("dy");
      for (std::uint64_t i = 0; i < dy.size(); ++i) {
        out.want[i % b.cols] += dy.at(i);
        terms[i % b.cols] += std::fabs(dy.at(i));
      }
      // Additions that follow each other: of a thread, of the warps, of the splits.
      const double chain = double(b.rows) / kDepth + kDepth + double(kMostSplits) + 1;
      for (double t : terms) out.tolerance.push_back(chain * unit_roundoff(DType::f32) * t);
      return std::vector<row::Expected>{out};
    };
    return c;
  };
  return entry;
}

}  // namespace cgp::kernels
