// SPDX-License-Identifier: Apache-2.0
// Tiles of sm90_persistent for problems of one wave, a block for each (GemmPersistentShape::single), and a
// model of their times.
#include <algorithm>

#include "cgp/kernels/gemm/gemm_shaped_sm90.h"
#include "cgp/kernels/gemm/gemm_tilings_sm90.h"
#include "cgp/kernels/gemm/gemm_tuning.h"

namespace cgp::kernels {
namespace {

std::uint64_t wave_tiles(std::uint64_t n, int tile) {
  return (n + std::uint64_t(tile) - 1) / std::uint64_t(tile);
}

// Microseconds on an H200, fitted to 852 tilings of 47 problems. A stage of K takes what its products take,
// what its rows take (those that a block asks for, and those that it is sent), or its share of the way from
// memory.
double predict_single(const GemmPersistentShape& s, const ShapedTile& t, const GemmProblem& p) {
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const bool a = element * p.lda % 128 != 0, b = element * p.ldb % 128 != 0;
  const auto rows = [](int extent, int sharing, bool crooked) {
    return extent * (crooked ? 1.66e-3 / sharing + 0.49e-3 : 0.58e-3 / sharing + 0.54e-3);
  };
  const double area = double(t.rows) * t.cols / 32768, multiply = 0.578 * area,
               fetch = rows(t.height(), s.beside(), a) + rows(t.width(), s.below(), b),
               way = 1.42 / (t.stages - 1);
  const double step = std::max({multiply, fetch, way}) + 0.061 * std::min(multiply, fetch);
  const double time = double(wave_tiles(p.k, 64)) * step + 4.15 * area + (s.cluster > 1 ? 5.3 : 3.93);
  const double bytes = double(element) * double(p.batch) *
                       (double(p.m) * double(p.k) + double(p.n) * double(p.k) + double(p.m) * double(p.n));
  // The last term decides between tilings that memory makes equally fast.
  return std::max(time, bytes / 3.86e6 + 6.03) + 1e-3 * time;
}

}  // namespace

std::vector<GemmChoice> gemm_singles_sm90(const GemmProblem& q, const GemmAddresses& at,
                                          const runtime::DeviceInfo& d, std::size_t keep) {
  const GemmProblem p = q.dense();
  if (!reject(GemmKind::sm90_persistent, p, at, d).empty() || p.flops() < 3e8 || p.batch > 65535) return {};
  const int sms = d.sm_count ? d.sm_count : 132;
  struct Form {
    GemmPersistentShape shape;
    double microseconds;
  };
  std::vector<Form> all;
  const auto weigh = [&](const GemmPersistentShape& s) {
    const auto t = gemm_persistent_tile(p.type, p.trans_a, p.trans_b, s);
    // What is shared is cut into equal slices: of its rows, or (they are contiguous) of 64 of K.
    const bool whole =
        (p.trans_b ? t.width() % s.below() : 0) == 0 && (p.trans_a ? 0 : t.height() % s.beside()) == 0;
    const auto down = wave_tiles(p.m, t.height() * s.below()),
               across = wave_tiles(p.n, t.width() * s.beside());
    const auto blocks = down * across * p.batch * std::uint64_t(s.cluster);
    const bool wasteful = (s.below() > 1 && wave_tiles(p.m, t.height()) < std::uint64_t(s.below())) ||
                          (s.beside() > 1 && wave_tiles(p.n, t.width()) < std::uint64_t(s.beside()));
    if (!whole || wasteful || t.stages < 3 || blocks > std::uint64_t(usable_sms(sms, s.cluster)) ||
        across * std::uint64_t(s.beside()) > 65535 || !shaped_single_fits(t))
      return;
    all.push_back({s, predict_single(s, t, p)});
  };
  // Where rows are whole lines, the cluster's barrier before the first load costs more than L2 gives.
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const bool lines = element * p.lda % 128 == 0 && element * p.ldb % 128 == 0;
  const auto clusters = [&](GemmPersistentShape s) {
    weigh(s);
    if (lines) return;
    for (int cluster : {2, 4})
      for (auto shared : {GemmShared::a, GemmShared::b}) s.cluster = cluster, s.shared = shared, weigh(s);
    s.shared = GemmShared::both, weigh(s);
  };
  for (bool turned : {false, true})
    for (int rows : {64, 128, 192, 256}) {
      GemmPersistentShape s;
      s.single = true, s.turned = turned, s.rows = rows, s.b_first = p.m <= 512;
      for (int cols = turned ? 48 : 64; cols <= (rows < 192              ? 256
                                                 : rows == 256 && turned ? 208
                                                                         : 192);
           cols += 8)
        s.cols = cols, clusters(s);
      // More columns than one wgmma has: both warpgroups read all rows, K contiguous.
      if (rows == 128 && (turned ? !p.trans_a : p.trans_b))
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
