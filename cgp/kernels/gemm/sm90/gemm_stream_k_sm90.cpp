// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_stream_k_variants.h"

namespace cgp::kernels {

int gemm_stream_k_buffers(int bn) { return bn == 192 ? 3 : 2; }

int gemm_stream_k_stages(int bm, int bn, int buffers) {
  const int results = buffers * bm * stream_k_store_cols(bn) * 2, stage = (bm + bn) * 128;
  return std::min(8, (227 * 1024 - 1024 - results) / stage);
}

GemmVariant gemm_stream_k_sm90(DType type, bool trans_a, bool trans_b, int bm, int bn,
                               const GemmStreamKTuning& t) {
  const GemmConfig config{.family = GemmFamily::sm90_stream_k,
                          .a = type,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = bm,
                          .tile_n = bn,
                          .tile_k = 64,
                          .stages = t.stages,
                          .split_k = t.split,
                          .group = t.group,
                          .store_buffers = t.buffers,
                          .evict_a = int(t.a),
                          .evict_b = int(t.b),
                          .evict_c = int(t.c)};
  const auto name = print(config);
  if (type == DType::f16)
    return {trans_a ? gemm_stream_k_sm90_f16_tx(name, trans_b, bm, bn, t)
                    : gemm_stream_k_sm90_f16_nx(name, trans_b, bm, bn, t),
            config};
  return {trans_a ? gemm_stream_k_sm90_bf16_tx(name, trans_b, bm, bn, t)
                  : gemm_stream_k_sm90_bf16_nx(name, trans_b, bm, bn, t),
          config};
}

}  // namespace cgp::kernels
