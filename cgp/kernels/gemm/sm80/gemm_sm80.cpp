// SPDX-License-Identifier: Apache-2.0
// gemm sm80 (gemm_sm80.h): the bf16 variants, and which tile a problem gets.
#include "cgp/kernels/gemm/sm80/gemm_sm80.h"

#include <algorithm>
#include <cmath>

#include "cgp/kernels/gemm/select/gemm_calibration.h"

namespace cgp::kernels {

Variant gemm_sm80_bf16(std::string name, bool trans_a, bool trans_b, int bm, int bn) {
  return sm80::make_layout<dsl::bf16>(std::move(name), trans_a, trans_b, bm, bn);
}
GemmVariant gemm_sm80(DType t, bool trans_a, bool trans_b, int bm, int bn) {
  const GemmConfig config{.family = GemmFamily::sm80,
                          .a = t,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = bm,
                          .tile_n = bn,
                          .tile_k = 32,
                          .stages = 4};
  return {t == DType::f16 ? gemm_sm80_f16(print(config), trans_a, trans_b, bm, bn)
                          : gemm_sm80_bf16(print(config), trans_a, trans_b, bm, bn),
          config};
}
GemmVariant gemm_sm80(DType t, bool trans_a, bool trans_b) {
  return gemm_sm80(t, trans_a, trans_b, 128, 128);
}

GemmChoice choose_sm80(const GemmProblem& q, const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  struct Tile {
    int bm, bn;
  };
  constexpr Tile tiles[] = {{128, 128}, {64, 128}, {64, 64}};
  const auto& model = gemm_calibration(d).sm80;
  const double sms = gemm_sms(d);
  const auto time = [&](const Tile& t) {
    const double all = std::ceil(double(p.m) / t.bm) * std::ceil(double(p.n) / t.bn) * double(p.batch);
    const double turns = std::ceil(all / sms);  // tiles of an SM, which hide each other's latency
    const auto i = std::size_t(&t - tiles);
    return turns * t.bm * t.bn / (model.rate[i] * (turns > 1 ? 1 : model.alone[i]));
  };
  // Vulkan and WebGPU give a block less shared memory than the stages of the largest tile take; the smallest is left to say so.
  const auto fits = [&](const Tile& t) {
    return d.smem_per_block_optin == 0 ||  // not known
           std::size_t(sm80::kStages * sm80::kDepth * 2 * (t.bm + t.bn)) <= d.smem_per_block_optin;
  };
  const Tile* best = nullptr;
  for (const auto& t : tiles)
    if (fits(t) && (!best || time(t) < time(*best))) best = &t;
  if (!best) best = &tiles[2];
  GemmChoice c{GemmFamily::sm80, gemm_sm80(p.type, p.trans_a, p.trans_b, best->bm, best->bn),
               text::cat("tiles of ", best->bm, " x ", best->bn, " fill ", int(sms), " SMs best"),
               std::uint32_t(best->bn)};
  c.tile_m = std::uint32_t(best->bm);
  return c;
}

}  // namespace cgp::kernels
