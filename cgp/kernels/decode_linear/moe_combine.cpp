// SPDX-License-Identifier: Apache-2.0
// A thread has four columns of a token.
#include "cgp/kernels/decode_linear/moe_combine.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kThreads = 256;

template <template <class> class V>
struct MoeCombineParams {
  V<u64> y, rows, weights, out, ldo;
  V<u32> k;
};

void moe_combine_kernel(Kernel& k, MoeCombineConfig c, MoeCombineParams<Val> p) {
  k.block(int(kThreads));
  const auto token = k.ctaid_y(), column = k.ctaid_x() * kThreads + k.tid();  // of four
  k.if_(column < p.k / 4u, [&] {
    const Out<f32> out(p.out + to<u64>(token) * p.ldo * 4u);
    std::vector<RegGroup<f32, 4>> sum{out.ld<4>(column)};
    const auto first = token * std::uint32_t(c.used);
    for (int j = 0; j < c.used; ++j) {
      const auto row = In<u32>(p.rows, 0, true).at(j).ld(first);
      const auto weight = In<f32>(p.weights, 0, true).at(j).ld(first);
      const auto y = In<f32>(p.y + to<u64>(row) * to<u64>(p.k) * 4u, 0, true).ld<4>(column);
      const auto& now = sum.back();
      sum.push_back(RegGroup<f32, 4>(fma(weight, y[0], now[0]), fma(weight, y[1], now[1]),
                                     fma(weight, y[2], now[2]), fma(weight, y[3], now[3])));
    }
    out.st<4>(column, sum.back());
  });
}

}  // namespace

std::string reject(const MoeCombine& p) {
  if (!p.used || p.used > 64) return text::cat("used = ", p.used, " is not 1 to 64");
  if (!p.k || p.k % 4 || p.k > 0x7fffffff) return text::cat("k = ", p.k, " is no multiple of 4");
  if (p.tokens > 65535) return text::cat("tokens = ", p.tokens, " is above 65535");
  if (!p.y || p.y % 16) return "y must be given and lie at a multiple of 16 bytes";
  if (!p.out || p.out % 16 || p.ldo % 4) return "out and its rows must lie at multiples of 16 bytes";
  if (!p.rows || !p.weights) return "rows and weights must be given";
  return {};
}

Variant moe_combine_variant(const MoeCombineConfig& c) {
  return variant(c.name(), 75, moe_combine_kernel, c);
}

void moe_combine(runtime::Stream& s, const MoeCombine& p) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("moe_combine: ", why));
  if (!p.tokens) return;
  const MoeCombineParams<HostValue> n{.y = p.y,
                                      .rows = p.rows,
                                      .weights = p.weights,
                                      .out = p.out,
                                      .ldo = p.ldo ? p.ldo : p.k,
                                      .k = std::uint32_t(p.k)};
  load(s.device(), moe_combine_variant({int(p.used)}))(
      s,
      runtime::Launch{.grid = {std::uint32_t((p.k / 4 + kThreads - 1) / kThreads), std::uint32_t(p.tokens)}},
      n);
}

}  // namespace cgp::kernels
