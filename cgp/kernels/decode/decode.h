// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of a few new queries per sequence over a paged key-value cache, without gathering it: one launch,
// in which several blocks share the keys of a sequence and the last one to finish combines their results.
// Lengths and tables are read on the device, so a captured graph goes on working while sequences grow.
//   o[b, h, i, :] = sum_j softmax_j(q . k_j * scale) v_j over the first lengths[b] - n_q + i + 1 keys
// A sequence without keys gives 0 and lse -infinity. Queries of one key head are multiplied together.
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/kv_cache/kv_cache.h"

namespace cgp::kernels {

struct DecodeProblem {
  KvCacheShape cache;  ///< d: a multiple of 64
  std::uint64_t batch = 1, heads_q = 0, n_q = 1;
  std::uint64_t columns = 0;     ///< of the table of pages: [batch][columns], s32
  std::uint64_t max_length = 0;  ///< no sequence gets longer; 0: columns * page_size
  /// Cascade: so many neighbouring sequences begin with the same pages (the last group may have fewer), and
  /// those are read once for several of them; 0 or 1: none.
  std::uint64_t share = 0;
  AttentionStrides q, o;  ///< of [batch, heads, n_q, d]
  float scale = -1;       ///< negative: 1 / sqrt(d)
  int splits = 0;         ///< blocks that share a sequence's keys; 0: chosen
  /// sm_90: 1, 2, 4, 8 or 16 blocks share them as a cluster, without a workspace, from keys that cp.async
  /// brings into shared memory; 0: not so; -1: chosen.
  int cluster = -1;
  int room = 0;  ///< KB of shared memory for keys of such a block, 96 or 192; 0: chosen
  /// Programmatic launch (sm_90): begins while the work queued before ends, and waits for it.
  bool early = false;

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
  std::uint64_t wrong = 0;
  /// Where problems share: u32, the tokens that each group's sequences have in common; no more than they
  /// have.
  std::uint64_t shared = 0;
};
std::uint64_t decode_workspace(const DecodeProblem& p, const runtime::DeviceInfo& d);
/// Queues the problem. ArgumentError with reject()'s sentence; Unsupported before sm_80 (8-bit pages: sm_90).
void decode(runtime::Stream& s, const DecodeProblem& p, const DecodeAddresses& at);

struct DecodeTuning {
  int warps = 4;        ///< of a block; they take tiles of 16 keys in turn
  bool wide = false;    ///< more than 8 rows of queries
  bool single = false;  ///< one block for all keys
  bool lse = false;
  bool early = false;  ///< waits for the work queued before by griddepcontrol
  /// Blocks that share keys and combine in shared memory, where cp.async brings keys; 0: without all that.
  int cluster = 0;
  int room = 96;  ///< KB of shared memory for keys, in a cluster
  bool cascade = false;
};
Variant decode_variant(DType type, DType pages, int d, const DecodeTuning& t);
std::vector<Variant> decode_variants();

}  // namespace cgp::kernels
