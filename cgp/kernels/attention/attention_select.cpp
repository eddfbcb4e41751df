// SPDX-License-Identifier: Apache-2.0
// attention: which kernel, tiles and schedule for a problem.
#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_sm90_tiles.h"

namespace cgp::kernels {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// What decides about schedules of operands of 16 bits. An iteration is one tile of keys with one of queries.
struct AttentionCosts {
  double sms;                          ///< that blocks fill
  double flops64, flops128, flops256;  ///< of an SM in a microsecond, by the width of a tile
  double block;                 ///< of a block, before its first iteration and after its last, in iterations
  double launch, bytes_per_us;  ///< of combining what blocks have that share keys
  double dynamic_us;            ///< from here on taking tiles one by one is worth its counter
  double worth;                 ///< of the time without: at most so much is left where keys are shared
  double two_warpgroups, wide_columns;  ///< of three, and of 128 keys a tile: time for as many scores
};
constexpr AttentionCosts kCosts{
#include "cgp/kernels/attention/attention_costs_h200.def"
};

bool bounded(const AttentionProblem& p) { return p.causal || p.window_left >= 0 || p.window_right >= 0; }
/// Keys that a query sees, in the mean, and at most in a tile of `rows`.
double mean_keys(const AttentionProblem& p) {
  return p.flops() / (2 * double(p.batch) * double(p.heads_q) * double(p.n_q) * double(p.d_qk + p.d_v));
}
double most_keys(const AttentionProblem& p, double rows) {
  const bool right = p.causal || p.window_right >= 0;
  if (p.window_left < 0 || !right) return double(p.n_kv);
  return std::min(double(p.n_kv), double(p.window_left) + double(p.causal ? 0 : p.window_right) + 1 + rows);
}

struct Schedule {
  int splits;
  double us;
};
// Tiles of one length come in rounds; those of many end together, but for a part of the longest.
Schedule schedule(const AttentionProblem& p, int rows, int columns) {
  const auto& tile = sm90_tile(p);
  const double rate = tile.d_qk == 64    ? kCosts.flops64 * (rows == 128 ? kCosts.two_warpgroups : 1)
                      : tile.d_qk == 128 ? kCosts.flops128
                                         : kCosts.flops256;
  const double iteration_us = 2.0 * rows * columns * double(tile.d_qk + tile.d_v) / rate;
  const double tiles = double(ceil_div(p.n_q, std::uint64_t(rows)) * p.batch * p.heads_q);
  const double longest = std::ceil(most_keys(p, rows) / columns);
  const double mean = std::min(longest, mean_keys(p) / columns + 0.5);
  const double bytes = 2.0 * double(p.batch * p.heads_q * p.n_q * p.d_v) * sizeof(float);  // written and read
  const auto time = [&](double splits) {
    const double block = longest / splits + kCosts.block, blocks = tiles * splits;
    const double iterations =
        bounded(p) ? std::max(block, (tiles * mean + blocks * kCosts.block) / kCosts.sms + block / 4)
                   : std::ceil(blocks / kCosts.sms) * block;
    return iterations * iteration_us +
           (splits > 1 ? kCosts.launch + splits * bytes / kCosts.bytes_per_us : 0);
  };
  Schedule best{1, time(1)};
  double least = best.us * kCosts.worth;
  if (p.packed || p.type == DType::e4m3) return best;
  for (int splits : {2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32})
    if (double us = time(splits); splits <= longest && us < least) best = {splits, us}, least = us;
  return best;
}

// e4m3, measured for 512 to 16 K rows. A second tile of queries on its way hides the ends of short tiles; with
// bounds persistent blocks visit one head after the other, so that every second tile of a block is as long as the
// one before was short. Where tiles are long and of many lengths, the hardware's own order is better.
AttentionSm90Tuning tune_fp8(const AttentionProblem& p, bool lse, int* columns) {
  const auto& tile = sm90_tile(p);
  const std::uint64_t n = p.n_kv;
  AttentionSm90Tuning t;
  t.warpgroups = tile.warpgroups, t.promoted = p.promoted;
  const bool plain =
      !p.promoted && !p.packed && !p.key_lengths && !AttentionFeatures::of(p, lse).modifies_scores();
  const bool narrow = tile.d_qk == 64 && plain, flat = narrow && bounded(p) && n <= 1024;  // 128 rows
  if (flat) t.warpgroups = 2;
  // Three warpgroups of 128 columns, with fewer keys a step, do without pingpong.
  const bool three = tile.d_qk == 128 && plain && n > (bounded(p) ? 1024 : 512);
  if (three) t.warpgroups = 3, *columns = 96;
  if ((tile.d_qk == 128 && !three) || flat) t.pingpong = Pingpong::at_scores;
  t.persistent = !bounded(p) || n <= 4096;
  t.head_swizzle = bounded(p) && n <= 4096;
  if (t.persistent) t.q_tiles = 2, t.stages = narrow && !bounded(p) ? 3 : 2;
  if (AttentionFeatures::of(p, lse).modifies_scores()) *columns = 0;
  return t;
}

// Tiles of one length: persistent blocks, with as few rows and keys behind the ends as may be.
AttentionSm90Tuning tune_equal_tiles(const AttentionProblem& p, int* columns) {
  const auto& tile = sm90_tile(p);
  const std::uint64_t n = p.n_kv;
  AttentionSm90Tuning t;
  t.warpgroups = tile.warpgroups;
  if (tile.d_qk == 64) {
    const double three = double(ceil_div(p.n_q, 192) * 192), two = double(ceil_div(p.n_q, 128) * 128);
    if (two < three * kCosts.two_warpgroups) t.warpgroups = 2;
    t.pingpong = t.warpgroups == 2 ? Pingpong::at_scores : n <= 4096 ? Pingpong::at_issue : Pingpong::none;
    t.q_tiles = 2, t.stages = t.warpgroups == 3 && n <= 1024 ? 3 : 2;
  } else if (tile.d_qk == 128) {
    const double wide = double(ceil_div(n, 176) * 176), narrow = double(ceil_div(n, 128) * 128);
    if (n <= 4096 && !(wide * kCosts.wide_columns < narrow && n <= 1024)) *columns = 128;
    if (*columns && n <= 1024) t.pingpong = Pingpong::at_issue, t.q_tiles = 2;
  }
  return t;
}

// Tiles of many lengths are taken one by one, heads together that L2 holds. A fixed order does without the counter
// where all is done soon, and where four or eight tiles of a head come out even: one head after the other, so that
// every second tile of a block is as long as the one before was short. Longest sequences leave it to the hardware.
AttentionSm90Tuning tune_bounded(const AttentionProblem& p, bool lse, int* columns) {
  const auto& tile = sm90_tile(p);
  const std::uint64_t n = p.n_kv, tiles = ceil_div(p.n_q, 128);
  AttentionSm90Tuning t;
  t.warpgroups = tile.warpgroups;
  if (tile.d_qk == 128 && n <= 8192) *columns = 128;
  const int keys = *columns ? *columns : tile.columns;
  const bool modified = AttentionFeatures::of(p, lse).modifies_scores() || p.mask != AttentionMask::none;
  const bool even =
      tile.d_qk == 64 ? (tiles == 4 || tiles == 8) && tiles * 128 < ceil_div(p.n_q, 192) * 192 : tiles == 4;
  const std::uint64_t longest = tile.d_qk == 64 ? n : tile.d_qk == 128 ? 12288 : 4096;
  t.dynamic = !modified && !p.packed && !p.key_lengths && !even && n <= longest &&
              schedule(p, 64 * tile.warpgroups, keys).us >= kCosts.dynamic_us;
  if (tile.d_qk == 64) {
    const bool wide = t.dynamic || n > 1024;
    t.warpgroups = wide ? 3 : 2;
    t.pingpong = wide ? (n <= 8192 ? Pingpong::at_issue : Pingpong::none)
                      : (n > 512 ? Pingpong::at_scores : Pingpong::none);
    t.persistent = t.dynamic || n <= 8192;
    if (t.persistent) t.q_tiles = 2, t.stages = t.pingpong != Pingpong::at_scores ? 3 : 2;
    t.head_swizzle = !t.dynamic && n <= 1024;
  } else {
    t.persistent = t.dynamic || n <= 4096;
    t.head_swizzle = !t.dynamic && n <= 4096;
    if (tile.d_qk == 128 && n <= 1024) t.pingpong = Pingpong::at_issue;
    if (tile.d_qk == 128 && keys == 128 && t.persistent) t.q_tiles = 2;
  }
  return t;
}

AttentionSm90Tuning tune_sm90(const AttentionProblem& p, bool lse, int* columns) {
  const bool fp8 = p.type == DType::e4m3, modified = AttentionFeatures::of(p, lse).modifies_scores();
  const auto& tile = sm90_tile(p);
  auto t = fp8          ? tune_fp8(p, lse, columns)
           : bounded(p) ? tune_bounded(p, lse, columns)
                        : tune_equal_tiles(p, columns);
  if (modified) *columns = 0;
  if (p.packed || p.key_lengths) {
    // Where sequences differ in length, the hardware's order of tiles balances what a fixed one cannot: measured on
    // packed ones of 128 to 4096 rows.
    t.head_swizzle = 0;
    t.persistent = tile.d_qk == 64 || (tile.d_qk == 128 && !bounded(p));
    if (!t.persistent) t.q_tiles = 1;
  }
  if (fp8 || p.packed) return t;
  const int keys = *columns ? *columns : modified ? tile.modified_columns : tile.columns;
  t.splits = schedule(p, 64 * t.warpgroups, keys).splits;
  if (t.splits == 1) return t;
  t.split = true, t.persistent = t.dynamic = false, t.q_tiles = 1, t.stages = 2, t.head_swizzle = 0;
  t.pingpong = Pingpong::none;
  return t;
}

}  // namespace

double attention_sm90_us(const AttentionProblem& p) {
  const auto& tile = sm90_tile(p);
  return schedule(p, tile.d_qk == 64 && p.n_q <= 128 ? 128 : 64 * tile.warpgroups, tile.columns).us;
}

AttentionChoice select_attention(const AttentionProblem& q, const AttentionAddresses& at,
                                 const runtime::DeviceInfo& d) {
  const auto p = q.dense();
  const bool lse = at.lse != 0;
  const auto against = reject(AttentionKind::sm90, p, at, d);
  if (p.type == DType::e4m3 && !against.empty()) throw Unsupported(text::cat("attention of e4m3: ", against));
  if (against.empty()) {
    int columns = 0;
    const auto tune = tune_sm90(p, lse, &columns);
    auto c = choose_sm90(p, tune, columns, lse);
    c.why = "tensor cores of sm_90a";
    return c;
  }
  const auto kind = reject(AttentionKind::mma, p, at, d).empty() ? AttentionKind::mma : AttentionKind::simt;
  auto c = choose_attention(kind, p, lse);
  c.why = reject(kind == AttentionKind::mma ? AttentionKind::sm90 : AttentionKind::mma, p, at, d);
  return c;
}

}  // namespace cgp::kernels
