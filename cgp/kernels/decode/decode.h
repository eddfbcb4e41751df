// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of a few new queries per sequence over a paged key-value cache, without gathering it: one launch,
// in which several blocks share the keys of a sequence and the last one to finish combines their results.
// Lengths and tables are read on the device, so a captured graph goes on working while sequences grow.
//   o[b, h, i, :] = sum_j softmax_j(q . k_j * scale) v_j over the first lengths[b] - n_q + i + 1 keys, or the last
//                   window_left + 1 of these; with soft_cap c the scores are c * tanh(q . k_j * scale / c)
// A sequence without keys gives 0 and lse -infinity. Queries of one key head are multiplied together.
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/common/config.h"
#include "cgp/kernels/kv_cache/kv_cache.h"

namespace cgp::kernels {

struct DecodeProblem {
  KvCacheShape cache;  ///< d: a multiple of 8; multiples of 64 have faster kernels
  std::uint64_t batch = 1, heads_q = 0, n_q = 1;
  std::uint64_t columns = 0;     ///< of the table of pages: [batch][columns], s32
  std::uint64_t max_length = 0;  ///< no sequence gets longer; 0: columns * page_size
  /// Cascade: so many neighbouring sequences begin with the same pages (the last group may have fewer), and
  /// those are read once for several of them; 0 or 1: none.
  std::uint64_t share = 0;
  AttentionStrides q, o;          ///< of [batch, heads, n_q, d]
  float scale = -1;               ///< negative: 1 / sqrt(d)
  std::int64_t window_left = -1;  ///< keys before a query's own that it sees; -1: all
  float soft_cap = 0;             ///< 0: none
  int splits = 0;                 ///< split-KV: blocks that share a sequence's keys; 0: chosen
  /// sm_90: 1, 2, 4, 8 or 16 blocks share them as a cluster, without a workspace, from keys that cp.async
  /// brings into shared memory; 0: not so; -1: chosen.
  int cluster = -1;
  int smem_kb = 0;  ///< KB of shared memory for keys of such a block, 96 or 192; 0: chosen
  /// Programmatic dependent launch (sm_90): begins while the work queued before ends, and waits for it.
  bool pdl = false;

  DecodeProblem dense() const;
};
/// Why the problem is malformed, naming the argument; empty: it is fine.
std::string reject(const DecodeProblem& p);

struct DecodeAddresses {
  std::uint64_t q = 0, pool = 0, table = 0, lengths = 0, o = 0;
  std::uint64_t lse = 0;  ///< f32 [batch, heads_q, n_q], or 0
  /// decode_workspace() bytes, zeroed once; every launch leaves it ready for problems of any shape.
  std::uint64_t workspace = 0;
  /// u32: batch number + 1 of a sequence whose table names a page that is not there.
  std::uint64_t error_flag = 0;
  /// Where problems share: u32, the tokens that each group's sequences have in common; no more than they
  /// have.
  std::uint64_t shared = 0;
};
std::uint64_t decode_workspace(const DecodeProblem& p, const runtime::DeviceInfo& d);
/// Queues the problem. ArgumentError with reject()'s sentence; Unsupported before sm_80 (8-bit pages: sm_90).
void decode(runtime::Stream& s, const DecodeProblem& p, const DecodeAddresses& at);

struct DecodeConfig {
  DType type = DType::bf16;   ///< of queries and results
  DType pages = DType::bf16;  ///< of the pool
  int d = 128;
  int warps = 4;           ///< of a block; they take tiles of 16 keys one after the other
  bool rows16 = false;     ///< up to 16 rows of queries in a product, not 8
  bool one_split = false;  ///< one block has all keys of a sequence
  bool lse = false, pdl = false, cascade = false, soft_cap = false;
  /// Keys and values lie in rows, not pages, and queries see them as in attention.h; always with a cluster.
  bool contiguous = false, causal = false, window_left = false, key_lengths = false;
  /// Of rows: several clusters share a sequence's keys, and another kernel combines what they have.
  bool sliced = false;
  /// Blocks that share keys as a cluster and combine in shared memory, where cp.async brings keys; 0: keys come
  /// straight from global memory.
  int cluster = 0;
  int smem_kb = 96;  ///< of shared memory for keys, in a cluster

  /// "decode_bf16_pages_e4m3_d128_warps4_rows16_cluster8_smem96"
  std::string name() const { return config_name("decode", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type), v.type("pages", "pages_", c.pages), v.number("d", "d", c.d);
    v.number("warps", "warps", c.warps), v.flag("rows16", c.rows16), v.flag("one_split", c.one_split);
    v.flag("lse", c.lse), v.flag("pdl", c.pdl), v.flag("cascade", c.cascade), v.flag("soft_cap", c.soft_cap);
    v.flag("contiguous", c.contiguous), v.flag("causal", c.causal);
    v.flag("window_left", c.window_left), v.flag("key_lengths", c.key_lengths), v.flag("sliced", c.sliced);
    v.number("cluster", "cluster", c.cluster, 0);
    if (c.cluster) v.number("smem_kb", "smem", c.smem_kb);
  }
};
Variant decode_variant(const DecodeConfig& c);
std::vector<DecodeConfig> decode_configs();
std::vector<Variant> decode_variants();

// ---------------------------------------------------------------- attention without pages
/// Split-KV: attention of few queries over keys and values in rows, which several blocks (a cluster) share. The
/// queries of all heads of a key head are multiplied together. Why it does not take a problem of attention.h;
/// empty: it does.
std::string reject_split_kv(const AttentionProblem& dense, const AttentionAddresses& at,
                            const runtime::DeviceInfo& d);
/// Whether it is expected to be the faster way: with few rows of queries a key head.
bool suits_split_kv(const AttentionProblem& dense);
/// Whether or not it takes the problem.
DecodeConfig split_kv_config(const AttentionProblem& dense, const AttentionAddresses& at,
                             const runtime::DeviceInfo& d);
/// Queues the problem; Unsupported with reject_split_kv()'s sentence.
void attention_split_kv(runtime::Stream& s, const AttentionProblem& dense, const AttentionAddresses& at);

}  // namespace cgp::kernels
