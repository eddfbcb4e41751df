// SPDX-License-Identifier: Apache-2.0
// Sums of columns of f32 partial results.
//   who      a block has 32 columns; its 32 warps take every 32nd row, a lane one column
//   memory   each partial sum is read once, 128 bytes a warp
//   sync     one exchange through shared memory
#include "cgp/kernels/row/column_reduce.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels::row {
namespace {

using namespace dsl;

constexpr int kWarps = 32, kUnroll = 4;

struct ColumnReduceConfig {
  DType out{};
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("out", "", c.out);
  }
};

template <template <class> class V>
struct ColumnReduceArgs {
  V<In<f32>> partials;
  V<Out<b8>> out, second, third;  ///< of blocks with ctaid.y = 0, 1 and 2
  V<u64> teams, cols;
};

void reduce_columns(Kernel& k, ColumnReduceConfig c, ColumnReduceArgs<DeviceArg> p) {
  k.block(32 * kWarps);
  const auto slots = k.shared<f32>(32 * 33);
  const auto lane = k.laneid(), warp = k.warp_index();
  const auto column = to<u64>(k.ctaid_x()) * 32 + to<u64>(lane);
  const Val<pred> inside = column < p.cols;
  const auto which = k.ctaid_y();
  const auto own_column = p.partials.at(to<u64>(which) * p.teams * p.cols + column);
  const auto steps = range(to<u64>(warp), p.teams, Val<u64>(kWarps * kUnroll));
  const auto total = k.loop(steps, Floats(kUnroll, Val<f32>(0.f)), [&](Val<u64> team, Floats s) {
    Floats next;
    for (int u = 0; u < kUnroll; ++u) {
      const auto at = team + std::uint64_t(u * kWarps);
      const auto v = own_column.ld_if<1>(inside & (at < p.teams), at * p.cols, Val<f32>(0.f))[0];
      next.push_back(s[std::size_t(u)] + v);
    }
    return next;
  });
  slots.st(warp * 33 + lane, sum(total));
  k.sync();
  auto w = k.warp();
  // Warp i now has column i: lane j the sum of warp j.
  const auto all = reduce(w, slots.ld(lane * 33 + warp), [](auto a, auto b) { return a + b; });
  const auto its_column = to<u64>(k.ctaid_x()) * 32 + to<u64>(warp);
  const Format f{c.out, 1};
  const Val<pred> stores = (lane == 0) & (its_column < p.cols);
  store(f, p.out, its_column, stores & (which == 0), pack(f, {all}));
  store(f, p.second, its_column, stores & (which == 1), pack(f, {all}));
  store(f, p.third, its_column, stores & (which == 2), pack(f, {all}));
}

Variant make(DType out) {
  return config_variant("column_reduce", ColumnReduceConfig{out}, out == DType::bf16 ? 80 : 75,
                        reduce_columns);
}
/// The first ones of one type, up to three.
std::size_t in_one_launch(std::span<const View> outs) {
  std::size_t n = 1;
  while (n < std::min<std::size_t>(outs.size(), 3) && outs[n].dtype == outs[0].dtype) ++n;
  return n;
}

}  // namespace

std::vector<Variant> column_reduce_variants(std::span<const View> outs) {
  std::vector<Variant> all;
  for (; !outs.empty(); outs = outs.subspan(in_one_launch(outs))) all.push_back(make(outs[0].dtype));
  return all;
}

void column_reduce(runtime::Stream& s, const View& partials, std::span<const View> outs, std::uint64_t teams,
                   std::uint64_t cols) {
  if (cols == 0 || outs.empty()) return;
  const std::size_t together = in_one_launch(outs);
  auto grid = runtime::grid_for(cols, 32);
  grid.y = std::uint32_t(together);
  launch::launch_kernel(
      s, load(s.device(), make(outs[0].dtype)), grid,
      ColumnReduceArgs<launch::HostArg>{.partials = partials.arg(),
                                        .out = outs[0].arg(),
                                        .second = outs[std::min<std::size_t>(1, together - 1)].arg(),
                                        .third = outs[together - 1].arg(),
                                        .teams = teams,
                                        .cols = cols});
  if (together < outs.size())
    column_reduce(s, partials.from(together * teams * cols), outs.subspan(together), teams, cols);
}

}  // namespace cgp::kernels::row
