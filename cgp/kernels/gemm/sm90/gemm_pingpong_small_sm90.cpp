// SPDX-License-Identifier: Apache-2.0
// The pingpong kernel for tf32 and 8-bit types: wgmma wants K contiguous in both operands.
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"

namespace cgp::kernels {

using namespace dsl;

Variant gemm_pingpong_k(const GemmProblem& p, std::string name, const MixedTuning& t) {
  constexpr Major K = Major::k;
  if (p.type == DType::f32) return pingpong_variant<tf32, tf32, f32, K, K>(std::move(name), t);
  if (p.type == DType::s8) return pingpong_variant<s8, s8, s32, K, K, true>(std::move(name), t);
  if (p.type == DType::e4m3)
    return p.type_b == DType::e4m3 ? pingpong_variant<e4m3, e4m3, f32, K, K, true>(std::move(name), t)
                                   : pingpong_variant<e4m3, e5m2, f32, K, K>(std::move(name), t);
  return p.type_b == DType::e4m3 ? pingpong_variant<e5m2, e4m3, f32, K, K>(std::move(name), t)
                                 : pingpong_variant<e5m2, e5m2, f32, K, K>(std::move(name), t);
}

}  // namespace cgp::kernels
