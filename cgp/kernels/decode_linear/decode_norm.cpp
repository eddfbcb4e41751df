// SPDX-License-Identifier: Apache-2.0
// A block has a row, which its threads hold in registers: 16 bytes of x each, as often as the row is long.
#include "cgp/kernels/decode_linear/decode_norm.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/fragment.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

template <template <class> class V>
struct DecodeNormParams {
  V<u64> x, ldx, weight, y, ldy;
  V<f32> eps;
};

int threads_of(int k) { return std::min(1024, (k / 4 + 31) / 32 * 32); }

template <class T>
void decode_norm_kernel(Kernel& k, DecodeNormConfig c, DecodeNormParams<Val> p) {
  const int threads = threads_of(c.k), each = (c.k / 4 + threads - 1) / threads, warps = threads / 32;
  k.block(threads);
  if (c.pdl && k.sm() >= 90) griddepcontrol_launch_dependents(k);
  auto warp = k.warp();
  auto partial = k.shared<f32>(warps, 16);
  const auto column = [&](int i) { return k.tid() + std::uint32_t(i * threads); };  // of four
  const auto there = [&](int i) { return column(i) < std::uint32_t(c.k / 4); };
  using Four = RegGroup<f32, 4>;
  std::vector<Four> weight, x;
  for (int i = 0; i < each; ++i)
    weight.push_back(In<f32>(p.weight, 0, true).ld_if<4>(there(i), column(i), Val<f32>(0)));
  if (c.pdl && k.sm() >= 90) griddepcontrol_wait(k);
  // ld.nc may find lines that a kernel beside the one before left in L1.
  const In<f32> row(p.x + to<u64>(k.ctaid_x()) * p.ldx * 4u, 0, !c.pdl);
  for (int i = 0; i < each; ++i) x.push_back(row.ld_if<4>(there(i), column(i), Val<f32>(0)));
  std::vector<Val<f32>> squares{Val<f32>(0)};
  for (const auto& four : x)
    for (const auto& v : four) squares.push_back(fma(v, v, squares.back()));
  const auto of_warp =
      reduce(warp, squares.back(), [](const Val<f32>& a, const Val<f32>& b) { return a + b; });
  partial.st(warp.index, of_warp);
  k.sync();
  std::vector<Val<f32>> total;
  for (int w = 0; w < warps; ++w) {
    const auto part = partial.ld(w);
    total.push_back(w ? total.back() + part : part);
  }
  const auto scale = rsqrt<approx>(total.back() * (1.0f / float(c.k)) + p.eps);
  const Out<b32> y(p.y + to<u64>(k.ctaid_x()) * p.ldy * 2u);
  for (int i = 0; i < each; ++i) {
    const auto value = [&](int e) { return x[std::size_t(i)][e] * scale * weight[std::size_t(i)][e]; };
    y.st_if<2>(there(i), column(i),
               RegGroup<b32, 2>(pack<T>(value(0), value(1)), pack<T>(value(2), value(3))));
  }
}

}  // namespace

std::string reject(const DecodeNorm& p) {
  if (p.type != DType::f16 && p.type != DType::bf16)
    return text::cat("type = ", name(p.type), ": it must be f16 or bf16");
  if (!p.k || p.k % 4 || p.k > kMostDecodeNormColumns)
    return text::cat("k = ", p.k, " is no multiple of 4 from 4 to ", kMostDecodeNormColumns);
  if (p.rows > 0x7fffffff) return text::cat("rows = ", p.rows, " is above 2^31 - 1");
  if (!p.x || p.x % 16 || p.ldx % 4) return "x and its rows must lie at multiples of 16 bytes";
  if (!p.weight || p.weight % 16) return "weight must be given and lie at a multiple of 16 bytes";
  if (!p.y || p.y % 8 || p.ldy % 4) return "y and its rows must lie at multiples of 8 bytes";
  return {};
}

Variant decode_norm_variant(const DecodeNormConfig& c) {
  if (c.type == DType::f16) return variant(c.name(), 75, decode_norm_kernel<f16>, c);
  return variant(c.name(), 80, decode_norm_kernel<bf16>, c);
}

void decode_norm(runtime::Stream& s, const DecodeNorm& p) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("decode_norm: ", why));
  if (!p.rows) return;
  const DecodeNormParams<HostValue> n{.x = p.x,
                                      .ldx = p.ldx ? p.ldx : p.k,
                                      .weight = p.weight,
                                      .y = p.y,
                                      .ldy = p.ldy ? p.ldy : p.k,
                                      .eps = p.eps};
  load(s.device(), decode_norm_variant(DecodeNormConfig::of(p)))(
      s,
      runtime::Launch{.grid = {std::uint32_t(p.rows)}, .programmatic = p.pdl && s.device().info().cc() >= 90},
      n);
}

}  // namespace cgp::kernels
