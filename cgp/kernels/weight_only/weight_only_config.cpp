// SPDX-License-Identifier: Apache-2.0
// Which config a problem gets, and its launch.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/kernels/weight_only/weight_only.h"
#include "cgp/kernels/weight_only/weight_only_params.h"

namespace cgp::kernels {
namespace {

// Of 228 KB a multiprocessor, of which each block takes one for itself: one of each fits, two of either do not.
constexpr int kSmallerKb = 109, kLargerKb = 116;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Clusters of a launch. GPCs have no multiple of 4 SMs: of 132 SMs of an H200 30 clusters of 4 run at the same time.
std::uint64_t clusters_of(int cluster, int sms) {
  return std::uint64_t(std::max(1, (cluster > 2 ? sms * 10 / 11 : sms) / cluster));
}

// Tiles of y that each warp (of those that share K) walks over.
std::uint64_t all_rounds(const WeightOnlyConfig& c, std::uint64_t n, int sms) {
  const auto teams = clusters_of(c.cluster, sms) * std::uint64_t(c.warps / c.share);
  return ceil_div(ceil_div(n, std::uint64_t(16 * c.y_tiles)), teams);
}

}  // namespace

int WeightOnlyConfig::smem_bytes() const {
  const auto& l = layout(format);
  const int columns = std::max(rows, 8), per_lane = 4 * 4 * y_tiles * columns / 8;
  const int x = block_tiles() * (512 * rows + l.parts() * 4 * (rows == 1 ? 1 : 2 * rows) +
                                 (l.has_min && rows > 1 ? 8 * l.groups() * columns : 0));
  const int ring = warps * slots * (y_tiles * l.tile_bytes() + 8);
  return x + ring + (norm ? 4 * warps : 0) + (parts() > 1 ? buffers * rounds * warps * 32 * per_lane : 0) +
         (rows == 1 ? 512 : 0) + (pairs ? 256 * 128 : 0) + row_bytes() + 1024;
}

bool weight_only_fit(WeightOnlyConfig& c, std::uint64_t n, const WeightOnlyDevice& d) {
  const int most = c.smem_kb ? c.smem_kb * 1024 : d.smem;
  c.rounds = c.buffers = 1;
  if (c.parts() == 1) return c.smem_bytes() <= most;
  const auto all = all_rounds(c, n, d.sms);
  for (int rounds = 16; rounds; --rounds) {
    c.rounds = rounds, c.buffers = std::uint64_t(rounds) >= all ? 1 : 2;
    if (std::uint64_t(rounds) > all) continue;
    if (c.smem_bytes() <= most) return true;
  }
  return false;
}

namespace {

// Microseconds that a config is expected to take beyond its launch, fitted to 700 measurements on an H200: what it chooses
// is 2 % slower than the fastest in the mean, 8 % at worst.
double expected_us(const WeightOnlyConfig& c, std::uint64_t n, int sms) {
  const double bytes_per_us = 31000;  // of an SM, when all read
  const auto rounds = all_rounds(c, n, sms);
  // Tiles of a block; and of its warp that has most, times the warps: others get its share of the bandwidth.
  const double even =
                   double(ceil_div(ceil_div(n, std::uint64_t(16 * c.y_tiles)), clusters_of(c.cluster, sms))) *
                   c.block_tiles() * c.y_tiles,
               most = double(rounds * ceil_div(std::uint64_t(c.block_tiles()), std::uint64_t(c.share))) *
                      c.y_tiles * c.warps;
  const double tiles = 0.9 * even + 0.1 * most;
  // What multiplying takes beyond reading: few warps hide less of it.
  const bool few = c.rows <= 8;
  double slower = c.warps < 16 ? 1.05 : 1;
  if (!few) slower = c.warps > 12 ? 1.1 : 1.21;
  if (c.rows > 16) slower = c.y_tiles > 1 ? 2 : 2.4;
  // x comes from L2 while the first weights are under way.
  const double x = std::max(0.0, 0.02 * c.block_tiles() * c.rows - (few ? 2.5 : 0.5));
  double add = 0;
  if (c.parts() > 1)
    add = ((few ? 0.1 : 0.2) + (c.cluster > 1 ? 0.05 * c.cluster : 0)) *
              double(ceil_div(rounds, std::uint64_t(c.rounds))) +
          (few ? 0.01 : 0.05) * double(rounds) * c.parts();
  return tiles * layout(c.format).tile_bytes() / bytes_per_us * slower + x + add;
}

// slots 0: none fits.
WeightOnlyConfig fitting(WeightOnlyConfig c, std::uint64_t n, const WeightOnlyDevice& d) {
  WeightOnlyConfig best = c;
  best.slots = 0;
  double least = 0;
  const int most_warps = c.rows > 16 ? 8 : 16;  // registers
  const bool clusters = d.bulk() && d.smem >= 128 * 1024;
  for (int cluster : {1, 2, 4, 8})
    for (int warps : {16, 12, 8, 4}) {
      // sm_120 has clusters, and 99 KB a block, as sm_86 and sm_89: there a block may be small instead.
      if (warps > most_warps || (cluster > 1 && !clusters) || (warps == 4 && clusters)) continue;
      for (int share = 1; share <= warps; share *= 2) {
        if (warps % share) continue;
        c.cluster = cluster, c.warps = warps, c.share = share;
        // Beside another launch a block does best with all of K, and with warps of at least two tiles of y or parts of K.
        if (c.smem_kb && (cluster > 1 || (share == 1 && all_rounds(c, n, d.sms) == 1))) continue;
        // With a norm a block has the row, eight times eight elements a thread at most.
        if (c.norm && (cluster > 1 || c.k_tiles > 8 * warps)) continue;
        for (c.y_tiles = 1; c.y_tiles <= (clusters && c.rows > 16 && layout(c.format).bits < 8 ? 2 : 1);
             ++c.y_tiles) {
          if (!weight_only_fit(c, n, d)) continue;
          const double us = expected_us(c, n, d.sms);
          if (best.slots && us >= least) continue;
          best = c, least = us;
        }
      }
    }
  return best;
}

// With more rows of x what x takes in shared memory decides; there prmt looks numbers up.
WeightOnlyConfig chosen(WeightOnlyConfig c, std::uint64_t n, const WeightOnlyDevice& d) {
  c.pairs = layout(c.format).looked_up() && c.rows <= 16;
  if (const auto best = fitting(c, n, d); best.slots || !c.pairs) return best;
  c.pairs = false;
  return fitting(c, n, d);
}

}  // namespace

WeightOnlyConfig weight_only_config(const WeightOnlyProblem& p, const WeightOnlyDevice& d) {
  WeightOnlyConfig c{p.type, p.format};
  c.async = !d.bulk();
  c.k_tiles = int((p.k + 255) / 256), c.pdl = p.pdl, c.end = p.end, c.activation = p.activation;
  if (p.pdl) c.order = p.order;
  c.norm = p.norm != 0, c.gather = p.gather != 0;
  while (std::uint64_t(c.rows) < p.m && c.rows < int(kWeightOnlyMaxRows)) c.rows *= 2;
  if (p.pdl && p.space != WeightOnlySpace::whole && c.rows == 1) {
    WeightOnlyConfig beside = c;
    beside.smem_kb = p.space == WeightOnlySpace::larger ? kLargerKb : kSmallerKb, beside.min_blocks = 2;
    if (beside = chosen(beside, p.n, d); beside.slots) return beside;
  }
  return chosen(c, p.n, d);
}

std::string reject_group(const WeightOnlyProblem& p) {
  const auto group = std::uint64_t(layout(p.format).group);
  return p.k % group ? text::cat("k = ", p.k, " is no multiple of a group of ", group) : std::string();
}

std::string reject_end(const WeightOnlyProblem& p) {
  if (p.end == WeightOnlyEnd::gate && p.n % 16)
    return text::cat("n = ", p.n, " is no multiple of 16, of which 8 are rows of the gate and 8 of up");
  if (p.end != WeightOnlyEnd::gate && p.activation != Activation::identity)
    return "an activation is that of a gate";
  return {};
}

WeightOnlyDevice::WeightOnlyDevice(const runtime::DeviceInfo& d)
    : sms(std::max(1, d.sm_count)), cc(d.cc()), smem(int(d.smem_per_block_optin)) {}

std::string reject(const WeightOnlyProblem& p, const WeightOnlyDevice& d) {
  if (d.cc < 80) return text::cat("compute capability ", d.cc, ": mma.m16n8k16 needs 80");
  if (p.pdl && !d.bulk()) return text::cat("pdl: programmatic launches need sm_90, this has ", d.cc);
  if (p.type != DType::f16 && p.type != DType::bf16)
    return text::cat("type = ", name(p.type), ": x and y are f16 or bf16");
  if (p.groups) return "groups: they are multiplied on wgmma";
  if (p.m > kWeightOnlyMaxRows)
    return text::cat("m = ", p.m, ": at most ", kWeightOnlyMaxRows, " rows of x are possible");
  if (!p.k || p.k % 32 || p.k > 0x7fffff00)
    return text::cat("k = ", p.k, " is no multiple of 32 from 32 to 2^31 - 256");
  if (auto why = reject_group(p); !why.empty()) return why;
  if (p.n > 0x7ffffff0) return text::cat("n = ", p.n, ": less than 2^31 - 16 is possible");
  if (p.norm && (p.m > 1 || p.norm % 16)) return "norm: one row of x, and a weight at a multiple of 16 bytes";
  if (p.gather && (p.gather % 16 || p.norm || p.order == WeightOnlyOrder::beside))
    return "gather: its indices lie at a multiple of 16 bytes, and there is no norm and no order `beside`";
  if (p.x % 16 || p.ldx % 8) return "x and its rows must lie at multiples of 16 bytes";
  if (p.w % 16) return "packed weights must lie at a multiple of 16 bytes";
  if (auto why = reject_end(p); !why.empty()) return why;
  if (!weight_only_config(p, d).slots)
    return text::cat("m = ", p.m, ", k = ", p.k, ": x does not fit into the shared memory of ",
                     d.bulk() && d.smem >= 128 * 1024 ? "8 blocks" : "a block");
  return {};
}

void weight_only_gemm(runtime::Stream& s, const WeightOnlyProblem& p) {
  const WeightOnlyDevice d(s.device().info());
  if (auto why = reject(p, d); !why.empty()) throw Unsupported(text::cat("weight_only: ", why));
  if (!p.m || !p.n) return;
  weight_only_gemm(s, p, weight_only_config(p, d));
}

void weight_only_gemm(runtime::Stream& s, const WeightOnlyProblem& p, const WeightOnlyConfig& c) {
  const auto tiles = std::uint32_t(ceil_div(p.n, std::uint64_t(16 * c.y_tiles)));
  const auto clusters = std::uint32_t(clusters_of(c.cluster, std::max(1, s.device().info().sm_count)));
  const WeightOnlyParams<dsl::HostValue> n{.x = p.x,
                                           .ldx = p.ldx ? p.ldx : p.k,
                                           .w = p.w,
                                           .y = p.y,
                                           .ldy = p.ldy ? p.ldy : p.columns(),
                                           .norm = p.norm,
                                           .gather = p.gather,
                                           .m = std::uint32_t(p.m),
                                           .n = std::uint32_t(p.n),
                                           .k = std::uint32_t(p.k),
                                           .eps = p.eps,
                                           .y_tiles = tiles};
  const auto kernel = load(s.device(), weight_only_variant(c));
  kernel(
      s,
      runtime::Launch{.grid = {std::min(tiles, clusters) * std::uint32_t(c.cluster)}, .programmatic = c.pdl},
      n);
}

}  // namespace cgp::kernels
