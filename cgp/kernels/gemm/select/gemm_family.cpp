// SPDX-License-Identifier: Apache-2.0
// What each family of gemm asks of a problem and a device.
#include "cgp/kernels/gemm/select/gemm_config.h"

namespace cgp::kernels {
namespace {

constexpr std::string_view kMma = "cp.async and bf16 mma need sm_80 or later",
                           kWgmma = "wgmma is sm_90a's alone",
                           kTcgen05 = "needs sm_100a: tcgen05 and tensor memory";

using O = GemmFamilyInfo::Operands;
using L = GemmFamilyInfo::Layouts;
using R = GemmFamilyInfo::Result;
constexpr GemmFamilyInfo kFamilies[] = {
#define GEMM_FAMILY(name, min_sm, only, needs, operands, layouts, result, one_batch, for_mixed, run, forced) \
  {GemmFamily::name, #name, min_sm, only, needs, O::operands, L::layouts, R::result, one_batch, for_mixed},
#include "cgp/kernels/gemm/select/gemm_families.def"
#undef GEMM_FAMILY
};

}  // namespace

std::span<const GemmFamilyInfo> gemm_families() { return kFamilies; }
const GemmFamilyInfo& info(GemmFamily f) { return kFamilies[std::size_t(f)]; }
std::string_view name(GemmFamily f) { return info(f).name; }

}  // namespace cgp::kernels
