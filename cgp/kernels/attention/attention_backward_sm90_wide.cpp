// SPDX-License-Identifier: Apache-2.0
// attention backward sm90 above 128 columns: its kernels (attention_backward_sm90_wide.h) and their launch.
#include "cgp/kernels/attention/attention_backward_sm90_wide.h"

#include <algorithm>

#include "cgp/base/text.h"

namespace cgp::kernels::attention_impl {
namespace {

constexpr std::uint64_t kStatsRows = kWideOwn;  ///< rows of a head's statistics are a multiple of this
std::uint64_t wide_tiles(std::uint64_t rows, std::uint64_t each) { return (rows + each - 1) / each; }
/// Of a head, or of all its sequences where packed.
std::uint64_t stats_tiles(const AttentionProblem& p, std::uint64_t total_q) {
  return p.packed ? packed_tiles(total_q, p.batch, kWideOther)
                  : wide_tiles(p.n_q, kStatsRows) * (kStatsRows / kWideOther);
}
std::uint64_t stats_rows(const AttentionProblem& p, std::uint64_t total_q) {
  return stats_tiles(p, total_q) * kWideOther * p.heads_q * (p.packed ? 1 : p.batch);
}

template <int DQK, int DV, bool Values>
Variant of_type(const AttentionBackwardConfig& c) {
  return c.type == DType::f16 ? variant(c.name(), 90, wide_kernel<f16, DQK, DV, Values>, c)
                              : variant(c.name(), 90, wide_kernel<bf16, DQK, DV, Values>, c);
}
template <int DQK, int DV>
Variant wide_variant(const AttentionBackwardConfig& c) {
  return c.step == BackwardStep::d_v ? of_type<DQK, DV, true>(c) : of_type<DQK, DV, false>(c);
}

// As in the forward pass: one head after the other without bounds, since all tiles are equally long, and
// where blocks are persistent; else as many as L2 holds the other side of.
std::uint32_t wide_head_swizzle(const AttentionProblem& p, bool persistent, std::uint64_t pairs,
                                std::uint64_t head_bytes) {
  const bool bounded = p.causal || p.window_left >= 0 || p.window_right >= 0;
  if (!bounded || persistent) return 1;
  return even_groups(pairs, (34u << 20) / std::max<std::uint64_t>(1, head_bytes));
}

}  // namespace

std::vector<AttentionBackwardConfig> backward_wide(const AttentionProblem& p,
                                                   const AttentionBackwardSm90Tuning& tune,
                                                   const AttentionFeatures& f) {
  AttentionBackwardConfig all{.type = p.type, .kind = AttentionKind::sm90, .tune = tune, .features = f};
  const bool narrow_values = p.d_qk <= 192 && p.d_v <= 128;
  all.d_qk = narrow_values ? 192 : 256, all.d_v = narrow_values ? 128 : 256;
  auto delta = all, d_k = all, d_v = all, d_q = all;
  d_k.step = BackwardStep::d_k, d_v.step = BackwardStep::d_v, d_q.step = BackwardStep::d_q;
  delta.d_qk = delta.d_v = 256, delta.features = {}, delta.features.packed = f.packed;
  d_q.tune.split = false;
  if (!tune.split) return {delta, d_k, d_v, d_q};
  auto d_kv = all;
  d_kv.step = BackwardStep::d_kv, d_kv.features = {};
  return {delta, d_k, d_v, d_q, d_kv};
}
Variant backward_wide_variant(const AttentionBackwardConfig& c) {
  return c.d_qk == 192 ? wide_variant<192, 128>(c) : wide_variant<256, 256>(c);
}

AttentionBackwardSm90Tuning tune_backward_wide(const AttentionProblem& p) {
  const bool bounded = p.causal || p.window_left >= 0 || p.window_right >= 0;
  AttentionBackwardSm90Tuning t;
  t.order = AddOrder::any;
  // As in the forward pass: a fixed order of tiles is out of balance where sequences differ.
  t.persistent = !p.packed && !p.key_lengths && (!bounded || std::max(p.n_q, p.n_kv) <= 4096);
  t.splits = backward_splits(p), t.split = t.splits > 1;
  return t;
}

std::uint64_t backward_wide_workspace(const AttentionProblem& p, std::uint64_t total_q,
                                      std::uint64_t splits) {
  const std::uint64_t keys = p.batch * p.heads_kv * wide_tiles(p.n_kv, kWideOwn) * kWideOwn;
  return stats_rows(p, total_q) * 8 + (splits > 1 ? 2 * splits * keys * 256 * sizeof(float) : 0);
}

void run_backward_wide(runtime::Stream& s, const AttentionBackwardChoice& c, const AttentionProblem& p,
                       const AttentionAddresses& at, const AttentionGradients& g) {
  const auto& device = s.device();
  BackwardSm90Arguments own{};
  own.d_o = g.d_o, own.d_q = g.d_q, own.d_k = g.d_k, own.d_v = g.d_v, own.stats = g.workspace;
  const auto total_q = packed_rows(p, at), total_kv = at.total_kv ? at.total_kv : p.batch * p.n_kv;
  own.stats_rows = stats_rows(p, total_q);
  own.tiles_q = std::uint32_t(stats_tiles(p, total_q));
  const auto splits = std::uint64_t(c.sm90.split ? c.sm90.splits : 1);
  own.partial_d_kv = g.workspace + own.stats_rows * 8, own.splits = std::uint32_t(splits);
  auto n = attention_arguments(p, at);
  load(device, c.kernels[0])(s, runtime::grid_for(own.stats_rows / kWideOther, 1), n, own);
  const auto sms = std::uint64_t(std::max(1, device.info().sm_count));
  const std::uint64_t group = p.heads_q / p.heads_kv;
  const auto run = [&](std::size_t kernel, bool queries) {
    const auto fn = load(device, c.kernels[kernel]);
    const auto map = [&](std::size_t param, bool of_queries, bool scores) {
      const auto address = of_queries ? (scores ? at.q : g.d_o) : scores ? at.k : at.v;
      const auto& strides = of_queries ? (scores ? p.q : p.o) : scores ? p.k : p.v;
      return attention_map(device, fn, param,
                           rows_for_map(p, address, strides, scores ? p.d_qk : p.d_v, of_queries), p.type);
    };
    const std::uint64_t pairs = (p.packed ? 1 : p.batch) * (queries ? p.heads_q : p.heads_kv);
    const std::uint64_t tiles_m = p.packed ? packed_tiles(queries ? total_q : total_kv, p.batch, kWideOwn)
                                           : wide_tiles(queries ? p.n_q : p.n_kv, kWideOwn);
    const std::uint64_t tiles = tiles_m * pairs * (queries ? 1 : splits);
    n.tiles_m = std::uint32_t(tiles_m), n.tiles = std::uint32_t(tiles), n.pairs = std::uint32_t(pairs);
    // Of all heads the tiles of a packed sequence come together.
    n.head_swizzle = p.packed ? std::uint32_t(pairs)
                              : wide_head_swizzle(p, c.sm90.persistent, pairs,
                                                  2 * (p.d_qk + p.d_v) * (queries ? p.n_kv : p.n_q * group));
    if (c.sm90.head_swizzle)
      n.head_swizzle = std::uint32_t(std::min(pairs, std::uint64_t(c.sm90.head_swizzle)));
    fn(s, backward_grid(c.sm90, tiles, sms), map(0, queries, true), map(1, queries, false),
       map(2, !queries, true), map(3, !queries, false),
       backward_stats_map(device, fn, 4, own.stats, own.stats_rows), n, own);
  };
  run(1, false), run(2, false);
  const auto of_keys = n;
  run(3, true);
  if (c.sm90.split)
    load(device, c.kernels[4])(
        s, runtime::grid_for(std::uint64_t(2 * 256 / 64) * of_keys.tiles_m * of_keys.pairs, 1), of_keys, own);
}

}  // namespace cgp::kernels::attention_impl
