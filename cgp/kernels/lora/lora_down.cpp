// SPDX-License-Identifier: Apache-2.0
// t = scale * x A' for adapters of at most 16 columns.
//   who      a block owns 32 rows of x; its warps take turns along K
//   memory   x straight from global memory into mma fragments, 16 bytes a lane, once; A likewise, from L2
//   sync     none until the end, when the warps' accumulators meet in shared memory and are added in order of the warps
//   math     mma.m16n8k16. A lane's 16 bytes are 8 neighbours of K where the fragment wants two pairs of each of two steps: both
//            operands use the same order of K, so it does not matter
//   pdl      the product behind it may begin as soon as all blocks run
//   needs    sm_80; k a multiple of 8, x and A at multiples of 16 bytes
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/lora/lora_product.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kRows = 32, kCols = 16, kUnroll = 2, kWarps = 16;
constexpr std::uint64_t kLeastRows = 2048;  // fewer blocks than that leave most of the device idle

struct DownConfig {
  DType type = DType::bf16;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
  }
};

template <template <class> class V>
struct DownArgs {
  V<In<b32>> x, a;
  V<Out<b16>> t;
  V<u32> m, r, accesses;  ///< of 16 bytes in a row
  V<f32> scale;
};

// Rows of a matrix, 8 at a time: lane 4g + q has row g and the accesses q, q + 4, ... of it.
struct RowFragments {
  std::vector<In<b32>> at;
  std::vector<Val<pred>> inside;
  RowFragments(const Warp& w, const In<b32>& p, const Val<u32>& first, const Val<u32>& rows,
               const Val<u32>& accesses, int groups) {
    for (int i = 0; i < groups; ++i) {
      const auto row = first + w.lane() / 4 + std::uint32_t(8 * i);
      inside.push_back(row < rows);
      at.push_back(p.at(to<u64>(row) * to<u64>(accesses) * 4));
    }
  }
  std::vector<RegGroup<b32, 4>> load(const Val<u32>& access, const Val<pred>& exists) const {
    std::vector<RegGroup<b32, 4>> out;
    for (std::size_t i = 0; i < at.size(); ++i)
      out.push_back(at[i].template ld_if<4>(inside[i] & exists, to<u64>(access), Val<b32>(0)));
    return out;
  }
};

template <class T>
void down_kernel(Kernel& k, DownConfig, DownArgs<DeviceArg> p) {
  k.block(32 * kWarps);
  if (k.sm() >= 90) griddepcontrol_launch_dependents(k);
  auto warp = k.warp();
  const auto m0 = k.ctaid_x() * std::uint32_t(kRows);
  const RowFragments x(warp, p.x, m0, p.m, p.accesses, kRows / 8),
      a(warp, p.a, Val<u32>(0), p.r, p.accesses, kCols / 8);
  const auto q = warp.lane() % 4;
  constexpr std::uint32_t turn = 4 * kUnroll;

  using Sum = WarpAcc<f32, kRows, kCols>;
  const auto sum =
      k.loop(range(warp.index * turn, p.accesses, Val<u32>(turn * std::uint32_t(kWarps))),
             zeros<f32, kRows, kCols>(warp), [&](Val<u32> base, Sum acc) {
               std::vector<std::vector<RegGroup<b32, 4>>> of_x, of_a;
               for (int u = 0; u < kUnroll; ++u) {
                 const auto access = base + q + std::uint32_t(4 * u);
                 of_x.push_back(x.load(access, access < p.accesses));
                 of_a.push_back(a.load(access, access < p.accesses));
               }
               std::vector<Sum> sums;
               sums.push_back(std::move(acc));
               for (std::size_t u = 0; u < kUnroll; ++u)
                 for (int half = 0; half < 4; half += 2) {
                   std::vector<FragA<T, 16, 16>> left;
                   std::vector<FragB<T, 16, 8>> right;
                   for (std::size_t i = 0; i < of_x[u].size(); i += 2)
                     left.push_back(FragA<T, 16, 16>({of_x[u][i][half], of_x[u][i + 1][half],
                                                      of_x[u][i][half + 1], of_x[u][i + 1][half + 1]}));
                   for (const auto& col : of_a[u])
                     right.push_back(FragB<T, 16, 8>({col[half], col[half + 1]}));
                   sums.push_back(multiply<T>(warp, std::move(sums.back()), left, right));
                 }
               return std::move(sums.back());
             });

  auto partial = k.shared<f32>(kWarps * kRows * kCols, 128);
  for (int i = 0; i < Sum::count; ++i)
    partial.st((warp.index * std::uint32_t(Sum::count) + std::uint32_t(i)) * 32u + warp.lane(), sum[i]);
  k.sync();
  k.loop(range(k.tid(), Val<u32>(kRows * kCols), Val<u32>(std::uint32_t(32 * kWarps))), [&](Val<u32> o) {
    const auto row = o / kCols, col = o % kCols;
    const auto lane = row % 8 * 4 + col % 8 / 2;
    const auto reg = (row / 16 * (kCols / 8) + col / 8) * 4 + row / 8 % 2 * 2 + col % 2;
    std::vector<Val<f32>> total{partial.ld(reg * 32 + lane)};
    for (int w = 1; w < kWarps; ++w)
      total.push_back(total.back() + partial.ld((reg + std::uint32_t(w * Sum::count)) * 32 + lane));
    p.t.st_if((m0 + row < p.m) & (col < p.r), to<u64>(m0 + row) * to<u64>(p.r) + to<u64>(col),
              bits<b16>(to<T>(total.back() * p.scale)));
  });
}

Variant down_variant(const DownConfig& c) {
  return config_variant("lora_down", c, 80, c.type == DType::f16 ? down_kernel<f16> : down_kernel<bf16>);
}

}  // namespace

std::string reject(const LoraDown& p, const runtime::DeviceInfo& d) {
  if (d.cc() < 80) return "lora_down needs sm_80";
  if (p.type != DType::bf16 && p.type != DType::f16)
    return text::cat("lora_down needs f16 or bf16; the type is ", name(p.type));
  if (p.k == 0 || p.k % 8) return text::cat("lora_down needs a k that is a multiple of 8; it is ", p.k);
  if (p.r == 0 || p.r > kCols) return text::cat("lora_down needs r from 1 to 16; it is ", p.r);
  if (p.m < kLeastRows || p.m >> 31) return text::cat("lora_down is for 2048 rows and more; there are ", p.m);
  if ((p.x | p.a) % 16) return "lora_down needs addresses at multiples of 16 bytes";
  return {};
}

void lora_down(runtime::Stream& s, const LoraDown& p) {
  if (auto why = reject(p, s.device().info()); !why.empty()) throw Unsupported(std::move(why));
  launch::launch_kernel(s, load(s.device(), down_variant({p.type})),
                        runtime::Launch{.grid = {std::uint32_t((p.m + kRows - 1) / kRows)}},
                        DownArgs<launch::HostArg>{.x = p.x,
                                                  .a = p.a,
                                                  .t = p.t,
                                                  .m = std::uint32_t(p.m),
                                                  .r = std::uint32_t(p.r),
                                                  .accesses = std::uint32_t(p.k / 8),
                                                  .scale = p.scale});
}

std::vector<Variant> lora_down_variants() {
  return {down_variant({DType::bf16}), down_variant({DType::f16})};
}

}  // namespace cgp::kernels
