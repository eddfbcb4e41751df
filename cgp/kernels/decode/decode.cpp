// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/decode/decode.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_params.h"
#include "cgp/kernels/decode/decode_combine.h"

namespace cgp::kernels {
namespace {

using namespace decode_impl;

template <class T, class Page>
void decode_kernel(Kernel& k, DecodeConfig c, DecodeParams p) {
  k.block(32 * c.warps);
  if (c.cluster > 1) k.cluster(c.cluster);
  if (c.pdl && k.sm() >= 90) {
    griddepcontrol_launch_dependents(k);
    griddepcontrol_wait(k);
  }
  Decode<T, Page>(k, c, p).run();
}

template <class T>
void split_kv_kernel(Kernel& k, DecodeConfig c, DecodeParams p, ContiguousKv kv) {
  k.block(32 * c.warps);
  if (c.cluster > 1) k.cluster(c.cluster);
  Decode<T, T>(k, c, p, &kv).run();
}

struct Plan {
  std::uint64_t items, splits;
  int cluster = 0, smem_kb = 0;
  // Of a cascade: sequences whose rows are multiplied together, the blocks that share a group's keys.
  std::uint64_t members = 0, shared_splits = 0, shared_blocks = 0;
};
// Measured on an H200 with 1 to 2048 key heads of sequences, heads of 64 to 256, 16- and 8-bit pages:
// clusters of 16 and 8 do not fill all its processor groups, so that half of the SMs with 192 KB each do
// better than all of them in two rounds; where 8-bit heads of 256 leave warps little to wait for, two blocks
// of an SM do.
struct Rings {
  int cluster, smem_kb;
};
/// For `units` key heads of sequences, where clusters are possible.
Rings chosen_rings(const DecodeProblem& p, const runtime::DeviceInfo& d, std::uint64_t units) {
  const bool bytes = p.cache.pages == DType::e4m3;
  const auto sms = std::uint64_t(d.sm_count);
  int cluster = 1, smem_kb = p.cache.d > 128 ? 192 : 96;
  if (units * 16 <= sms / 2)
    cluster = 16, smem_kb = 192;
  else if (units * 8 <= sms * 3 / 4)
    cluster = 8, smem_kb = 192;
  else if (units * 4 <= sms)
    cluster = 4, smem_kb = units * 4 <= sms / 2 ? 192 : 96;
  else if (units * 2 <= sms)
    cluster = 2, smem_kb = 192;
  else if (units * 10 < sms * 9)
    cluster = 2, smem_kb = 96;
  // A block has at least a tile for each of 4 warps.
  const auto most = std::bit_floor(std::max<std::uint64_t>(1, p.max_length / 64));
  if (std::uint64_t(cluster) > most) cluster = int(most);
  return {cluster, p.smem_kb ? p.smem_kb : bytes && p.cache.d > 128 ? 96 : smem_kb};
}
Rings rings(const DecodeProblem& p, const runtime::DeviceInfo& d, std::uint64_t units) {
  const bool bytes = p.cache.pages == DType::e4m3;
  if (p.cluster >= 0) return {p.cluster, p.smem_kb ? p.smem_kb : 96};
  if (p.splits || !units || p.cache.d % 64 || d.cc() / 10 != 9 || d.max_cluster < 16) return {0, 0};
  const auto chosen = chosen_rings(p, d, units);
  // Few blocks with many keys each: what splits bring in with all SMs is worth their way through memory.
  const auto blocks = units * std::uint64_t(chosen.cluster);
  const std::uint64_t keys = p.max_length * p.cache.d * (bytes ? 2 : 4) / std::uint64_t(chosen.cluster);
  if (blocks * 10 < std::uint64_t(d.sm_count) * 9 && (chosen.cluster == 1 || keys > std::uint64_t(5) << 19))
    return {0, 0};
  return chosen;
}
Plan plan(const DecodeProblem& p, const runtime::DeviceInfo& d) {
  const std::uint64_t rows = p.heads_q / p.cache.heads * p.n_q, row_blocks = (rows + kRows - 1) / kRows;
  const std::uint64_t items = p.cache.heads * row_blocks, work = std::max<std::uint64_t>(1, items * p.batch);
  // Two blocks of 4 warps per SM, at least one tile for each warp.
  const std::uint64_t want = std::max<std::uint64_t>(1, 2 * std::uint64_t(std::max(1, d.sm_count)) / work);
  const std::uint64_t most = std::max<std::uint64_t>(1, (p.max_length + 63) / 64);
  const std::uint64_t splits = p.splits ? std::uint64_t(p.splits) : std::min(want, most);
  // Where one sequence's rows fill a product there is nothing to share.
  if (p.share > 1 && rows && rows <= kRows / 2 && work <= kCounters) {
    // With rings, every warp of a block has rows of its own.
    const bool ring = p.cluster != 0 && d.cc() / 10 == 9 && p.cache.d % 64 == 0;
    const int smem_kb = !ring ? 0 : p.cache.d > 128 ? 192 : 96;
    const std::uint64_t members = std::min((smem_kb ? 4 * kRows : kRows) / rows, p.share),
                        groups = (p.batch + p.share - 1) / p.share;
    const std::uint64_t units = p.cache.heads * groups * ((p.share + members - 1) / members);
    const std::uint64_t slots = std::uint64_t(std::max(1, d.sm_count)) * (smem_kb > 96 ? 1 : 2);
    // A block of common keys has four rounds of 64 and more: what it combines afterwards is worth as much.
    const std::uint64_t ways = std::clamp<std::uint64_t>(slots / units, 1, smem_kb ? (most + 3) / 4 : most);
    return {items, splits, 0, smem_kb, members, ways, units * ways};
  }
  const auto ring = rings(p, d, items * p.batch);
  if (ring.cluster) return {items, std::uint64_t(ring.cluster), ring.cluster, ring.smem_kb};
  return {items, splits};
}

}  // namespace

DecodeProblem DecodeProblem::dense() const {
  DecodeProblem p = *this;
  if (!p.heads_q) p.heads_q = p.cache.heads;
  if (!p.max_length) p.max_length = p.columns * p.cache.page_size;
  if (p.scale < 0) p.scale = float(1 / std::sqrt(double(p.cache.d)));
  for (auto* s : {&p.q, &p.o})
    if (!s->batch && !s->head && !s->row) *s = {p.heads_q * p.n_q * p.cache.d, p.n_q * p.cache.d, p.cache.d};
  return p;
}
std::string reject(const DecodeProblem& q) {
  const auto p = q.dense();
  if (auto why = reject(p.cache); !why.empty()) return why;
  if (p.cache.page_size > 256) return text::cat("page_size = ", p.cache.page_size, " is above 256");
  if (p.cache.d % 64 && p.cluster > 0)
    return text::cat("d = ", p.cache.d, " is no multiple of 64, which clusters need");
  if (p.heads_q % p.cache.heads)
    return text::cat("heads_q = ", p.heads_q, " must be a multiple of the cache's heads = ", p.cache.heads);
  if (std::isnan(p.scale) || std::isinf(p.scale)) return text::cat("scale = ", p.scale, " is not a number");
  if (p.window_left < -1 || p.window_left > 0x7fffffff)
    return text::cat("window_left = ", p.window_left, " is not -1 to 2^31 - 1");
  if (!(p.soft_cap >= 0) || std::isinf(p.soft_cap))
    return text::cat("soft_cap = ", p.soft_cap, " is no number of 0 or more");
  if (p.share > 1 && (p.window_left >= 0 || p.soft_cap != 0))
    return text::cat("share = ", p.share, ": a cascade has no window and no soft cap");
  if (p.batch > 65535) return text::cat("batch = ", p.batch, " is above 65535");
  if (p.share > 0x7fffffff) return text::cat("share = ", p.share, " is above 2^31 - 1");
  if (p.columns > 0x7fffffff) return text::cat("columns = ", p.columns, " is above 2^31 - 1");
  if (p.cluster < -1 || p.cluster > 16 || (p.cluster > 0 && (p.cluster & (p.cluster - 1))))
    return text::cat("cluster = ", p.cluster, " is not 1, 2, 4, 8 or 16, 0 or -1");
  if (p.smem_kb && p.smem_kb != 96 && p.smem_kb != 192)
    return text::cat("smem_kb = ", p.smem_kb, " is not 96, 192 or 0");
  if (p.splits < 0 || p.splits > 65535) return text::cat("splits = ", p.splits, " is not 0 to 65535");
  for (const auto* s : {&p.q, &p.o})
    if (s->batch % 8 || s->head % 8 || s->row % 8) return "rows of q and o must lie at multiples of 16 bytes";
  return {};
}

Variant decode_variant(const DecodeConfig& c) {
  const bool f16_type = c.type == DType::f16;
  if (c.contiguous)
    return f16_type ? variant(c.name(), 90, split_kv_kernel<f16>, c)
                    : variant(c.name(), 90, split_kv_kernel<bf16>, c);
  if (c.pages == DType::e4m3)
    return f16_type ? variant(c.name(), 90, decode_kernel<f16, e4m3>, c)
                    : variant(c.name(), 90, decode_kernel<bf16, e4m3>, c);
  const int oldest = c.cluster ? 90 : 80;
  return f16_type ? variant(c.name(), oldest, decode_kernel<f16, f16>, c)
                  : variant(c.name(), oldest, decode_kernel<bf16, bf16>, c);
}
std::vector<DecodeConfig> decode_configs() {
  std::vector<DecodeConfig> all;
  for (int d : {64, 128, 256})
    for (bool rows16 : {false, true})
      all.push_back({.d = d, .rows16 = rows16, .one_split = rows16 && d == 64, .lse = true});
  all.push_back({.type = DType::f16, .pages = DType::f16});
  for (int cluster : {0, 8})
    all.push_back({.type = DType::f16,
                   .pages = DType::f16,
                   .pdl = cluster > 0,
                   .soft_cap = true,
                   .window_left = true,
                   .cluster = cluster});
  for (DType t : {DType::f16, DType::bf16}) all.push_back({.type = t, .pages = DType::e4m3, .rows16 = true});
  for (auto [ring, d] : {std::pair{0, 128}, {0, 256}, {1, 64}, {1, 128}, {1, 256}}) {
    const DType pages = (d == 128) != bool(ring) ? DType::e4m3 : DType::bf16;
    all.push_back({.pages = pages,
                   .d = d,
                   .rows16 = true,
                   .lse = d != 128,
                   .cascade = true,
                   .cluster = ring,
                   .smem_kb = d > 128 ? 192 : 96});
  }
  for (DType pages : {DType::bf16, DType::e4m3})
    for (int d : {64, 128, 256}) {
      const bool rows16 = (pages == DType::e4m3) == (d == 128);
      all.push_back({.pages = pages,
                     .d = d,
                     .warps = d == 64 ? 8 : 4,
                     .rows16 = rows16,
                     .one_split = d == 64,
                     .lse = rows16,
                     .pdl = d == 64,
                     .cluster = d == 64    ? 1
                                : d == 128 ? 16
                                           : 8,
                     .smem_kb = d == 128 ? 96 : 192});
    }
  for (int d : {64, 128, 256})
    all.push_back({.type = d == 128 ? DType::f16 : DType::bf16,
                   .pages = d == 128 ? DType::f16 : DType::bf16,
                   .d = d,
                   .warps = d == 64 ? 8 : 4,
                   .rows16 = d != 64,
                   .one_split = d == 256,
                   .lse = true,
                   .contiguous = true,
                   .causal = d != 256,
                   .window_left = d == 64,
                   .key_lengths = d == 128,
                   .cluster = d == 256   ? 1
                              : d == 128 ? 4
                                         : 16,
                   .smem_kb = d == 64 ? 192 : 96});
  for (int d : {64, 96, 128})
    all.push_back(
        {.d = d, .rows16 = d == 128, .contiguous = true, .sliced = true, .cluster = 8, .smem_kb = 96});
  return all;
}
std::vector<Variant> decode_variants() {
  std::vector<Variant> all;
  for (const auto& c : decode_configs()) all.push_back(decode_variant(c));
  return all;
}

std::uint64_t decode_workspace(const DecodeProblem& q, const runtime::DeviceInfo& d) {
  const auto p = q.dense();
  const auto use = plan(p, d);
  if (use.cluster) return 256;  // not used, but there
  const std::uint64_t all = use.items * p.batch;
  return kCounters * 4 + all * (use.splits + use.shared_splits) * kRows * (2 + p.cache.d) * 4;
}

void decode(runtime::Stream& s, const DecodeProblem& q, const DecodeAddresses& at) {
  if (auto why = reject(q); !why.empty()) throw ArgumentError(text::cat("decode: ", why));
  const auto p = q.dense();
  if (!p.batch || !p.heads_q || !p.n_q) return;
  for (auto [what, a] : {std::pair{"q", at.q}, {"pool", at.pool}, {"o", at.o}})
    if (!a || a % 16) throw ArgumentError(text::cat("decode: ", what, " must be at a multiple of 16 bytes"));
  const auto use = plan(p, s.device().info());
  for (auto [what, a] :
       {std::pair{"table", at.table}, {"lengths", at.lengths}, {"error_flag", at.error_flag}})
    if (!a) throw ArgumentError(text::cat("decode: ", what, " is 0"));
  if (use.cluster && s.device().info().max_cluster < use.cluster)
    throw Unsupported(text::cat("decode: clusters of ", use.cluster, " blocks need sm_90, this is ",
                                s.device().info().arch));
  if (use.members && !at.shared) throw ArgumentError("decode: shared is 0");
  if ((use.splits > 1 || use.members) && !use.cluster && !at.workspace)
    throw ArgumentError("decode: workspace is 0");
  if (!use.cluster && use.splits > 1 && use.items * p.batch > kCounters)
    throw Unsupported(text::cat("decode: splits = ", use.splits, " of ", use.items * p.batch,
                                " key heads and row blocks of sequences, which are above ", kCounters));
  if (use.items > 65535)
    throw Unsupported(text::cat("decode: ", use.items, " key heads and row blocks are above 65535"));
  DecodeConfig c{.type = p.cache.type, .pages = p.cache.pages, .d = int(p.cache.d)};
  c.one_split = use.splits == 1 && !use.members, c.cascade = use.members != 0;
  c.rows16 = p.heads_q / p.cache.heads * p.n_q > 8 || c.cascade, c.lse = at.lse != 0;
  c.pdl = p.pdl && s.device().info().cc() >= 90;
  c.window_left = p.window_left >= 0, c.soft_cap = p.soft_cap != 0;
  if (use.cluster || use.smem_kb) {
    c.cluster = std::max(1, use.cluster), c.smem_kb = use.smem_kb;
    c.warps = c.cascade || p.cache.d > 128 || c.smem_kb < 192 ? 4 : 8;
  }
  const auto u32 = [](std::uint64_t v) { return std::uint32_t(v); };
  constexpr float log2e = 1.4426950408889634f;
  const DecodeArguments n{
      .q = at.q,
      .pool = at.pool,
      .table = at.table,
      .lengths = at.lengths,
      .o = at.o,
      .lse = at.lse,
      .workspace = at.workspace,
      .error_flag = at.error_flag,
      .shared = at.shared,
      .q_batch = p.q.batch,
      .q_head = p.q.head,
      .q_row = p.q.row,
      .o_batch = p.o.batch,
      .o_head = p.o.head,
      .o_row = p.o.row,
      .heads_kv = u32(p.cache.heads),
      .group = u32(p.heads_q / p.cache.heads),
      .n_q = u32(p.n_q),
      .page_size = u32(p.cache.page_size),
      .page_count = u32(p.cache.page_count),
      .columns = u32(p.columns),
      .splits = u32(use.splits),
      .items = u32(use.items),
      .batch = u32(p.batch),
      .share = u32(p.share),
      .members = u32(use.members),
      .shared_splits = u32(use.shared_splits),
      .shared_blocks = u32(use.shared_blocks),
      .scale_log2 = c.soft_cap ? log2e : p.scale * log2e * p.cache.key_scale,
      .value_scale = p.cache.value_scale,
      .window_left = std::int32_t(std::max<std::int64_t>(p.window_left, 0)),
      .soft_cap = p.soft_cap,
      .soft_cap_unit = c.soft_cap ? 2 * log2e * p.scale * p.cache.key_scale / p.soft_cap : 0};
  runtime::Dim3 grid{u32(use.splits), u32(use.items), u32(p.batch)};
  if (c.cascade) grid = {u32(use.shared_blocks + p.batch * use.items * use.splits), 1, 1};
  load(s.device(), decode_variant(c))(s, runtime::Launch{.grid = grid, .programmatic = c.pdl}, n);
}

// ---------------------------------------------------------------- attention without pages
std::string reject_split_kv(const AttentionProblem& p, const AttentionAddresses& at,
                            const runtime::DeviceInfo& d) {
  const std::string lead = "attention split_kv: ";
  if (d.cc() / 10 != 9 || d.max_cluster < 16)
    return text::cat(lead, "needs clusters of sm_90, this is ", d.arch);
  if (p.type != DType::f16 && p.type != DType::bf16)
    return text::cat(lead, "takes f16 and bf16, not ", name(p.type));
  if (p.d_qk != p.d_v || p.d_qk % (p.d_qk < 128 ? 16 : 64))
    return text::cat(lead, "head dimensions ", p.d_qk, " and ", p.d_v,
                     " are not one multiple of 16 below 128, of 64 above");
  if (p.packed) return lead + "packed sequences have other offsets";
  if (p.soft_cap != 0 || p.alibi || p.mask != AttentionMask::none || p.modify.apply)
    return lead + "scores are bounded by windows and lengths alone";
  if (p.window_right > 0) return lead + "a right window above 0";
  if (!(p.scale > 0)) return text::cat(lead, "scale = ", p.scale, " is not positive");
  if (p.n_kv == 0) return lead + "n_kv = 0";
  const std::uint64_t rows = p.heads_q / p.heads_kv * p.n_q;
  if (p.batch > 65535 || p.heads_kv * ((rows + kRows - 1) / kRows) > 65535)
    return lead + "more blocks than a grid has";
  for (auto [what, a] : {std::pair{"q", at.q}, {"k", at.k}, {"v", at.v}, {"o", at.o}})
    if (a % 16) return text::cat(lead, what, " does not begin at a multiple of 16 bytes");
  for (auto [what, s] : {std::pair{"q", &p.q}, {"k", &p.k}, {"v", &p.v}})
    if (s->row % 8 || s->head % 8 || (p.batch > 1 && s->batch % 8))
      return text::cat(lead, "rows of ", what, " do not lie at multiples of 16 bytes");
  return {};
}
// Measured on an H200: a start of 5 us; keys and values come from memory for the first 16 rows of a key head, and
// from L2 for each 16 more.
bool suits_split_kv(const AttentionProblem& p) {
  if (p.n_kv < 256) return false;
  const std::uint64_t rows = p.heads_q / p.heads_kv * p.n_q, row_blocks = (rows + kRows - 1) / kRows;
  const double bytes = 4.0 * double(p.batch * p.heads_kv * p.n_kv * p.d_qk);
  const double us = 5 + (row_blocks == 1 ? bytes / 4.2e6 : double(row_blocks) * bytes / 5.5e6);
  return us < attention_sm90_us(p);
}
// Clusters of one key head fill 16 SMs, and a block of an SM reads some 60 GB/s: where few key heads have many keys,
// several clusters share them, which costs another launch.
std::uint64_t split_kv_slices(const AttentionProblem& p) {
  const std::uint64_t rows = p.heads_q / p.heads_kv * p.n_q;
  const std::uint64_t units = p.batch * p.heads_kv * ((rows + kRows - 1) / kRows);
  if (units > 8 || p.d_qk > 128) return 1;  // wider ones have no registers left
  const double bytes = 4.0 * double(units * p.n_kv * p.d_qk);
  const double alone = bytes / (0.06e6 * double(std::min<std::uint64_t>(64, units * 16)));
  if (alone < bytes / 4e6 + 5) return 1;
  return std::clamp<std::uint64_t>(p.n_kv / 2048, 1, 32 / units);
}
DecodeConfig split_kv_config(const AttentionProblem& p, const AttentionAddresses& at,
                             const runtime::DeviceInfo& d) {
  const std::uint64_t rows = p.heads_q / p.heads_kv * p.n_q, row_blocks = (rows + kRows - 1) / kRows;
  DecodeProblem like;
  const std::uint64_t slices = split_kv_slices(p);
  like.cache.type = like.cache.pages = p.type, like.cache.d = p.d_qk, like.max_length = p.n_kv / slices;
  const auto ring = chosen_rings(like, d, p.batch * p.heads_kv * row_blocks * slices);
  DecodeConfig c{.type = p.type, .pages = p.type, .d = int(p.d_qk)};
  // Eight rows of 256 columns keep their queries in registers, which then do not suffice.
  c.rows16 = rows > 8 || p.d_qk > 128, c.lse = at.lse != 0, c.one_split = ring.cluster == 1;
  c.sliced = slices > 1, c.lse = c.lse && !c.sliced;
  c.contiguous = true, c.key_lengths = p.key_lengths, c.window_left = p.window_left >= 0;
  c.causal = p.causal || p.window_right == 0;
  c.cluster = ring.cluster, c.smem_kb = ring.smem_kb, c.warps = p.d_qk > 128 || ring.smem_kb < 192 ? 4 : 8;
  return c;
}
void attention_split_kv(runtime::Stream& s, const AttentionProblem& p, const AttentionAddresses& at) {
  if (auto why = reject_split_kv(p, at, s.device().info()); !why.empty()) throw Unsupported(std::move(why));
  const auto c = split_kv_config(p, at, s.device().info());
  const auto u32 = [](std::uint64_t v) { return std::uint32_t(v); };
  const std::uint64_t group = p.heads_q / p.heads_kv, rows = group * p.n_q;
  const auto items = u32(p.heads_kv * ((rows + kRows - 1) / kRows));
  constexpr float log2e = 1.4426950408889634f;
  const DecodeArguments n{.q = at.q,
                          .pool = at.k,
                          .table = 0,
                          .lengths = at.lengths,
                          .o = at.o,
                          .lse = at.lse,
                          .workspace = 0,
                          .error_flag = 0,
                          .shared = 0,
                          .q_batch = p.q.batch,
                          .q_head = p.q.head,
                          .q_row = p.q.row,
                          .o_batch = p.o.batch,
                          .o_head = p.o.head,
                          .o_row = p.o.row,
                          .heads_kv = u32(p.heads_kv),
                          .group = u32(group),
                          .n_q = u32(p.n_q),
                          .page_size = 0,
                          .page_count = 0,
                          .columns = 0,
                          .splits = u32(std::uint64_t(c.cluster)),
                          .items = items,
                          .batch = u32(p.batch),
                          .share = 0,
                          .members = 0,
                          .shared_splits = 0,
                          .shared_blocks = 0,
                          .scale_log2 = p.scale * log2e,
                          .value_scale = 1,
                          .window_left = 0,
                          .soft_cap = 0,
                          .soft_cap_unit = 0};
  const std::uint64_t slices = split_kv_slices(p), result_rows = p.batch * p.heads_q * p.n_q * slices;
  const std::uint64_t partial = c.sliced ? s.scratch(result_rows * (p.d_v + 1) * sizeof(float)) : 0;
  const ContiguousKvArguments kv{
      .v = at.v,
      .k_batch = p.k.batch,
      .k_head = p.k.head,
      .k_row = p.k.row,
      .v_batch = p.v.batch,
      .v_head = p.v.head,
      .v_row = p.v.row,
      .n_kv = u32(p.n_kv),
      .window_left = std::int32_t(std::min<std::int64_t>(p.window_left, 0x3fffffff)),
      .partial_o = partial,
      .partial_lse = partial + result_rows * p.d_v * sizeof(float),
      .slices = u32(slices)};
  load(s.device(), decode_variant(c))(
      s, runtime::Dim3{u32(std::uint64_t(c.cluster)), items, u32(p.batch * slices)}, n, kv);
  if (!c.sliced) return;
  auto combined = attention_arguments(p, at);
  combined.partial_o = kv.partial_o, combined.partial_lse = kv.partial_lse, combined.splits = u32(slices);
  load(s.device(), attention_combine({p.type, at.lse != 0}))(
      s, runtime::grid_for(p.batch * p.heads_q * p.n_q, 4), combined);
}

}  // namespace cgp::kernels
