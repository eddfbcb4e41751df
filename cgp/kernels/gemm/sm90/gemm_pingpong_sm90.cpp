// SPDX-License-Identifier: Apache-2.0
// The pingpong kernel for f16 and bf16, all layouts.
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

template <class T>
Variant layouts(const GemmProblem& p, std::string name, const MixedTuning& t) {
  constexpr Major K = Major::k, MN = Major::mn;
  if (p.trans_a)
    return p.trans_b ? pingpong_variant<T, T, f32, MN, K>(std::move(name), t)
                     : pingpong_variant<T, T, f32, MN, MN>(std::move(name), t);
  return p.trans_b ? pingpong_variant<T, T, f32, K, K, true>(std::move(name), t)
                   : pingpong_variant<T, T, f32, K, MN>(std::move(name), t);
}

}  // namespace

Variant gemm_pingpong_16(const GemmProblem& p, std::string name, const MixedTuning& t) {
  return p.type == DType::f16 ? layouts<f16>(p, std::move(name), t) : layouts<bf16>(p, std::move(name), t);
}

}  // namespace cgp::kernels
