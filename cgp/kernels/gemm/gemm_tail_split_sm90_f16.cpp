// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/gemm_tail_split_sm90.h"

namespace cgp::kernels {

Variant gemm_tail_split_sm90_f16(bool trans_a, bool trans_b, int bn, const GemmTailTuning& tune) {
  return tail_split::make<dsl::f16>("f16", trans_a, trans_b, bn, tune);
}

}  // namespace cgp::kernels
