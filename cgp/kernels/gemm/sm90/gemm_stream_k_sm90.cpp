// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_stream_k_variants.h"

namespace cgp::kernels {

int gemm_tail_buffers(int bn) { return bn == 192 ? 3 : 2; }

int gemm_tail_stages(int bm, int bn, int buffers) {
  const int results = buffers * bm * stream_k_store_cols(bn) * 2, stage = (bm + bn) * 128;
  return std::min(8, (227 * 1024 - 1024 - results) / stage);
}

Variant gemm_tail_split_sm90(DType type, bool trans_a, bool trans_b, int bm, int bn,
                             const GemmTailTuning& t) {
  const auto lines = [](GemmLines l) {
    return l == GemmLines::first ? "f" : l == GemmLines::last ? "l" : "n";
  };
  auto name = text::cat("gemm_", cgp::name(type), "_tail_split_sm90_", trans_a ? "t" : "n",
                        trans_b ? "t" : "n", "__", bm, "x", bn, "x64_s", t.stages, "_k", t.split, "_g",
                        t.group, "_b", t.buffers, "_", lines(t.a), lines(t.b), lines(t.c));
  if (type == DType::f16)
    return trans_a ? gemm_stream_k_sm90_f16_tx(std::move(name), trans_b, bm, bn, t)
                   : gemm_stream_k_sm90_f16_nx(std::move(name), trans_b, bm, bn, t);
  return trans_a ? gemm_stream_k_sm90_bf16_tx(std::move(name), trans_b, bm, bn, t)
                 : gemm_stream_k_sm90_bf16_nx(std::move(name), trans_b, bm, bn, t);
}

}  // namespace cgp::kernels
