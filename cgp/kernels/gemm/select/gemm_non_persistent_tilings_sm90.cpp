// SPDX-License-Identifier: Apache-2.0
// Tiles of sm90_persistent for problems of one wave, a block for each (GemmPersistentShape::non_persistent), and a
// model of their times.
#include <algorithm>

#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

namespace cgp::kernels {
namespace {

std::uint64_t wave_tiles(std::uint64_t n, int tile) {
  return (n + std::uint64_t(tile) - 1) / std::uint64_t(tile);
}

// Operands whose rows are contiguous come in panels of 64 of them: those of which part begin inside a line of
// 128 bytes.
double crossing_panels(int extent) { return extent % 64 == 0 ? 0 : extent % 32 == 0 ? 0.5 : 0.75; }

// Microseconds. A stage of K takes what its products take,
// what its rows take (those that a block asks for, and those that it is sent), or its share of the way from
// memory.
double predict_non_persistent(const GemmPersistentShape& s, const DynamicTile& t, const GemmProblem& p,
                              const GemmCalibration::NonPersistent& m) {
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const bool a = element * p.lda % 128 != 0, b = element * p.ldb % 128 != 0;
  const auto rows = [&](int extent, int sharing, double misaligned) {
    return extent * (misaligned * (m.misaligned_row_shared / sharing + m.misaligned_row_own) +
                     (1 - misaligned) * (m.row_shared / sharing + m.row_own));
  };
  const auto of = [&](int extent, bool panels, int sharing, bool misaligned) {
    return rows(panels ? (extent + 63) / 64 * 64 : extent, sharing,
                std::max(double(misaligned), panels ? crossing_panels(extent) : 0));
  };
  const double area = double(t.rows) * t.cols / 32768, multiply = m.multiply * area,
               fetch =
                   of(t.height(), p.trans_a, s.cluster_n(), a) + of(t.width(), !p.trans_b, s.cluster_m(), b),
               way = m.way / (t.stages - 1);
  const double step = std::max({multiply, fetch, way}) + m.overlap * std::min(multiply, fetch);
  const double time = double(wave_tiles(p.k, 64)) * step + (s.source_c ? m.store_source_c : m.store) * area +
                      (s.cluster > 1 ? m.prologue_cluster : m.prologue);
  const double bytes = double(element) * double(p.batch) *
                       (double(p.m) * double(p.k) + double(p.n) * double(p.k) +
                        double(p.m) * double(p.n) * (s.source_c ? 2 : 1));
  // The last term decides between tilings that memory makes equally fast.
  const double whole_lines = s.cluster > 1 && !a && !b ? m.aligned_cluster : 1;
  return (gemm_both_times(time, bytes / m.bytes_per_us + m.latency, m.power) + m.slow * time) *
         (t.swap_ab ? m.swap_ab : 1) * whole_lines;
}

}  // namespace

std::vector<GemmChoice> gemm_non_persistent_candidates_sm90(const GemmProblem& q, const GemmAddresses& at,
                                                            const runtime::DeviceInfo& d, std::size_t keep) {
  const GemmProblem p = q.dense();
  if (!reject(GemmFamily::sm90_persistent, p, at, d).empty() || p.flops() < 3e8 || p.batch > 65535) return {};
  const int sms = gemm_sms(d);
  const auto& model = gemm_calibration(d).non_persistent;
  struct Form {
    GemmPersistentShape shape;
    double microseconds;
  };
  std::vector<Form> all;
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const bool lines = element * p.lda % 128 == 0 && element * p.ldb % 128 == 0;
  // Where rows are whole lines, the cluster's barrier before the first load costs more than L2 gives, but for
  // small tiles of long K.
  const bool long_lines = lines && wave_tiles(p.k, 64) >= 32;
  const auto weigh = [&](GemmPersistentShape s) {
    const int height = s.swap_ab ? s.cols : s.rows, width = s.swap_ab ? s.rows : s.cols;
    const auto down = wave_tiles(p.m, height * s.cluster_m()),
               across = wave_tiles(p.n, width * s.cluster_n());
    if (down * across * p.batch * std::uint64_t(s.cluster) > std::uint64_t(usable_sms(sms, s.cluster)))
      return;
    // What is shared is cut into equal slices: of its rows, or (they are contiguous) of 64 of K.
    const bool whole =
        (p.trans_b ? width % s.cluster_m() : 0) == 0 && (p.trans_a ? 0 : height % s.cluster_n()) == 0;
    const bool wasteful = (s.cluster_m() > 1 && wave_tiles(p.m, height) < std::uint64_t(s.cluster_m())) ||
                          (s.cluster_n() > 1 && wave_tiles(p.n, width) < std::uint64_t(s.cluster_n()));
    if (!whole || wasteful || across * std::uint64_t(s.cluster_n()) > 65535) return;
    auto t = gemm_persistent_tile(p.type, p.trans_a, p.trans_b, s);
    if (t.stages < 3 || !t.results_fit_ring() || (s.source_c && !t.source_stages())) return;
    all.push_back({s, predict_non_persistent(s, t, p, model)});
    const int usual = t.stages;
    if (s.cluster == 1 || !long_lines || (s.stages = t.fitting_stages(0, 14)) <= usual) return;
    t.stages = s.stages;
    all.push_back({s, predict_non_persistent(s, t, p, model)});
  };
  const auto clusters = [&](GemmPersistentShape s) {
    weigh(s);
    if (lines && (!long_lines || s.rows * s.cols > 64 * 128 || s.rows * s.cols < 64 * 72)) return;
    for (int cluster : {2, 4})
      for (auto shared : {GemmShared::a, GemmShared::b}) s.cluster = cluster, s.shared = shared, weigh(s);
    s.shared = GemmShared::both, weigh(s);
  };
  for (bool swap_ab : {false, true})
    for (int rows : {64, 128, 192, 256}) {
      GemmPersistentShape s;
      s.non_persistent = true, s.swap_ab = swap_ab, s.rows = rows, s.b_evict_first = p.m <= 512;
      s.source_c = p.beta != 0;
      for (int cols = swap_ab ? 48 : 64; cols <= (rows < 192               ? 256
                                                  : rows == 256 && swap_ab ? 208
                                                                           : 192);
           cols += 8)
        s.cols = cols, clusters(s);
      // More columns than one wgmma has: both warpgroups read all rows, K contiguous.
      if (rows == 128 && (swap_ab ? !p.trans_a : p.trans_b))
        for (int cols = 272; cols <= 384; cols += 16) s.cols = cols, clusters(s);
    }
  std::stable_sort(all.begin(), all.end(),
                   [](const Form& x, const Form& y) { return x.microseconds < y.microseconds; });
  if (all.size() > keep) all.resize(keep);
  std::vector<GemmChoice> out;
  for (const auto& f : all) {
    out.push_back(choose_persistent_sm90(p.type, p.trans_a, p.trans_b, f.shape));
    out.back().microseconds = f.microseconds;
  }
  return out;
}

}  // namespace cgp::kernels
