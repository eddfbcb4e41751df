// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tiles that the stream-K kernel is built with. A type and a layout of A are one translation unit each.
#include "cgp/kernels/gemm/sm90/gemm_stream_k_sm90.h"

namespace cgp::kernels {
namespace stream_k {

template <class T, Major MA, Major MB, int BM, int... BN>
void choose(Variant& v, int bn, const GemmStreamKTuning& t, std::integer_sequence<int, BN...>) {
  ((bn == BN ? void(v = variant(v.name, 90, gemm<T, MA, MB, BM, BN>, t)) : void()), ...);
}
template <class T, Major MA, Major MB>
Variant make(std::string name, int bm, int bn, const GemmStreamKTuning& t) {
  Variant v;
  v.name = std::move(name);
  // The many widths for the layouts of linear layers; for others they would be code that nobody runs.
  constexpr bool every = MA == Major::k && MB == Major::k;
  using Wide = std::integer_sequence<int, 128, 192, 256>;
  using Every = std::integer_sequence<int, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256>;
  using Low = std::integer_sequence<int, 112, 128, 144, 192, 256>;
  bm == 128 ? choose<T, MA, MB, 128>(v, bn, t, std::conditional_t<every, Every, Wide>())
            : choose<T, MA, MB, 64>(v, bn, t, std::conditional_t<every, Low, Wide>());
  v.only = "sm_90a";
  return v;
}

}  // namespace stream_k

Variant gemm_stream_k_sm90_bf16_nx(std::string name, bool trans_b, int bm, int bn,
                                   const GemmStreamKTuning& t);
Variant gemm_stream_k_sm90_bf16_tx(std::string name, bool trans_b, int bm, int bn,
                                   const GemmStreamKTuning& t);
Variant gemm_stream_k_sm90_f16_nx(std::string name, bool trans_b, int bm, int bn, const GemmStreamKTuning& t);
Variant gemm_stream_k_sm90_f16_tx(std::string name, bool trans_b, int bm, int bn, const GemmStreamKTuning& t);

}  // namespace cgp::kernels
