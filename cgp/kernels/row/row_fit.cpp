// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_fit.h"

#include <algorithm>
#include <span>

#include "cgp/base/text.h"

namespace cgp::kernels::row {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// Rows of up to `accesses` take `least` to `most` accesses a thread; registers beside the row's words: `spare`.
/// Fewer leave room for more blocks, more keep the compiler from spilling or from waiting.
struct Range {
  std::uint64_t accesses;
  int least, most, spare;
};
constexpr Range kPlain[] = {{128, 2, 8, 48},  {256, 2, 5, 48},  {512, 3, 5, 48},
                            {1100, 3, 6, 48}, {2100, 4, 8, 28}, {4096, 5, 8, 28}};
constexpr Range kSoftmax[] = {
    {128, 2, 8, 28}, {256, 3, 5, 28}, {512, 3, 5, 48}, {1100, 3, 8, 48}, {4096, 6, 8, 28}};
// Cross-entropy's gradient.
constexpr Range kLossGradient[] = {
    {128, 3, 8, 28}, {256, 3, 5, 28}, {512, 3, 5, 48}, {1100, 3, 8, 48}, {4096, 6, 8, 28}};
constexpr Range kMoments[] = {{128, 2, 8, 48},  {256, 3, 6, 48},  {512, 4, 6, 48},
                              {1100, 4, 7, 48}, {2100, 5, 8, 28}, {3584, 6, 8, 28}};
// Statistics that are the result.
constexpr Range kOnce[] = {{128, 2, 10, 28},  {256, 5, 10, 28}, {512, 6, 10, 28},
                           {1100, 8, 10, 28}, {2100, 7, 9, 28}, {2816, 7, 10, 28}};
// Rows with edges and column vectors: persistent blocks that hold them.
constexpr Range kEdgePlain[] = {{512, 0, 0, 0}, {1130, 5, 8, 48}, {3200, 9, 10, 48}};
constexpr Range kEdgeMoments[] = {{64, 0, 0, 0},   {128, 3, 4, 40}, {256, 5, 8, 40},
                                  {384, 3, 3, 40}, {512, 4, 4, 40}, {1130, 6, 8, 48}};

std::uint64_t words(std::span<const DType> types, int elements) {
  std::uint64_t n = 0;
  for (DType t : types) n += std::uint64_t(Format{t, elements}.words());
  return n;
}

/// Rings for gradients with sums over rows, of 16-bit elements, where a row nearly fills a ring's slots (threads times
/// accesses times blocks); statistics travel ahead, or loads of what belongs to the row do.
struct GradientRing {
  int threads, loads, cluster, min_blocks;
  enum : std::uint8_t { plain, prefetch, overlap } ahead;
};
constexpr GradientRing kOneAccumulator[] = {
    {128, 1, 1, 4, GradientRing::prefetch}, {192, 1, 1, 4, GradientRing::prefetch},
    {320, 1, 1, 2, GradientRing::prefetch}, {448, 2, 1, 1, GradientRing::prefetch},
    {320, 5, 1, 1, GradientRing::plain},    {384, 3, 2, 1, GradientRing::overlap},
    {128, 3, 8, 4, GradientRing::prefetch}, {320, 5, 4, 1, GradientRing::overlap},
    {448, 3, 8, 1, GradientRing::prefetch}};
constexpr GradientRing kTwoAccumulators[] = {
    {128, 1, 1, 4, GradientRing::prefetch}, {320, 1, 1, 2, GradientRing::prefetch},
    {320, 5, 1, 1, GradientRing::plain},    {192, 3, 4, 3, GradientRing::overlap},
    {320, 5, 4, 1, GradientRing::overlap},  {448, 3, 8, 1, GradientRing::prefetch}};
constexpr GradientRing kEdgeOneAccumulator[] = {{192, 3, 1, 3, GradientRing::prefetch},
                                                {192, 3, 2, 3, GradientRing::overlap},
                                                {192, 3, 4, 3, GradientRing::prefetch},
                                                {128, 4, 8, 4, GradientRing::overlap},
                                                {320, 5, 4, 1, GradientRing::overlap}};
constexpr GradientRing kEdgeTwoAccumulators[] = {{192, 3, 2, 2, GradientRing::prefetch},
                                                 {192, 3, 4, 2, GradientRing::prefetch},
                                                 {128, 4, 8, 3, GradientRing::overlap},
                                                 {320, 5, 4, 1, GradientRing::overlap}};

/// The fewest slots (threads times accesses) that a row needs; of equals the fewest accesses.
bool fit(std::span<const Range> ranges, const RowNeeds& n, std::uint64_t accesses, RowConfig& t,
         const runtime::DeviceInfo& device) {
  const auto range =
      std::find_if(ranges.begin(), ranges.end(), [&](const Range& r) { return accesses <= r.accesses; });
  if (range == ranges.end() || !range->most) return false;
  int threads = 0, loads = 0;
  for (int lanes : {1024, 768, 512, 448, 384, 320, 256, 192, 160, 128, 96, 64, 32}) {
    const int each = int(ceil_div(accesses, std::uint64_t(lanes)));
    if (each < range->least || each > range->most) continue;
    if (!threads || lanes * each < threads * loads) threads = lanes, loads = each;
  }
  if (!threads) return false;
  t.threads = threads, t.loads = loads;
  const bool few = n.fold_size > 2 && !t.persistent && (loads == 3 || loads == 4) && device.cc_major >= 9;
  t.rows = threads > 32 || few ? 1 : 4;
  if (device.cc_major < 9) return true;  // the assembler's choice of registers
  const std::uint64_t row = std::uint64_t(loads) * words(n.inputs, t.elements) * (t.persistent ? 2 : 1);
  const std::uint64_t held = t.hold_columns ? std::uint64_t(loads) * words(n.columns, t.elements) : 0;
  const std::uint64_t registers = (row + held + std::uint64_t(n.registers + range->spare) + 7) / 8 * 8;
  // A quarter of an SM's registers serves a quarter of its warps.
  const std::uint64_t warps = std::uint64_t(t.threads * t.rows) / 32;
  const std::uint64_t quarter =
      std::uint64_t(device.registers_per_sm) / (4 * 32 * std::min<std::uint64_t>(registers, 255));
  t.min_blocks = int(std::clamp<std::uint64_t>(
      4 * quarter / warps, 1,
      std::min<std::uint64_t>(std::uint64_t(device.max_threads_per_sm) / 32 / warps, 32)));
  return true;
}

/// Rows longer than a block's registers: what was best of rings and persistent clusters.
std::optional<RowConfig> long_row(const RowNeeds& n, RowConfig t, std::uint64_t accesses, std::uint64_t rows,
                                  const runtime::DeviceInfo& device) {
  t.rows = 1;
  const auto shape = [&](int threads, int cluster, int stages, int min_blocks) {
    t.threads = threads, t.cluster = cluster, t.stages = stages, t.min_blocks = min_blocks;
    t.loads = int(ceil_div(accesses, std::uint64_t(threads) * std::uint64_t(cluster)));
    t.persistent = !stages && cluster > 1;
    t.hold_columns = (stages || cluster > 1) && !n.columns.empty();
  };
  const bool narrow_columns = words(n.columns, t.elements) <= 4 * n.columns.size();
  if (n.row_loads &&
      n.columns.empty()) {  // cross-entropy's gradient; more rows hide how a ring begins and ends
    if (rows > 16 * std::uint64_t(std::max(1, device.sm_count))) return {};
    if (accesses > 5376 && accesses <= 7168) {
      shape(448, 2, 0, 2);
      t.persistent = false;
    } else if (accesses > 8192 && accesses <= 11264) {
      shape(256, 4, 2, 2);
    } else if (accesses > 11264 && accesses <= 16384) {
      shape(256, 8, 0, 2);
    } else {
      return {};
    }
  } else if (n.fold_size == 2 && n.columns.empty()) {
    if (!n.expensive || accesses <= 4096 || accesses > 20480) return {};
    if (accesses <= 7680)
      shape(256, 2, 2, 1);
    else if (accesses <= 8192)
      shape(256, 4, 0, 2);
    else if (accesses <= 11264)
      shape(256, 4, 3, 1);
    else
      shape(256, 8, 0, 2);
  } else if (n.columns.empty() || !narrow_columns) {
    return {};
  } else if (n.fold_size > 2) {
    if (t.edges && accesses > 1130 && accesses <= 3072)
      shape(256, 1, 2, accesses <= 1536 ? 2 : 1);
    else if (!t.edges && accesses > 4096 && accesses <= 5376)
      shape(448, 2, 2, 1);
    else
      return {};
  } else if (t.edges) {
    if (accesses <= 3200 || accesses > 4096) return {};
    shape(256, 4, 0, 3);
  } else if (accesses > 4096 && accesses <= 5120) {
    shape(1024, 1, 0, 1);
  } else if (accesses > 6656 && accesses <= 8192) {
    shape(256, 8, 0, 3);
  } else if (accesses > 8192 && accesses <= 12288) {
    shape(int(ceil_div(accesses, 24 * 32)) * 32, 8, 0, 2);
  } else {
    return {};
  }
  const std::uint64_t stage = std::uint64_t(t.threads * t.loads) * 4 * words(n.inputs, t.elements);
  const std::uint64_t shared = std::uint64_t(t.stages) * stage + 2048;
  if (shared > device.smem_per_block_optin || shared * std::uint64_t(t.min_blocks) > device.smem_per_sm)
    return {};
  return t;
}

}  // namespace

std::optional<RowPlan> fitted_row(const RowNeeds& n, const RowConfig& given, std::uint64_t accesses,
                                  std::uint64_t rows, const runtime::DeviceInfo& device) {
  if (n.inputs.size() != 1 || n.accumulators || accesses <= 32) return {};
  RowConfig t = given;
  const auto sms = std::uint64_t(std::max(1, device.sm_count));
  const bool many = device.cc_major >= 9 && device.max_cluster >= 8 && rows >= 2 * sms;
  const bool holds = t.edges && !n.columns.empty();
  if (holds && !many) return {};
  if (holds) t.persistent = t.hold_columns = true;
  const std::span<const Range> ranges =
      holds    ? n.fold_size > 2 ? std::span<const Range>(kEdgeMoments) : std::span<const Range>(kEdgePlain)
         : n.once ? std::span<const Range>(kOnce)
      : n.fold_size > 2 ? std::span<const Range>(kMoments)
      : n.row_loads     ? std::span<const Range>(kLossGradient)
      : n.fold_size > 1 ? std::span<const Range>(kSoftmax)
                        : std::span<const Range>(kPlain);
  if (fit(ranges, n, accesses, t, device))
    return RowPlan{t,
                   text::cat(t.loads, " accesses for each of ", t.threads, " threads; ",
                             holds ? "persistent blocks; column vectors in registers" : "kept in registers")};
  if (n.once && accesses > kOnce[std::size(kOnce) - 1].accesses) {
    // Nothing keeps the row: a block walks along it, with as many blocks a row as the device has to spare.
    t.one_pass = true, t.rows = 1, t.loads = 4;
    const int blocks = rows < 4 * sms ? 2 : accesses <= 4096 ? 8 : 4;
    t.threads = std::min(1024 / blocks, device.max_threads_per_block);
    while (t.cluster < std::min(device.max_cluster, 8) && std::uint64_t(t.cluster) * rows < sms)
      t.cluster *= 2;
    if (device.cc_major >= 9) t.min_blocks = blocks;
    return RowPlan{t, "read once, statistics alone"};
  }
  if (many)
    if (auto c = long_row(n, given, accesses, rows, device))
      return RowPlan{*c, c->stages       ? text::cat("a ring of ", c->stages, " rows")
                         : c->persistent ? text::cat("persistent clusters of ", c->cluster, " blocks")
                                         : "kept in registers"};
  return {};
}

std::optional<RowPlan> fitted_gradient(const RowNeeds& n, const RowConfig& given, std::uint64_t accesses,
                                       std::uint64_t rows, const runtime::DeviceInfo& device) {
  const bool bulk = device.max_cluster >= 8 && device.smem_per_block_optin > 200 * 1024;
  if (!bulk || rows < 2 * std::uint64_t(std::max(1, device.sm_count)) || (accesses & (accesses - 1)) == 0)
    return {};
  const bool halves = words(n.inputs, 8) == 8 && words(n.columns, 8) == 4;
  if (given.elements != 8 || n.inputs.size() != 2 || n.columns.size() != 1 || n.accumulators > 2 || !halves)
    return {};
  const bool one = n.accumulators == 1;
  const auto rings = given.edges ? one ? std::span<const GradientRing>(kEdgeOneAccumulator)
                                       : std::span<const GradientRing>(kEdgeTwoAccumulators)
                     : one ? std::span<const GradientRing>(kOneAccumulator)
                                 : std::span<const GradientRing>(kTwoAccumulators);
  for (const auto& r : rings) {
    const auto slots = std::uint64_t(r.threads) * std::uint64_t(r.loads * r.cluster);
    if (accesses > slots || 8 * accesses < 7 * slots) continue;
    const std::uint64_t share = std::min<std::uint64_t>(
        device.smem_per_sm / std::uint64_t(r.min_blocks) - 1024, device.smem_per_block_optin);
    const std::uint64_t stage = std::uint64_t(r.threads * r.loads) * 4 * words(n.inputs, given.elements);
    RowConfig t = given;
    t.threads = r.threads, t.rows = 1, t.loads = r.loads, t.cluster = r.cluster, t.min_blocks = r.min_blocks;
    t.stages = int(std::min<std::uint64_t>(6, (share - 2048) / stage)), t.hold_columns = true;
    t.prefetch = r.ahead == GradientRing::prefetch, t.overlap_exchange = r.ahead == GradientRing::overlap;
    return RowPlan{t, text::cat("a ring of ", t.stages, " rows", t.cluster > 1 ? " in a cluster" : "",
                                ", column vectors and sums in registers")};
  }
  return {};
}

}  // namespace cgp::kernels::row
