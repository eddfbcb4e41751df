// SPDX-License-Identifier: Apache-2.0
// gemm sm100 for single blocks, results staged: the specialised, persistent, stealing and multicast steps of
// gemm_sm100.h.
#include "cgp/kernels/gemm/sm100/gemm_sm100.h"

namespace cgp::kernels {

GemmVariant gemm_sm100(DType t, bool trans_a, bool trans_b, GemmFamily step, int bn) {
  using namespace dsl;
  const auto tune = sm100_tuning(step, bn);
  return sm100_variant(t, trans_a, trans_b, step, 128, bn, false,
                       [&]<class T, Major MA, Major MB>(const std::string& of) {
                         return bn == 256 ? variant(of, 100, gemm_sm100_staged<T, MA, MB, 256, OneCta>, tune)
                                          : variant(of, 100, gemm_sm100_staged<T, MA, MB, 128, OneCta>, tune);
                       });
}

}  // namespace cgp::kernels
