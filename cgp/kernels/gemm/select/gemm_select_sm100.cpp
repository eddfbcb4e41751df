// SPDX-License-Identifier: Apache-2.0
// Which step of gemm_sm100.h runs a problem. No B200 has been measured: wide tiles where there are enough of
// them for every multiprocessor, pairs where there are rows for two blocks.
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {
namespace {

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return (n + tile - 1) / tile; }

}  // namespace

GemmChoice choose_sm100(GemmFamily step, const GemmProblem& q, const GemmAddresses& at,
                        const runtime::DeviceInfo& d, std::uint32_t columns) {
  const GemmProblem p = q.dense();
  GemmChoice c;
  c.kind = step;
  if (info(step).layouts == GemmFamilyInfo::Layouts::nt) {
    c.variant = gemm_sm100_ladder(p.type, step);
    return c;
  }
  c.staged = reject(GemmFamily::sm100_pair, p, at, d).empty();
  c.cluster = step == GemmFamily::sm100_multicast || step == GemmFamily::sm100_pair ? 2 : 1;
  const auto across = std::uint64_t(128 * c.cluster), blocks = std::uint64_t(d.sm_count / c.cluster);
  const bool wide = p.n > 128 && tiles(p.m, across) * tiles(p.n, 256) * p.batch >= blocks;
  c.tile_n = c.staged && (columns ? columns == 256 : wide) ? 256 : 128;
  const auto bn = int(c.tile_n);
  c.variant = step == GemmFamily::sm100_pair ? gemm_sm100_pair(p.type, p.trans_a, p.trans_b, bn)
              : c.staged                     ? gemm_sm100(p.type, p.trans_a, p.trans_b, step, bn)
                                             : gemm_sm100_direct(p.type, p.trans_a, p.trans_b, step);
  return c;
}

GemmChoice select_sm100(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  const auto not_pair = reject(GemmFamily::sm100_pair, p, at, d);
  const bool rows_for_two = p.m > 128, pair = not_pair.empty() && rows_for_two;
  const auto why = !not_pair.empty() ? text::cat("not as pairs: ", not_pair)
                   : rows_for_two    ? std::string("pairs of blocks multiply together")
                                     : text::cat("m = ", p.m, " is one row of tiles: single blocks");
  auto c = choose_sm100(pair ? GemmFamily::sm100_pair : GemmFamily::sm100_stealing, p, at, d);
  c.why =
      text::cat("tcgen05, tiles by work stealing; ", why, "; tiles of ", c.cluster * 128, " x ", c.tile_n);
  return c;
}

std::vector<Variant> gemm_sm100_variants(DType t) {
  std::vector<Variant> all;
  if (t == DType::f32) return all;
  if (t == DType::bf16) {  // the steps that are not selected, once
    for (auto step : {GemmFamily::sm100_tiled, GemmFamily::sm100_swizzled, GemmFamily::sm100_pipelined})
      all.push_back(gemm_sm100_ladder(t, step));
    for (auto step :
         {GemmFamily::sm100_specialised, GemmFamily::sm100_persistent, GemmFamily::sm100_multicast}) {
      for (int bn : {128, 256}) all.push_back(gemm_sm100(t, false, true, step, bn));
      all.push_back(gemm_sm100_direct(t, false, true, step));
    }
  }
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      for (int bn : {128, 256}) {
        all.push_back(gemm_sm100(t, ta, tb, GemmFamily::sm100_stealing, bn));
        all.push_back(gemm_sm100_pair(t, ta, tb, bn));
      }
      all.push_back(gemm_sm100_direct(t, ta, tb, GemmFamily::sm100_stealing));
    }
  return all;
}

}  // namespace cgp::kernels
