// SPDX-License-Identifier: Apache-2.0
// gemm sm100 for pairs of blocks: the last step of gemm_sm100.h. Two blocks of a cluster multiply 256 x BN
// tiles together; each loads its 128 rows of A and half of B, the even one issues the products.
#include "cgp/kernels/gemm/sm100/gemm_sm100.h"

namespace cgp::kernels {

GemmVariant gemm_sm100_pair(DType t, bool trans_a, bool trans_b, int bn) {
  using namespace dsl;
  GemmSm100Tuning tune;
  tune.cluster = 2;
  tune.stages = bn == 256 ? 6 : 8;
  return sm100_variant(t, trans_a, trans_b, GemmFamily::sm100_pair, 256, bn, false,
                       [&]<class T, Major MA, Major MB>(const std::string& of) {
                         return bn == 256
                                    ? variant(of, 100, gemm_sm100_staged<T, MA, MB, 256, CtaPair>, tune)
                                    : variant(of, 100, gemm_sm100_staged<T, MA, MB, 128, CtaPair>, tune);
                       });
}

}  // namespace cgp::kernels
