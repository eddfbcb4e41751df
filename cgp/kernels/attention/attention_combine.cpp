// SPDX-License-Identifier: Apache-2.0
// attention, where several blocks share the keys of a tile: a warp combines what they have of a row, each part weighted by
// its sum of exponentials. Lanes hold the weights, and each has four columns.
#include "cgp/dsl/mma/fragment.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels {
namespace {

using namespace attention_impl;

constexpr int kWarps = 4;

template <class T>
void attention_combine_kernel(Kernel& k, AttentionCombineConfig c, AttentionParams p) {
  k.block(32 * kWarps);
  Warp w = k.warp();
  const auto lane = w.lane();
  const auto rows = p.pairs * p.n_q, row_of_all = k.ctaid_x() * std::uint32_t(kWarps) + w.index;
  k.if_(assume_uniform(row_of_all < rows, Uniform::warp), [&] {
    const auto place = [&](const Val<u32>& part) {
      return to<u64>(part) * to<u64>(rows) + to<u64>(row_of_all);
    };
    const auto lse = In<f32>(p.partial_lse, 0, true).ld_if(lane < p.splits, place(lane), Val<f32>(kNever))[0];
    const auto most = reduce(w, lse, [](const Val<f32>& a, const Val<f32>& b) { return dsl::max(a, b); });
    const auto base = select(most == kNever, Val<f32>(0), most);
    const auto weight = ex2<approx, ftz>((lse - base) * kLog2e);
    const auto sum = reduce(w, weight, [](const Val<f32>& a, const Val<f32>& b) { return a + b; });
    const auto own = weight * inverse_or_zero(sum);
    const auto bh = row_of_all / p.n_q, row = row_of_all % p.n_q, batch = bh / p.heads_q,
               head = bh % p.heads_q;
    const auto o =
        Out<T>(p.o).at(to<u64>(batch) * p.o_batch + to<u64>(head) * p.o_head + to<u64>(row) * p.o_row);
    k.loop(range(Val<u32>(0), p.d_v, Val<u32>(128)), [&](Val<u32> first) {
      const auto column = first + lane * 4u;
      const auto there = column < p.d_v;
      std::vector<Val<f32>> zero(4, Val<f32>(0));
      const auto total =
          k.loop(range(Val<u32>(0), p.splits, Val<u32>(4)), std::move(zero),
                 [&](Val<u32> part, std::vector<Val<f32>> now) {
                   // Four parts are on their way together; those that saw no key, and were not written, weigh nothing.
                   std::vector<Val<f32>> of, next = std::move(now);
                   std::vector<RegGroup<f32, 4>> values;
                   for (std::uint32_t i = 0; i < 4; ++i) {
                     of.push_back(shfl<idx>(w, own, part + i));
                     values.push_back(In<f32>(p.partial_o, 0, true)
                                          .at(place(part + i) * to<u64>(p.d_v) + to<u64>(column))
                                          .template ld_if<4>(there & (of.back() > 0.0f), 0, Val<f32>(0)));
                   }
                   for (std::size_t i = 0; i < 4; ++i) {
                     std::vector<Val<f32>> added;
                     for (std::size_t e = 0; e < 4; ++e)
                       added.push_back(fma(of[i], values[i][int(e)], next[e]));
                     next = std::vector<Val<f32>>(added);
                   }
                   return next;
                 });
      o.at(column).template as<b32>().template st_if<2>(
          there, 0, RegGroup<b32, 2>(pack<T>(total[0], total[1]), pack<T>(total[2], total[3])));
    });
    if (c.lse) {
      const auto at = to<u64>(batch) * p.lse_batch + to<u64>(head) * p.lse_head + to<u64>(row);
      const auto all = select(sum == 0.0f, Val<f32>(kNever), fma(lg2<approx, ftz>(sum), kLn2, base));
      Out<f32>(p.lse).st_if(lane == 0u, at, all);
    }
  });
}

}  // namespace

Variant attention_combine(const AttentionCombineConfig& c) {
  return c.type == DType::f16 ? variant(c.name(), 90, attention_combine_kernel<f16>, c)
                              : variant(c.name(), 90, attention_combine_kernel<bf16>, c);
}

}  // namespace cgp::kernels
