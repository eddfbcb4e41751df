// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sum of o * d_o over a row, which gradients subtract from d_o v': threads of a row take 8 columns each.
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels::attention_impl {

/// Eight columns of a row.
struct OutputColumns {
  RegGroup<b32, 4> o, d_o;
};
/// Zeros where not `there` and from column d_v on.
inline OutputColumns columns_of(const AttentionParams& p, const Val<u64>& d_o, const Sequence& s,
                                const Val<u32>& row, const Val<u32>& column, const Val<pred>& there) {
  const auto load = [&](const Val<u64>& base) {
    return In<b32>(base, 0, true)
        .at((rows_of(s, s.head, s.first_q, p.o_batch, p.o_head, p.o_row) + to<u64>(row) * p.o_row +
             to<u64>(column)) >>
            1u)
        .template ld_if<4>(there & (column < p.d_v), 0, Val<b32>(0));
  };
  const auto o = load(p.o);
  return {o, load(d_o)};
}
/// Over the `threads` neighbours that share a row.
template <class T>
Val<f32> row_product(Warp& w, const OutputColumns& x, int threads) {
  std::vector<Val<f32>> sum{Val<f32>(0)};
  for (int i = 0; i < 4; ++i) {
    const auto a = unpack<T>(x.o[i]), b = unpack<T>(x.d_o[i]);
    for (int e = 0; e < 2; ++e) sum.push_back(fma(to<f32>(a[e]), to<f32>(b[e]), sum.back()));
  }
  return reduce(
      w, sum.back(), [](const Val<f32>& a, const Val<f32>& b) { return a + b; }, threads);
}

}  // namespace cgp::kernels::attention_impl
