// SPDX-License-Identifier: Apache-2.0
// The families of gemm: what each asks of a problem and a device.
#include "cgp/base/error.h"
#include "cgp/kernels/gemm/select/gemm_config.h"

namespace cgp::kernels {
namespace {

using F = GemmFamily;
using O = GemmFamilyInfo::Operands;
using L = GemmFamilyInfo::Layouts;
using R = GemmFamilyInfo::Result;
constexpr std::string_view kMma = "cp.async and bf16 mma need sm_80 or later",
                           kWgmma = "wgmma is sm_90a's alone",
                           kTcgen05 = "needs sm_100a: tcgen05 and tensor memory";

constexpr GemmFamilyInfo kFamilies[] = {
    {F::naive, "naive", 75, "", "", O::any, L::all, R::any, false, false},
    {F::simt, "simt", 75, "", "", O::any, L::all, R::any, false, false},
    {F::simt_small_m, "simt_small_m", 75, "", "", O::any, L::nt, R::any, false, true},
    {F::misaligned, "misaligned", 80, "", kMma, O::elements, L::all, R::any, false, false},
    {F::sm80, "sm80", 80, "", kMma, O::rows16, L::all, R::any, false, false},
    {F::skinny, "skinny", 80, "", kMma, O::k16, L::nt, R::any, false, false},
    {F::sm90, "sm90", 90, "sm_90a", kWgmma, O::rows16, L::all, R::any, false, false},
    {F::sm90_cluster_split_k, "sm90_cluster_split_k", 90, "sm_90a", kWgmma, O::rows16, L::all, R::any, false,
     false},
    {F::sm90_persistent, "sm90_persistent", 90, "sm_90a", kWgmma, O::rows16, L::all, R::tma, false, false},
    {F::sm90_non_persistent, "sm90_non_persistent", 90, "sm_90a", kWgmma, O::rows16, L::all, R::tma, false,
     false},
    {F::sm90_stream_k, "sm90_stream_k", 90, "sm_90a", kWgmma, O::rows16, L::all, R::tma_fresh, false, false},
    {F::sm90_small_m, "sm90_small_m", 90, "sm_90a", kWgmma, O::rows16, L::a_along_k, R::any, false, false},
    {F::sm90_split_k, "sm90_split_k", 90, "sm_90a", kWgmma, O::rows16, L::all, R::any, true, false},
    {F::sm90_pingpong, "sm90_pingpong", 90, "sm_90a", kWgmma, O::rows16, L::all, R::any, false, false},
    {F::sm90_cooperative, "sm90_cooperative", 90, "sm_90a", kWgmma, O::rows16, L::all, R::any, false, true},
    {F::sm90_promoted, "sm90_promoted", 90, "sm_90a", kWgmma, O::rows16, L::all, R::any, false, true},
    {F::mixed_mma, "mixed_mma", 80, "", kMma, O::rows16, L::all, R::any, false, true},
    {F::mixed_simt, "mixed_simt", 75, "", "", O::any, L::all, R::any, false, true},
    {F::guarded_simt, "guarded_simt", 75, "", "", O::any, L::all, R::any, false, true},
    {F::generic, "generic", 75, "", "", O::any, L::all, R::any, false, true},
    {F::sm100_tiled, "sm100_tiled", 100, "sm_100a", kTcgen05, O::rows16, L::nt, R::any, false, false},
    {F::sm100_swizzled, "sm100_swizzled", 100, "sm_100a", kTcgen05, O::rows16, L::nt, R::any, false, false},
    {F::sm100_pipelined, "sm100_pipelined", 100, "sm_100a", kTcgen05, O::rows16, L::nt, R::any, false, false},
    {F::sm100_specialised, "sm100_specialised", 100, "sm_100a", kTcgen05, O::rows16, L::all, R::any, false,
     false},
    {F::sm100_persistent, "sm100_persistent", 100, "sm_100a", kTcgen05, O::rows16, L::all, R::any, false,
     false},
    {F::sm100_stealing, "sm100_stealing", 100, "sm_100a", kTcgen05, O::rows16, L::all, R::any, false, false},
    {F::sm100_multicast, "sm100_multicast", 100, "sm_100a", kTcgen05, O::rows16, L::all, R::any, false,
     false},
    {F::sm100_pair, "sm100_pair", 100, "sm_100a", kTcgen05, O::rows16, L::all, R::tma_fresh, false, false},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kFamilies); ++i)
    if (std::size_t(kFamilies[i].family) != i) return false;
  return true;
}
static_assert(in_order(), "info() looks families up by their number");

}  // namespace

std::span<const GemmFamilyInfo> gemm_families() { return kFamilies; }
const GemmFamilyInfo& info(GemmFamily f) { return kFamilies[std::size_t(f)]; }
std::string_view name(GemmFamily f) { return info(f).name; }

}  // namespace cgp::kernels
