// SPDX-License-Identifier: Apache-2.0
// The tilings that are weighed against each other on sm_90a, and a model of their times.
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

namespace cgp::kernels {
namespace {

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return (n + tile - 1) / tile; }

constexpr int kPersistentKept = 12, kNonPersistentKept = 8;

struct Tiling {
  GemmFamily kind;
  int bm, bn, cluster = 1, split = 1, min_blocks = 1;
  int group = 8;
  GemmLines c = GemmLines::normal;
  GemmShared shared = GemmShared::none;
  bool swap_ab = false;  ///< wgmma's rows are columns of C (sm90_persistent)
  double microseconds = 0;
};

// Rows that begin anywhere in a line of 128 bytes cost two lines a row of a tile.
bool misaligned(const GemmProblem& p, std::uint64_t ld) {
  return std::uint64_t(cgp::bytes(p.type)) * ld % 128 != 0;
}
// B passes by once and would push out of L2 what others have there. Very long streams are faster without.
bool streams(const GemmProblem& p) {
  return p.m <= 64 ? p.n * p.k * p.batch * std::uint64_t(cgp::bytes(p.type)) <= 200'000'000 : p.m <= 512;
}

using Model = GemmCalibration::Tilings;

// Of 128 x 256 results; rows of C that cross lines take more writes.
double results_time(const GemmProblem& p, const Model& m) {
  return m.results * (misaligned(p, p.ldc) ? m.results_misaligned : 1);
}

int split_stages(const Tiling& t, std::uint64_t k) {
  const int stage = (t.bm + t.bn) * 128, exchange_bytes = t.split > 1 ? t.bm * t.bn * 4 : 0;
  return std::clamp((227 * 1024 / t.min_blocks - 2048 - exchange_bytes) / stage, 2,
                    int(std::clamp<std::uint64_t>(tiles(k, 64), 2, 8)));
}

// Blocks of a split tile that shared memory and registers let an SM hold.
int blocks_per_sm(const Tiling& t, std::uint64_t k) {
  const int exchange_bytes = t.split > 1 ? t.bm * t.bn * 4 : 0, threads = 2 * t.bm + 128;
  return std::min(227 * 1024 / (split_stages(t, k) * (t.bm + t.bn) * 128 + exchange_bytes + 2048),
                  65536 / (threads * (t.bn / 2 + 64)));
}

// A grid of blocks that each make one tile, or with others a part of its sums.
double predict_split(const Tiling& t, std::uint64_t all, double k_tiles, double step, int sms, const Model& m,
                     std::uint64_t k) {
  const int usable = usable_sms(sms, t.split), min_blocks = std::max(t.min_blocks, blocks_per_sm(t, k));
  const auto blocks = all * std::uint64_t(t.split), slots = std::uint64_t(usable * min_blocks);
  const double share = std::min(double(min_blocks), double(tiles(blocks, std::uint64_t(usable))));
  // Results that leave from registers.
  const double start = (t.cluster > 1 ? m.prologue_pair : m.prologue_split) +
                       (t.split == 1 ? m.direct * (t.bm * t.bn / 16384. * share - 0.2) : 0);
  return double(tiles(blocks, slots)) * (std::ceil(k_tiles / t.split) * step * share + start +
                                         (t.split > 1 ? m.exchange * t.bm * t.bn / 16384 : 0));
}
// Clusters of blocks that walk over the tiles.
double predict_clusters(const Tiling& t, std::uint64_t all, double k_tiles, double step, int sms,
                        const Model& m, double results) {
  const double store = results * t.bm * t.bn / 32768;
  return double(tiles(all, std::uint64_t(usable_sms(sms, t.cluster) / t.cluster * t.cluster))) *
             (k_tiles * step + store) +
         (t.cluster > 1 ? m.prologue_cluster : m.prologue);
}
// Blocks that walk over the tiles; what is left is shared, or goes to some alone.
double predict_persistent(const Tiling& t, std::uint64_t all, double k_tiles, double step, int sms,
                          const Model& m, double results, bool reads) {
  const double area = t.bm * t.bn, direct = m.direct * area / 16384 * (reads ? 2 : 1),
               store = t.kind == GemmFamily::sm90 ? direct : results * area / 32768;
  // Old results are waited for.
  if (t.kind == GemmFamily::sm90_pingpong && t.bn == 256)
    return double(tiles(all, std::uint64_t(sms))) * (k_tiles * step + 3 * store) + m.prologue;
  if (t.kind == GemmFamily::sm90_pingpong)
    return double(tiles(all, std::uint64_t(sms))) *
               std::max(k_tiles * step + m.pingpong, reads ? m.source_c : 0) +
           store + (t.cluster > 1 ? m.prologue_cluster : m.prologue);
  const auto clusters = std::uint64_t(sms / t.split), left = all % (clusters * std::uint64_t(t.split));
  const bool shared = t.split > 1 && left > 0 && left <= clusters;
  const auto whole = shared ? all - left : all;
  const double time = double(tiles(whole, std::uint64_t(sms))) * (k_tiles * step + store) + m.prologue;
  return shared ? time + std::ceil(k_tiles / t.split) * step + 2 * m.exchange * area / 16384 : time;
}

// About as many as each kind has.
int stages_of(const Tiling& t, std::uint64_t k) {
  if (t.kind == GemmFamily::sm90_cluster_split_k) return split_stages(t, k);
  return std::clamp(200 * 1024 / ((t.bm + t.bn) * 128), 2, 8);
}

double predict(const Tiling& t, const GemmProblem& p, const runtime::DeviceInfo& d) {
  const Model& m = gemm_calibration(d).tilings;
  const int sms = gemm_sms(d);
  const double k_tiles = double(tiles(p.k, 64));
  const int cluster_m = t.shared == GemmShared::b ? t.cluster : 1,
            cluster_n = t.shared == GemmShared::a ? t.cluster : 1;
  const auto all = tiles(p.m, std::uint64_t(t.bm * cluster_m)) * tiles(p.n, std::uint64_t(t.bn * cluster_n)) *
                   std::uint64_t(t.cluster) * p.batch;
  const double multiply = t.bm * t.bn / m.products * (t.swap_ab ? m.swap_ab : 1) *
                          ((t.swap_ab ? t.bn : t.bm) == 256 ? m.tall : 1);
  // Operands whose rows are contiguous come in panels of 64 of them, which may begin inside a line.
  const auto rows = [&](int extent, int sharing, bool crosses, bool panels) {
    const int fetched = panels ? (extent + 63) / 64 * 64 : extent;
    const double crossing = crosses ? 1 : !panels || extent % 64 == 0 ? 0 : extent % 32 == 0 ? 0.5 : 0.75;
    const double wide = panels && extent > 64 ? m.panels : 1;
    return double(fetched) / sharing * (1 + crossing * (m.misaligned - 1)) * wide;
  };
  const double fetch = (rows(t.bm, cluster_n, misaligned(p, p.lda), p.trans_a) +
                        rows(t.bn, cluster_m, misaligned(p, p.ldb), !p.trans_b)) /
                       m.lines;
  // What all SMs together are sent by L2.
  const auto lines = [&](int extent, bool panels, bool crosses) {
    return (panels ? (extent + 63) / 64 * 64 : extent) * (crosses ? m.sent_misaligned : 1);
  };
  const double working = std::min(double(all) * t.split, double(sms)),
               sent = working *
                      (lines(t.bm, p.trans_a, misaligned(p, p.lda)) / cluster_n +
                       lines(t.bn, !p.trans_b, misaligned(p, p.ldb)) / cluster_m) /
                      m.sent;
  // Stages that all fly at once wait for memory once, which is in the prologue.
  const int stages = stages_of(t, p.k);
  const double way = k_tiles > stages * t.split ? m.way / (stages - 1) : 0;
  const double step = (std::max({multiply, fetch, way, sent}) + m.overlap * std::min(multiply, fetch)) *
                      (t.cluster > 2   ? m.four
                       : t.cluster > 1 ? m.pair
                                       : 1);
  const double results = results_time(p, m);
  const double time = t.kind == GemmFamily::sm90_cluster_split_k
                          ? predict_split(t, all, k_tiles, step, sms, m, p.k)
                      : t.kind == GemmFamily::sm90_persistent
                          ? predict_clusters(t, all, k_tiles, step, sms, m, results)
                          : predict_persistent(t, all, k_tiles, step, sms, m, results, p.beta != 0);
  const double bytes = double(cgp::bytes(p.type)) * double(p.batch) *
                       (double(p.m) * double(p.k) + double(p.n) * double(p.k) +
                        double(p.m) * double(p.n) * (p.beta != 0 ? 2 : 1));
  // The last term decides between tilings that memory makes equally fast.
  return gemm_both_times(time, bytes / m.bytes_per_us + m.latency, m.power) + m.slow * time;
}

GemmPersistentShape shape_of(const Tiling& t, const GemmProblem& p) {
  GemmPersistentShape s;
  s.rows = t.swap_ab ? t.bn : t.bm, s.cols = t.swap_ab ? t.bm : t.bn;
  s.swap_ab = t.swap_ab, s.cluster = t.cluster, s.shared = t.cluster > 1 ? t.shared : GemmShared::b;
  s.group = t.group, s.b_evict_first = streams(p), s.source_c = p.beta != 0;
  return s;
}

GemmChoice made(const Tiling& t, const GemmProblem& p, const GemmAddresses& at,
                const runtime::DeviceInfo& d) {
  if (t.kind == GemmFamily::sm90_pingpong) {
    GemmMixedTuning tune{.bm = t.bm, .bn = t.bn, .cluster = t.cluster, .group = t.group};
    tune.stages = t.bn == 128 ? 6 : t.bn == 176 ? 5 : 4, tune.buffers = t.bn == 176 ? 1 : 2;
    auto c = choose_mixed_sm90(p, at, d, tune);
    c.microseconds = t.microseconds;
    return c;
  }
  const int sm_count = d.sm_count;
  GemmChoice c{t.kind, {}, {}, std::uint32_t(t.bn), std::max(t.cluster, t.split)};
  c.tile_m = std::uint32_t(t.bm);
  c.microseconds = t.microseconds;
  if (t.kind == GemmFamily::sm90_persistent) {
    c = choose_persistent_sm90(p.type, p.trans_a, p.trans_b, shape_of(t, p));
    c.microseconds = t.microseconds;
  } else if (t.kind == GemmFamily::sm90_stream_k) {
    GemmStreamKTuning tune;
    tune.buffers = gemm_stream_k_buffers(t.bn), tune.stages = gemm_stream_k_stages(t.bm, t.bn, tune.buffers);
    tune.split = t.split, tune.group = t.group, tune.c = t.c;
    if (streams(p)) tune.b = GemmLines::first;
    c.variant = gemm_stream_k_sm90(p.type, p.trans_a, p.trans_b, t.bm, t.bn, tune);
  } else if (t.kind == GemmFamily::sm90) {
    c.variant = gemm_sm90(p.type, p.trans_a, p.trans_b, t.bn);
  } else {
    // A grid of few waves needs no order of its own, and no divisions before the first load.
    if (t.shared == GemmShared::a) c.tile_n *= 2;
    if (t.shared == GemmShared::b) c.tile_m *= 2;
    const auto tm = tiles(p.m, c.tile_m), tn = tiles(p.n, c.tile_n);
    c.by_grid = tn <= 65535 && tm * tn * p.batch * std::uint64_t(c.cluster) <= std::uint64_t(3 * sm_count);
    c.variant = gemm_cluster_split_k_sm90(
        p.type, p.trans_a, p.trans_b, t.bm, t.bn,
        {split_stages(t, p.k), t.split, t.min_blocks, c.by_grid ? 0 : 8, streams(p) && p.m <= 256, t.shared});
  }
  return c;
}

// Rows of clusters in a group so that the tiles of a wave cover about as many rows as columns, and all groups
// have about as many.
int square_group(const Tiling& t, const GemmProblem& p, const runtime::DeviceInfo& d) {
  const int cluster_m = t.shared == GemmShared::b ? t.cluster : 1;
  const double height = double(t.bm) * cluster_m, width = double(t.bn) * t.cluster / cluster_m;
  const auto rows = tiles(p.m, std::uint64_t(height));
  const double ideal = std::sqrt(gemm_sms(d) / double(t.cluster) * width / height);
  const auto groups = std::max<std::uint64_t>(1, std::uint64_t(std::lround(double(rows) / ideal)));
  return int(std::min<std::uint64_t>(tiles(rows, groups), 64));
}

// Warpgroups that take turns, pairs of blocks that share an operand, and K over many blocks.
std::vector<Tiling> others(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                           bool packed) {
  std::vector<Tiling> out;
  using S = GemmShared;
  const std::uint64_t k_tiles = tiles(p.k, 64), sms = std::uint64_t(gemm_sms(d));
  if (p.m > 64 && reject(GemmFamily::sm90_stream_k, p, at, d).empty()) {
    for (int bn : {128, 176, 192})
      for (int cluster : {1, 2})
        if (!packed && (p.m > 128 || cluster == 1) &&
            (bn != 176 || (cluster == 1 && p.alpha == 1 && !p.trans_a && p.trans_b)))
          out.push_back({GemmFamily::sm90_pingpong, 128, bn, cluster, 1, 1, 8, GemmLines::normal, S::b});
  }
  const auto blocks = [&](int bm, int bn) {
    return tiles(p.m, std::uint64_t(bm)) * tiles(p.n, std::uint64_t(bn)) * p.batch;
  };
  for (auto [bm, bn] : {std::pair{64, 64}, {64, 128}, {64, 256}, {128, 64}, {128, 128}}) {
    if ((bm == 128 && p.m <= 64) || blocks(bm, bn) > 3 * sms || blocks(bm, bn) < 16) continue;
    if (p.n > std::uint64_t(bn))
      out.push_back({GemmFamily::sm90_cluster_split_k, bm, bn, 2, 1, 1, 8, GemmLines::normal, S::a});
    if (p.m > std::uint64_t(bm))
      out.push_back({GemmFamily::sm90_cluster_split_k, bm, bn, 2, 1, 1, 8, GemmLines::normal, S::b});
  }
  for (auto [bm, bn, split] : {std::array{64, 32, 2},
                               {64, 32, 4},
                               {64, 32, 8},
                               {64, 64, 8},
                               {64, 64, 16},
                               {64, 128, 4},
                               {128, 64, 4},
                               {64, 128, 8},
                               {128, 64, 8}})
    if (k_tiles >= std::uint64_t(2 * split) && blocks(bm, bn) * std::uint64_t(split) <= sms &&
        (bm == 64 || p.m > 64) && (bn > 32 || p.trans_b))
      out.push_back({GemmFamily::sm90_cluster_split_k, bm, bn, 1, split});
  return out;
}

// Tiles of sm90_persistent that other kinds do not have, alone and in clusters.
template <class F>
void each_persistent(const GemmProblem& p, F&& add) {
  const bool nt = !p.trans_a && p.trans_b;
  const auto one = [&](int rows, int cols, bool swap_ab) {
    Tiling t{GemmFamily::sm90_persistent, swap_ab ? cols : rows, swap_ab ? rows : cols};
    t.swap_ab = swap_ab;
    const auto down = tiles(p.m, std::uint64_t(t.bm)), across = tiles(p.n, std::uint64_t(t.bn));
    if ((t.bm > 64 && t.bm - 64 >= int(std::min<std::uint64_t>(p.m, 512))) ||
        (t.bn > 64 && t.bn - 64 >= int(std::min<std::uint64_t>(p.n, 512))))
      return;
    const bool stream_k_has = !swap_ab && rows == 128 && (nt ? cols >= 112 : cols % 64 == 0 && cols >= 128);
    if (!stream_k_has || cols > 256) add(t);
    for (int cluster : {2, 4}) {
      t.cluster = cluster;
      t.shared = GemmShared::b;  // along cluster_m, each block loads a slice of its rows
      if (down >= std::uint64_t(cluster) && (!p.trans_b || t.bn % (8 * cluster) == 0)) add(t);
      t.shared = GemmShared::a;
      if (across >= std::uint64_t(cluster) && (p.trans_a || t.bm % (8 * cluster) == 0)) add(t);
    }
  };
  for (bool swap_ab : {false, true})
    for (int rows : {64, 128, 192, 256}) {
      for (int cols = 48; cols <= (rows < 192               ? 256
                                   : rows == 256 && swap_ab ? 200
                                                            : 192);
           cols += swap_ab ? 8 : 16)
        one(rows, cols, swap_ab);
      if (rows == 128 && (swap_ab ? !p.trans_a : p.trans_b))
        for (int cols : {272, 288, 320, 384}) one(rows, cols, swap_ab);
    }
}

// packed: operands were copied into scratch memory; pingpong would arrange them again, in its own way.
std::vector<Tiling> tilings(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                            bool packed = false) {
  std::vector<Tiling> out;
  const std::uint64_t k_tiles = tiles(p.k, 64);
  const auto add = [&](Tiling t) {
    t.microseconds = predict(t, p, d);
    out.push_back(t);
  };
  if (reject(GemmFamily::sm90_stream_k, p, at, d).empty()) {
    const bool nt = !p.trans_a && p.trans_b, low = p.m <= 64;
    for (int bn : {112, 128, 144, 160, 176, 192, 208, 224, 240, 256}) {
      if ((!nt && bn != 128 && bn != 192 && bn != 256) ||
          (low && bn != 112 && bn != 128 && bn != 144 && bn != 192 && bn != 256))
        continue;
      add({GemmFamily::sm90_stream_k, low ? 64 : 128, bn});
      if (!low && bn % 128 == 0 && k_tiles >= 2) add({GemmFamily::sm90_stream_k, 128, bn, 1, 2});
    }
    // Small problems take few microseconds with any tile, and machine code for hundreds of them cannot ship.
    if (p.flops() >= 3e8) each_persistent(p, add);
  } else {
    // C is read while the other warpgroup multiplies.
    GemmProblem fresh = p;
    fresh.beta = 0;
    const bool turns = p.m > 64 && !packed && reject(GemmFamily::sm90_stream_k, fresh, at, d).empty();
    add({turns ? GemmFamily::sm90_pingpong : GemmFamily::sm90, 128, turns ? 128 : 256});
    if (turns)
      for (int bn : {192, 256})
        add({GemmFamily::sm90_pingpong, 128, bn});  // 256: both warpgroups share a tile
    if (p.flops() >= 3e8 && reject(GemmFamily::sm90_persistent, p, at, d).empty())
      each_persistent(p, [&](const Tiling& t) {
        // Measured: warpgroups side by side wait for C.
        if (t.bm <= 256 && t.bn <= 256 &&
            gemm_persistent_tile(p.type, p.trans_a, p.trans_b, shape_of(t, p)).source_stages())
          add(t);
      });
  }
  for (auto [bm, bn] : {std::pair{64, 32}, {64, 64}, {64, 128}, {64, 256}, {128, 64}, {128, 128}})
    for (int split : {1, 2, 4})
      for (int min_blocks : {1, 2}) {
        const auto blocks = tiles(p.m, std::uint64_t(bm)) * tiles(p.n, std::uint64_t(bn)) * p.batch;
        if ((split > 1 && (k_tiles < std::uint64_t(2 * split) || bm * bn > 128 * 128 || bn == 32)) ||
            (split == 4 && (bm * bn > 64 * 64 || blocks > 30)) || (bm == 128 && p.m <= 64) ||
            (bn == 32 && !p.trans_b) || (min_blocks == 2 && (bm * bn > 64 * 128 || split > 1)))
          continue;
        add({GemmFamily::sm90_cluster_split_k, bm, bn, 1, split, min_blocks});
      }
  for (const auto& t : others(p, at, d, packed)) add(t);
  return out;
}

// Few rows of A: a tile of B for every block, as deep in flight as shared memory is large.
GemmChoice stream(const GemmProblem& p, int rows, int depth, int min_blocks) {
  GemmSmallMTuning t;
  t.tokens = p.m <= 8 ? 8 : p.m <= 16 ? 16 : p.m <= 32 ? 32 : 64;
  t.rows = rows, t.depth = depth, t.min_blocks = min_blocks, t.evict_first = streams(p);
  t.stages = std::min(16, (227 * 1024 / min_blocks - 2048) / ((rows + t.tokens) * depth * 2));
  GemmChoice c{GemmFamily::sm90_small_m, gemm_small_m_sm90(p.type, p.trans_b, t),
               text::cat(p.m, " rows of A: B is streamed once through TMA, and multiplied as the rows"),
               std::uint32_t(rows)};
  c.tile_m = std::uint32_t(t.tokens), c.tile_k = std::uint32_t(depth), c.min_blocks = min_blocks;
  return c;
}
GemmChoice stream(const GemmProblem& p) {
  if (!p.trans_b) return stream(p, 128, 64, 2);
  return streams(p) ? stream(p, 64, p.m <= 16 ? 128 : 64, 2) : stream(p, 128, 128, 1);
}
GemmChoice skinny(const GemmProblem& p, int rows, int cols, int warps, int unroll) {
  GemmSkinnyTuning t;
  t.rows = rows, t.cols = cols, t.warps = warps, t.unroll = unroll;
  GemmChoice c{GemmFamily::skinny, gemm_skinny(p.type, t),
               text::cat(p.m, " rows of A: B is read once, straight into fragments"), std::uint32_t(rows)};
  c.tile_m = std::uint32_t(cols);
  return c;
}

}  // namespace

std::vector<GemmChoice> gemm_candidates_sm90(const GemmProblem& q, const GemmAddresses& at,
                                             const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  std::vector<GemmChoice> out;
  auto all = tilings(p, at, d);
  // Hundreds of shapes: those that are predicted fastest.
  const auto dynamic = std::stable_partition(
      all.begin(), all.end(), [](const Tiling& t) { return t.kind != GemmFamily::sm90_persistent; });
  std::stable_sort(dynamic, all.end(),
                   [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
  if (all.end() - dynamic > kPersistentKept) all.erase(dynamic + kPersistentKept, all.end());
  for (const auto& t : all) {
    out.push_back(made(t, p, at, d));
    const bool walks = t.kind == GemmFamily::sm90_pingpong || t.kind == GemmFamily::sm90_persistent;
    for (int group : {square_group(t, p, d), 16})
      if (walks && p.m > 2048 && p.beta == 0 && group != t.group) {
        Tiling high = t;
        high.group = group;
        out.push_back(made(high, p, at, d));
        if (t.kind == GemmFamily::sm90_persistent) break;
      }
    if (t.kind != GemmFamily::sm90_stream_k || t.split > 1 || p.m <= 512) continue;
    Tiling other = t;
    other.c = GemmLines::first;
    out.push_back(made(other, p, at, d));
    other.c = GemmLines::normal, other.group = 16;
    if (p.m > 1024 && t.bn >= 176) out.push_back(made(other, p, at, d));
  }
  // Large tiles with K over clusters of 4, for tall or long products: by measurement alone.
  for (auto [bm, bn] : {std::pair{128, 128}, {192, 64}}) {
    const auto blocks = 4 * tiles(p.m, std::uint64_t(bm)) * tiles(p.n, std::uint64_t(bn)) * p.batch;
    const bool nt = !p.trans_a && p.trans_b;
    if (p.m >= 96 && p.k >= 2048 && (bm == 128 || nt) && blocks <= std::uint64_t(usable_sms(d.sm_count, 4)))
      out.push_back(made({GemmFamily::sm90_cluster_split_k, bm, bn, 1, 4}, p, at, d));
  }
  for (auto& c : gemm_non_persistent_candidates_sm90(p, at, d, kNonPersistentKept))
    out.push_back(std::move(c));
  for (auto& c : gemm_split_k_candidates_sm90(p, at, d)) out.push_back(std::move(c));
  if (p.m <= 64 && reject(GemmFamily::sm90_small_m, p, at, d).empty()) {
    out.push_back(stream(p, 128, 64, 2));
    if (p.trans_b)
      for (auto [rows, depth, min_blocks] :
           {std::array{64, 128, 2}, {64, 128, 1}, {64, 64, 1}, {64, 64, 2}, {64, 128, 3}, {128, 128, 1}}) {
        const int tokens = p.m <= 8 ? 8 : p.m <= 16 ? 16 : p.m <= 32 ? 32 : 64;
        if ((227 * 1024 / min_blocks - 2048) / ((rows + tokens) * depth * 2) >= 3)
          out.push_back(stream(p, rows, depth, min_blocks));
      }
  }
  if (p.m > 32 && p.flops() < 5e8 && reject(GemmFamily::skinny, p, at, d).empty())
    out.push_back(skinny(p, 16, 16, 4, 2));
  return out;
}

GemmChoice select_sm90(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d,
                       bool packed) {
  const GemmProblem p = q.dense();
  // With few tiles of long K it is faster to split K.
  const bool many = tiles(p.n, p.trans_b ? 64 : 128) * p.batch >= std::uint64_t(p.k < 2048  ? 32
                                                                                : p.trans_b ? 64
                                                                                            : 48);
  // From 17 rows on, short K is faster in one wave of other tiles.
  if (p.m <= (p.k < 2048 ? 16 : 32) && many && reject(GemmFamily::sm90_small_m, p, at, d).empty())
    return stream(p);
  const bool tiny = p.m * p.n <= 65536 && p.k <= 512 && p.batch == 1 && p.m > 32;
  if (tiny && reject(GemmFamily::skinny, p, at, d).empty()) return skinny(p, 16, 16, 4, 2);
  if (p.m <= 16 && p.k <= 8192 && (p.m <= 8 ? !many : tiles(p.n, 64) * p.batch < 32) &&
      reject(GemmFamily::skinny, p, at, d).empty())
    return p.m <= 8 ? skinny(p, 16, 8, 8, 4) : skinny(p, 16, 16, 8, 4);
  const auto all = tilings(p, at, d, packed);
  const auto& best = *std::min_element(
      all.begin(), all.end(), [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
  const auto slices = packed ? std::vector<GemmChoice>() : gemm_split_k_candidates_sm90(p, at, d);
  const auto part = std::min_element(slices.begin(), slices.end(), [](const auto& x, const auto& y) {
    return x.microseconds < y.microseconds;
  });
  // Measured: slices that are predicted alike take up to a tenth longer.
  const bool splits_k = part != slices.end() && 1.1 * part->microseconds < best.microseconds;
  const double least = splits_k ? part->microseconds : best.microseconds;
  const auto predicted = [](std::string_view what, double us, double otherwise) {
    return text::cat("TMA and wgmma; ", what, ", predicted ", std::lround(us), " us (else ",
                     std::lround(otherwise), ")");
  };
  // Of one wave a block for each tile, where that is predicted faster. Where rows cross lines, and where C
  // is read, the others take longer than they are predicted to.
  const double doubt = misaligned(p, p.lda) || misaligned(p, p.ldb) || p.beta != 0 ? 1.1 : 1;
  if (auto non_persistent = gemm_non_persistent_candidates_sm90(p, at, d, 1);
      !non_persistent.empty() && non_persistent[0].microseconds < doubt * least) {
    non_persistent[0].why =
        predicted("a block for each tile of one wave", non_persistent[0].microseconds, least);
    return non_persistent[0];
  }
  if (splits_k) {
    GemmChoice c = *part;
    c.why = predicted("K in slices that are reduced", least, best.microseconds);
    return c;
  }
  // Few rows of A that lie along M: no kernel of wgmma has tiles so low.
  if (p.m <= 16 && p.trans_a && !packed) {
    auto low = gemm_misaligned_candidates(p, at, d);
    const auto least_low = std::min_element(
        low.begin(), low.end(), [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
    if (least_low != low.end() && least_low->microseconds < 1.05 * least) return std::move(*least_low);
  }
  GemmChoice c = made(best, p, at, d);
  c.why = text::cat("TMA and wgmma; of ", all.size(), " tilings the one with the least predicted time, ",
                    std::lround(best.microseconds), " us");
  if (const auto why = reject(GemmFamily::sm90_persistent, p, at, d); !why.empty())
    text::append(c.why, text::cat("; not persistent: ", why));
  return c;
}

}  // namespace cgp::kernels
