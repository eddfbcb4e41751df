// SPDX-License-Identifier: Apache-2.0
// gemm sm100 for single blocks, results straight to global memory: any beta, any alignment of C. The steps
// are those of gemm_sm100.cpp.
#include "cgp/kernels/gemm/sm100/gemm_sm100.h"

namespace cgp::kernels {

GemmVariant gemm_sm100_direct(DType t, bool trans_a, bool trans_b, GemmFamily step) {
  using namespace dsl;
  const auto tune = sm100_tuning(step, 128);
  return sm100_variant(t, trans_a, trans_b, step, 128, 128, true,
                       [&]<class T, Major MA, Major MB>(const std::string& of) {
                         return variant(of, 100, gemm_sm100_direct_kernel<T, MA, MB, 128>, tune);
                       });
}

}  // namespace cgp::kernels
