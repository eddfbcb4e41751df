// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_stream_k_variants.h"

namespace cgp::kernels {

Variant gemm_stream_k_sm90_bf16_tx(std::string name, bool trans_b, int bm, int bn,
                                   const GemmStreamKTuning& t) {
  using dsl::Major;
  return trans_b ? stream_k::make<dsl::bf16, Major::mn, Major::k>(std::move(name), bm, bn, t)
                 : stream_k::make<dsl::bf16, Major::mn, Major::mn>(std::move(name), bm, bn, t);
}

}  // namespace cgp::kernels
