// SPDX-License-Identifier: Apache-2.0
// A thread gathers eight columns of a row.
#include "cgp/kernels/quantized_matmul/gather_columns.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/memory/tile.h"
#include "cgp/kernels/common/config.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kMostRows = 65535;

struct GatherConfig {
  int threads = 128;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.number("threads", "threads", c.threads);
  }
};

template <template <class> class V>
struct GatherParams {
  V<u64> x, ldx, columns, y;
  V<u32> m, k;
};

void gather_kernel(Kernel& k, GatherConfig c, GatherParams<Val> p) {
  k.block(c.threads);
  const auto unit = k.ctaid_x() * std::uint32_t(c.threads) + k.tid_x();
  k.if_(unit < divided(p.k, 8), [&] {
    const In<u32> columns(p.columns, 0, true);
    std::vector<Val<u32>> from;
    for (int half = 0; half < 2; ++half)
      for (const auto& v : columns.ld<4>(unit * 2u + std::uint32_t(half))) from.push_back(v);
    k.loop(range(k.ctaid_y(), p.m, k.nctaid_y()), [&](Val<u32> row) {
      const In<u16> x(p.x + to<u64>(row) * p.ldx * 2u, 0, true);
      std::vector<Val<b32>> words;
      for (std::size_t i = 0; i < 8; i += 2)
        words.push_back(prmt(bits<b32>(to<u32>(x.ld(from[i]))), bits<b32>(to<u32>(x.ld(from[i + 1]))),
                             Val<u32>(0x5410u)));
      Out<b32>(p.y + to<u64>(row) * to<u64>(p.k) * 2u)
          .st<4>(unit, RegGroup<b32, 4>(words[0], words[1], words[2], words[3]));
    });
  });
}

}  // namespace

Variant gather_columns_variant() {
  return config_variant("gather_columns", GatherConfig{}, 75, gather_kernel);
}

void gather_columns(runtime::Stream& s, const GatherColumns& p) {
  if (!p.k || p.k % 8 || p.k > 0x7ffffff8)
    throw ArgumentError(text::cat("gather_columns: k = ", p.k, " is no multiple of 8 from 8 to 2^31 - 8"));
  if (p.columns % 16 || p.y % 16)
    throw ArgumentError("gather_columns: columns and y must lie at multiples of 16 bytes");
  if (!p.m) return;
  const GatherParams<HostValue> n{.x = p.x,
                                  .ldx = p.ldx ? p.ldx : p.k,
                                  .columns = p.columns,
                                  .y = p.y,
                                  .m = std::uint32_t(p.m),
                                  .k = std::uint32_t(p.k)};
  constexpr auto threads = std::uint64_t(GatherConfig{}.threads);
  load(s.device(), gather_columns_variant())(
      s,
      runtime::Launch{.grid = {std::uint32_t((p.k / 8 + threads - 1) / threads),
                               std::uint32_t(p.m < kMostRows ? p.m : kMostRows)}},
      n);
}

}  // namespace cgp::kernels
