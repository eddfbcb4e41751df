// SPDX-License-Identifier: Apache-2.0
// attention backward sm90: the kernels around attention_backward_sm90.h, and their launch.
//   delta      a block per tile of queries: both statistics of its rows, zeros for its sums of d_q
//   gradients  attention_backward_sm90.h
//   d_q        a block per tile of queries: sums, scaled and rounded
//   d_kv       where blocks share the queries of a tile of keys: what they have of d_k and d_v, summed in one order
#include "cgp/kernels/attention/attention_backward_sm90.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/kernels/attention/attention_delta.h"

namespace cgp::kernels {
namespace {

using namespace attention_impl;

constexpr int kThreads = 256;
/// What sharing a tile of keys costs, in iterations of 128 keys with a tile of queries.
struct SplitCosts {
  double sms;     ///< that persistent blocks fill
  double block;   ///< of a block, before its first iteration and after its last
  double launch;  ///< of d_kv
  double part;    ///< of a block's part of d_k and d_v, which goes through memory
  double worth;   ///< of the time without: at most so much is left where it is done
};
constexpr SplitCosts kSplitCosts{
#include "cgp/kernels/attention/attention_splits_h200.def"
};

/// The tile that this block owns.
struct TileOfBlock {
  Sequence s;
  Val<u32> row0;
};
TileOfBlock tile_of_block(Kernel& k, const AttentionBackwardConfig& c, const AttentionParams& p,
                          const BackwardSm90Params& g) {
  const int rows = backward_queries(c.d_qk);
  const auto& f = c.features;
  const auto bh = k.ctaid_x() / g.tiles_q, tile = k.ctaid_x() % g.tiles_q;
  const auto row0 = [&](const Val<u32>& of) { return of * std::uint32_t(rows); };
  if (!f.packed) return {sequence(f, p, bh / p.heads_q, bh % p.heads_q), row0(tile)};
  const auto of = tile_of_sequence(k, p, p.cu_seqlens_q, rows, tile);
  return {sequence(f, p, of.batch, bh), row0(of.tile)};
}

// Zeros for the sums of this block's tile.
void clear_d_q_accum(Kernel& k, const BackwardSm90Params& g) {
  const auto d_q_accum =
      Out<f32>(g.d_q_accum).at(to<u64>(k.ctaid_x()) * std::uint64_t(2 * kPartOfTile) + to<u64>(k.tid()) * 4u);
  for (int i = 0; i < 2 * kPartOfTile / 4 / kThreads; ++i)
    d_q_accum.st<4>(i * kThreads, RegGroup<f32, 4>::splat(Val<f32>(0)));
}
// Nobody has added to this block's tile; nobody has begun.
void clear_counters(Kernel& k, const BackwardSm90Params& g) {
  Out<u32>(g.arrived).st_if(k.tid() < 2u, to<u64>(k.ctaid_x()) * 2u + to<u64>(k.tid()), Val<u32>(0));
  Out<u32>(g.arrived).st_if((k.tid() == 0u) & (k.ctaid_x() + 1u == k.nctaid_x()), to<u64>(k.nctaid_x()) * 2u,
                            Val<u32>(0));
}

template <class T>
void delta_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, BackwardSm90Params g) {
  k.block(kThreads);
  auto w = k.warp();
  const int tile_rows = backward_queries(c.d_qk), each = delta_threads(c.d_qk), rows = kThreads / each;
  const auto block = tile_of_block(k, c, p, g);
  const auto column = k.tid() % std::uint32_t(each) * 8u, first = k.tid() / std::uint32_t(each),
             row0 = block.row0;
  const Sequence& s = block.s;
  std::vector<OutputColumns> columns;
  for (int r = 0; r < tile_rows; r += rows) {
    const auto row = row0 + first + std::uint32_t(r);
    columns.push_back(columns_of(p, g.d_o, s, row, column, row < s.n_q));
  }
  if (c.clears == BackwardClears::counters_and_d_q) clear_d_q_accum(k, g);
  if (c.clears != BackwardClears::nothing) clear_counters(k, g);
  const auto base = Out<f32>(g.stats).at(to<u64>(k.ctaid_x()) * std::uint64_t(tile_rows) + to<u64>(first));
  const auto deltas = base.at(g.stats_rows);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto sum = row_product<T>(w, columns[i], each);
    const auto row = row0 + first + std::uint32_t(int(i) * rows);
    // Of rows behind the last, and of those without keys, no probability is left.
    const auto lse = lse_row(p, s).ld_if(row < s.n_q, row, Val<f32>(kNever))[0];
    base.st_if(column == 0u, int(i) * rows, select(lse == kNever, Val<f32>(kNever), lse * -kLog2e));
    deltas.st_if(column == 0u, int(i) * rows, sum);
  }
}

template <class T>
void d_q_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, BackwardSm90Params g) {
  k.block(kThreads);
  auto w = k.warp();
  const auto part = k.tid() >> 7u;  // 64 of 128 rows, or of 128 columns where tiles have 64 rows
  Warpgroup wg = k.warpgroup();
  const auto origin = accumulator_origin(wg);
  const auto from = In<f32>(g.d_q_accum, 0, true)
                        .at(to<u64>(k.ctaid_x()) * std::uint64_t(2 * kPartOfTile) +
                            to<u64>(part) * std::uint64_t(kPartOfTile) + to<u64>(k.tid() & 127u) * 4u);
  std::vector<RegGroup<f32, 4>> sum;
  for (int j = 0; j < 8; ++j) sum.push_back(from.ld<4>(128 * j));
  const auto block = tile_of_block(k, c, p, g);
  const Sequence& s = block.s;
  const bool by_rows = backward_queries(c.d_qk) == 128;
  const auto column0 = by_rows ? Val<u32>(0) : part * 64u;
  const auto row0 = block.row0 + origin.row, first = by_rows ? row0 + part * 64u : row0;
  for (int h = 0; h < 2; ++h) {
    const auto row = first + std::uint32_t(8 * h);
    const auto start = rows_of(s, s.head, s.first_q, p.q_batch, p.q_head, p.q_row) + to<u64>(row) * p.q_row +
                       wide_index(column0);
    store_row(w, Out<T>(g.d_q).at(start).template as<b32>(), row < s.n_q,
              select(p.d_qk > column0, p.d_qk - column0, Val<u32>(0)), 8, [&](int b) {
                const auto& x = sum[std::size_t(b)];
                return pack<T>(x[2 * h] * p.scale, x[2 * h + 1] * p.scale);
              });
  }
}

template <class T>
void d_kv_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, BackwardSm90Params g) {
  k.block(kThreads);
  auto w = k.warp();
  Warpgroup wg = k.warpgroup();
  const std::uint32_t blocks = std::uint32_t(c.d_qk / 64);  // of 64 columns
  const std::uint64_t part_floats = std::uint64_t(kBackwardKeys) * std::uint64_t(c.d_qk);
  const auto block = k.ctaid_x() % blocks, tile_of_all = k.ctaid_x() / blocks;
  const auto tile = tile_of_all % p.tiles_m,
             pair = tile_of_all / p.tiles_m;  // pairs of d_k, then those of d_v
  const auto from =
      In<f32>(g.partial_d_kv, 0, true)
          .at(to<u64>(tile_of_all) * to<u64>(g.splits) * part_floats +
              to<u64>(wg.index * std::uint32_t(64 * c.d_qk) + block * 4096u + (k.tid() & 127u) * 4u));
  std::vector<Val<f32>> zero(32, Val<f32>(0));
  const auto sum = k.loop(g.splits, std::move(zero), [&](Val<u32> part, std::vector<Val<f32>> now) {
    const auto of_part = from.at(to<u64>(part) * part_floats);
    std::vector<Val<f32>> next;
    for (std::size_t j = 0; j < 8; ++j) {
      const auto four = of_part.template ld<4>(int(128 * j));
      for (std::size_t e = 0; e < 4; ++e) next.push_back(now[4 * j + e] + four[int(e)]);
    }
    return next;
  });
  const auto values = pair >= p.pairs;
  const auto either = [&](const auto& of_k, const auto& of_v) { return select(values, of_v, of_k); };
  const auto heads_kv = p.heads_q / p.group, of_side = select(values, pair - p.pairs, pair);
  const auto batch = of_side / heads_kv, head = of_side % heads_kv, column0 = block * 64u;
  const auto pitch = either(p.k_row, p.v_row);
  const auto columns = either(p.d_qk, p.d_v);
  const auto scale = either(p.scale, Val<f32>(1.0f));
  const auto rows = Out<T>(either(g.d_k, g.d_v))
                        .at(to<u64>(batch) * either(p.k_batch, p.v_batch) +
                            to<u64>(head) * either(p.k_head, p.v_head) + wide_index(column0));
  const auto first = tile * std::uint32_t(kBackwardKeys) + wg.index * 64u + accumulator_origin(wg).row;
  for (int h = 0; h < 2; ++h) {
    const auto row = first + std::uint32_t(8 * h);
    store_row(w, rows.at(to<u64>(row) * pitch).template as<b32>(), row < p.n_kv,
              select(columns > column0, columns - column0, Val<u32>(0)), 8, [&](int b) {
                const std::size_t e = std::size_t(4 * b + 2 * h);
                return pack<T>(sum[e] * scale, sum[e + 1] * scale);
              });
  }
}

template <class T, int D, int M>
void gradients_kernel(Kernel& k, AttentionBackwardConfig c, typename BackwardSm90<T, D, M>::QMap q,
                      typename BackwardSm90<T, D, M>::QMap d_o, typename BackwardSm90<T, D, M>::KMap keys,
                      typename BackwardSm90<T, D, M>::KMap values, typename BackwardSm90<T, D, M>::SMap stats,
                      AttentionParams p, BackwardSm90Params g) {
  BackwardSm90<T, D, M>(k, c, q, d_o, keys, values, stats, p, g).run();
}

template <class T>
Variant make(const AttentionBackwardConfig& c) {
  switch (c.step) {
    case BackwardStep::delta:
      return variant(c.name(), 90, delta_kernel<T>, c);
    case BackwardStep::gradients:
      return c.d_qk == 64 ? variant(c.name(), 90, gradients_kernel<T, 64, backward_queries(64)>, c)
                          : variant(c.name(), 90, gradients_kernel<T, 128, backward_queries(128)>, c);
    case BackwardStep::d_q:
      return variant(c.name(), 90, d_q_kernel<T>, c);
    case BackwardStep::d_kv:
      return variant(c.name(), 90, d_kv_kernel<T>, c);
    default:
      throw Unsupported(text::cat(c.name(), ": sm90 has no such step"));
  }
}

int width(const AttentionProblem& p) {
  const auto widest = std::max(p.d_qk, p.d_v);
  return widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
}
std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// The workspace, in bytes.
struct Workspace {
  std::uint64_t tiles_q, tiles, rows;                 ///< tiles of a head and of all, rows of all
  std::uint64_t stats, arrived, partial_d_kv, bytes;  ///< where they begin; the sums of d_q begin at 0

  Workspace(const AttentionProblem& p, std::uint64_t total_q, std::uint64_t splits) {
    const auto m = std::uint64_t(backward_queries(width(p)));
    tiles_q = p.packed ? packed_tiles(total_q, p.batch, m) : ceil_div(p.n_q, m);
    tiles = tiles_q * p.heads_q * (p.packed ? 1 : p.batch), rows = tiles * m;
    stats = tiles * 2 * kPartOfTile * 4;
    arrived = stats + rows * 8;
    partial_d_kv = arrived + ceil_div(tiles * 8 + 4, 256) * 256;
    const auto keys = p.batch * p.heads_kv * ceil_div(p.n_kv, kBackwardKeys) * kBackwardKeys;
    bytes = partial_d_kv + (splits > 1 ? 2 * splits * keys * std::uint64_t(width(p)) * sizeof(float) : 0);
  }
};

}  // namespace

namespace attention_impl {

// Blocks that share the queries of a tile of keys: where tiles are few, or do not fill their last round, an SM
// has nothing to do. What that takes is measured in iterations of 128 keys with a tile of queries.
int backward_splits(const AttentionProblem& p) {
  // Above 128 columns blocks share query heads.
  const bool wide = width(p) > 128;
  if (p.packed || (wide && p.d_qk <= 192 && p.d_v <= 128)) return 1;
  const std::uint64_t m = std::uint64_t(backward_queries(width(p))), group = p.heads_q / p.heads_kv;
  const std::uint64_t tiles_q = ceil_div(p.n_q, m), tiles_kv = ceil_div(p.n_kv, kBackwardKeys),
                      heads = p.batch * p.heads_kv;
  if (!tiles_q || !tiles_kv || !heads) return 1;
  const bool bounded = p.causal || p.window_left >= 0 || p.window_right >= 0;
  // Under a causal bound the first keys have all queries, the last ones few.
  const double longest = double(tiles_q * group), mean = bounded ? longest / 2 : longest;
  const double tiles = double(tiles_kv * heads);
  const auto time = [&](double splits) {
    const double block = (wide ? double(tiles_q) * std::ceil(double(group) / splits) : longest / splits) +
                         kSplitCosts.block,
                 blocks = tiles * splits;
    const double all = tiles * mean + blocks * kSplitCosts.block;
    const double rounds = bounded ? std::max(block, all / kSplitCosts.sms + block / 4)
                                  : std::ceil(blocks / kSplitCosts.sms) * block;
    return rounds + (splits > 1 ? kSplitCosts.launch + blocks * kSplitCosts.part : 0);
  };
  int best = 1;
  double least = time(1) * kSplitCosts.worth;
  for (int splits : {2, 3, 4, 5, 6, 7, 8, 10, 12, 16}) {
    if (std::uint64_t(splits) > (wide ? group : tiles_q * group)) break;
    if (const double t = time(splits); t < least) best = splits, least = t;
  }
  return best;
}

runtime::Dim3 backward_grid(const AttentionBackwardSm90Tuning& t, std::uint64_t tiles, std::uint64_t sms) {
  const std::uint64_t most = t.blocks ? std::uint64_t(t.blocks) : sms;
  return runtime::grid_for(t.persistent ? std::min(tiles, most) : tiles, 1);
}

runtime::TensorMap backward_stats_map(const runtime::Device& device, const runtime::LoadedKernel& fn,
                                      std::size_t param, std::uint64_t address, std::uint64_t rows) {
  auto spec = tensor_map_spec(fn.image(), param);
  spec.dims = {rows, 2};
  spec.strides = {rows * 4};
  return device.tensor_map(spec, address);
}

}  // namespace attention_impl

Variant attention_backward_sm90_variant(const AttentionBackwardConfig& c) {
  const bool of_wide = c.wide() && c.step != BackwardStep::delta && c.step != BackwardStep::d_kv;
  Variant v = of_wide ? backward_wide_variant(c) : c.type == DType::f16 ? make<f16>(c) : make<bf16>(c);
  v.only = "sm_90a";
  return v;
}
std::vector<AttentionBackwardConfig> attention_backward_sm90(DType type, int d,
                                                             const AttentionBackwardSm90Tuning& tune,
                                                             const AttentionFeatures& f) {
  AttentionBackwardConfig all{
      .type = type, .kind = AttentionKind::sm90, .d_qk = d, .d_v = d, .tune = tune, .features = f};
  auto delta = all, gradients = all, d_q = all;
  delta.step = BackwardStep::delta, gradients.step = BackwardStep::gradients, d_q.step = BackwardStep::d_q;
  delta.clears = tune.order == AddOrder::any ? BackwardClears::counters_and_d_q : BackwardClears::counters;
  auto d_kv = all;
  d_kv.step = BackwardStep::d_kv;
  for (auto* plain : {&delta, &d_q, &d_kv}) {  // bounds and modifications matter to the products only
    plain->features = {};
    plain->features.packed = f.packed;
  }
  if (tune.split) return {delta, gradients, d_q, d_kv};
  return {delta, gradients, d_q};
}

std::uint64_t attention_backward_workspace(const AttentionProblem& q, std::uint64_t total_q, int splits) {
  const auto p = q.dense();
  const bool taken = p.type == DType::f16 || p.type == DType::bf16;
  if (!taken) return 0;
  AttentionAddresses at;
  at.total_q = total_q;
  const auto rows = packed_rows(p, at);
  const auto shared = std::uint64_t(splits ? splits : backward_splits(p));
  return width(p) > 128 ? backward_wide_workspace(p, rows, shared) : Workspace(p, rows, shared).bytes;
}

std::string reject_backward_sm90(const AttentionProblem& p, const AttentionAddresses& at,
                                 const AttentionGradients& g, const runtime::DeviceInfo& d) {
  if (auto why = reject(p); !why.empty()) return why;
  if (auto why = reject(AttentionKind::sm90, p, at, d); !why.empty()) return why;
  const std::string lead = "attention_backward sm90: ";
  const auto f = AttentionFeatures::of(p, false);
  if (f.modify.apply && (f.mask != AttentionMask::none || f.soft_cap || f.alibi))
    return lead +
           "a score modification beside a mask, a soft cap or slopes needs more registers than there are";
  if (f.mask != AttentionMask::none && (f.soft_cap || f.alibi))
    return lead + "a mask beside a soft cap or slopes needs more registers than there are";
  if (width(p) > 128 && f.mask != AttentionMask::none && f.key_lengths)
    return lead +
           "a mask beside key lengths needs more registers than there are above head dimensions of 128";
  if (f.soft_cap && f.alibi && (width(p) <= 128 || p.packed))
    return text::cat(lead, "a soft cap beside slopes needs more registers than there are ",
                     p.packed ? "for packed sequences" : "up to head dimensions of 128");
  if (width(p) == 64 && (f.soft_cap || f.modify.apply) && p.packed && (f.window_left || f.window_right))
    return text::cat(lead, "bounds of packed sequences beside a ",
                     f.soft_cap ? "soft cap" : "score modification",
                     " need more registers than there are up to head dimensions of 64");
  if (p.packed && !at.total_q) return lead + "total_q = 0";
  if (p.n_q == 0) return lead + "n_q = 0";
  for (auto [what, address] : {std::pair{"d_o", g.d_o}, {"d_q", g.d_q}, {"d_k", g.d_k}, {"d_v", g.d_v}})
    if (address % 16) return text::cat(lead, what, " does not begin at a multiple of 16 bytes");
  if (!g.workspace || g.workspace % 256)
    return lead + (g.workspace ? "the workspace does not begin at a multiple of 256 bytes" : "no workspace");
  const auto total_q = packed_rows(p, at);
  const auto rows =
      width(p) > 128 ? backward_wide_workspace(p, total_q, 1) / 8 : Workspace(p, total_q, 1).rows;
  if (rows > 0x7fffffffu) return text::cat(lead, rows, " rows of whole tiles are above 2^31 - 1");
  return {};
}

AttentionBackwardChoice choose_attention_backward_sm90(const AttentionProblem& q,
                                                       const AttentionBackwardSm90Tuning& tune) {
  const auto p = q.dense();
  AttentionBackwardChoice c;
  c.kind = AttentionKind::sm90, c.why = "asked for", c.width = width(p), c.sm90 = tune;
  const auto f = AttentionFeatures::of(p, false);
  // As in the forward pass: what TMA fills with zeros is not multiplied.
  const bool narrow_values = c.width > 128 && p.d_qk <= 192 && p.d_v <= 128;
  const auto used = [](std::uint64_t d, int tile) {
    const int columns = int((d + 15) / 16 * 16);
    return columns < tile ? columns : 0;
  };
  c.sm90.used_d_qk = used(p.d_qk, narrow_values ? 192 : c.width);
  c.sm90.used_d_v = used(p.d_v, narrow_values ? 128 : c.width);
  c.configs =
      c.width > 128 ? backward_wide(p, c.sm90, f) : attention_backward_sm90(p.type, c.width, c.sm90, f);
  return built(std::move(c));
}

AttentionBackwardSm90Tuning tune_attention_backward(const AttentionProblem& q, bool deterministic) {
  if (width(q.dense()) > 128) return tune_backward_wide(q.dense());
  const auto f = AttentionFeatures::of(q, false);
  AttentionBackwardSm90Tuning t;
  t.order = deterministic ? AddOrder::ordered : AddOrder::any, t.partial = deterministic ? 2 : 1;
  // With more bounds the producer's registers do not suffice; who looks for sequences has some of the
  // warpgroups', and 64 columns then have none to keep probabilities as they were.
  const bool bounded = f.window_left || f.window_right, masked = f.mask != AttentionMask::none;
  const bool wide_modified = f.modify.apply && width(q.dense()) == 128;
  t.splits = backward_splits(q.dense()), t.split = t.splits > 1;
  // Zeros that nobody writes are 2 to 7 % of the time. Parts of the first keys come one after the other, and others
  // wait for them.
  if (!deterministic && !f.window_left && std::max(q.n_q, q.n_kv) <= (t.split ? 256u : 6144u))
    t.order = AddOrder::first_stores;
  t.persistent = f.packed || (!bounded && !wide_modified) ||
                 (!f.key_lengths && !masked && !f.modify.apply && width(q.dense()) == 128 &&
                  !(f.window_left && f.window_right));
  t.rounded =
      masked || f.modify.apply ||
      (width(q.dense()) == 64 && (f.packed || f.key_lengths || f.modifies_scores() || (t.split && !bounded)));
  return t;
}

namespace {

// Heads of keys that are visited together. Tiles of many lengths: as many as L2 holds queries and sums for.
// Blocks that add in order wait least when all SMs begin with first tiles; measured on an H200.
std::uint32_t head_swizzle(const AttentionProblem& p, const AttentionBackwardChoice& c, std::uint64_t sms,
                           std::uint64_t tiles) {
  const std::uint64_t pairs = (p.packed ? 1 : p.batch) * p.heads_kv;
  if (p.packed && !c.sm90.head_swizzle) return std::uint32_t(pairs);
  if (c.sm90.head_swizzle)
    return std::uint32_t(std::min<std::uint64_t>(pairs, std::uint64_t(c.sm90.head_swizzle)));
  const bool bounded = p.causal || p.window_left >= 0 || p.window_right >= 0;
  if (c.sm90.order == AddOrder::ordered &&
      (!bounded || tiles > 8)) {  // under bounds half of the tiles are short
    const std::uint64_t heads = std::bit_ceil(ceil_div(sms, tiles)) * (bounded ? 4 : 1);
    return std::uint32_t(std::min(pairs, heads));
  }
  if (!bounded) return 1;
  const std::uint64_t head_bytes = p.n_q * std::uint64_t(c.width) * 8 * (p.heads_q / p.heads_kv);
  return even_groups(pairs, (34u << 20) / std::max<std::uint64_t>(1, head_bytes));
}

}  // namespace

void run_attention_backward_sm90(runtime::Stream& s, const AttentionBackwardChoice& c,
                                 const AttentionProblem& p, const AttentionAddresses& at,
                                 const AttentionGradients& g) {
  if (c.width > 128) return run_backward_wide(s, c, p, at, g);
  const auto splits = std::uint64_t(c.sm90.split ? c.sm90.splits : 1);
  const Workspace space(p, packed_rows(p, at), splits);
  const BackwardSm90Arguments own{.d_o = g.d_o,
                                  .d_q = g.d_q,
                                  .d_k = g.d_k,
                                  .d_v = g.d_v,
                                  .d_q_accum = g.workspace,
                                  .stats = g.workspace + space.stats,
                                  .arrived = g.workspace + space.arrived,
                                  .stats_rows = space.rows,
                                  .partial_d_kv = g.workspace + space.partial_d_kv,
                                  .tiles_q = std::uint32_t(space.tiles_q),
                                  .splits = std::uint32_t(splits)};
  auto n = attention_arguments(p, at);
  const auto total_kv = at.total_kv ? at.total_kv : p.batch * p.n_kv;
  n.tiles_m = std::uint32_t(p.packed ? packed_tiles(total_kv, p.batch, kBackwardKeys)
                                     : ceil_div(p.n_kv, kBackwardKeys));
  n.pairs = std::uint32_t((p.packed ? 1 : p.batch) * p.heads_kv);
  const auto fn = load(s.device(), c.kernels[1]);
  const auto rows = [&](std::size_t param, std::uint64_t address, const AttentionStrides& strides,
                        std::uint64_t d, bool queries) {
    return attention_map(s.device(), fn, param, rows_for_map(p, address, strides, d, queries), p.type);
  };
  const auto q = rows(0, at.q, p.q, p.d_qk, true), d_o = rows(1, g.d_o, p.o, p.d_v, true),
             k = rows(2, at.k, p.k, p.d_qk, false), v = rows(3, at.v, p.v, p.d_v, false);
  const auto stats = backward_stats_map(s.device(), fn, 4, own.stats, space.rows);
  const auto per_query_tile = runtime::grid_for(space.tiles, 1);
  load(s.device(), c.kernels[0])(s, per_query_tile, n, own);
  const auto key_tiles = std::uint64_t(n.tiles_m) * n.pairs;
  n.tiles = std::uint32_t(key_tiles * splits);
  const auto sms = std::uint64_t(std::max(1, s.device().info().sm_count));
  n.head_swizzle = head_swizzle(p, c, sms, n.tiles_m * splits);
  fn(s, backward_grid(c.sm90, n.tiles, sms), q, d_o, k, v, stats, n, own);
  load(s.device(), c.kernels[2])(s, per_query_tile, n, own);
  if (c.sm90.split)
    load(s.device(), c.kernels[3])(s, runtime::grid_for(2 * key_tiles * std::uint64_t(c.width / 64), 1), n,
                                   own);
}

}  // namespace cgp::kernels
