// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/gemm_tail_split_sm90.h"

namespace cgp::kernels {

Variant gemm_tail_split_sm90_bf16(bool trans_a, bool trans_b, int bn, const GemmTailTuning& tune) {
  return tail_split::make<dsl::bf16>("bf16", trans_a, trans_b, bn, tune);
}

Variant gemm_tail_split_sm90(DType t, bool trans_a, bool trans_b, int bn, const GemmTailTuning& tune) {
  return t == DType::f16 ? gemm_tail_split_sm90_f16(trans_a, trans_b, bn, tune)
                         : gemm_tail_split_sm90_bf16(trans_a, trans_b, bn, tune);
}

}  // namespace cgp::kernels
