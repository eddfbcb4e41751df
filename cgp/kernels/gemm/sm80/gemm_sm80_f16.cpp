// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm80/gemm_sm80.h"

namespace cgp::kernels {

Variant gemm_sm80_f16(std::string name, bool trans_a, bool trans_b, int bm, int bn) {
  return sm80::make_layout<dsl::f16>(std::move(name), trans_a, trans_b, bm, bn);
}

}  // namespace cgp::kernels
