// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything between the product that makes queries, keys and values and the attention over pages, in one launch:
// the RMSNorm of each head of q and k, their rotation (RoPE), and keys and values written to the cache.
//   qkv      [batch * tokens][heads_q + 2 heads][d]: q and k are changed in place
//   place    of token i of a sequence: lengths[b] - tokens + i, or offset + i without lengths. It is the position
//            by which the token is rotated, and where it lies in the sequence's pages. With `slots` both are given
//            for each token instead, and tokens of several sequences may follow each other in any number
// Elements i and i + d / 2 of a head are rotated together, or 2 i and 2 i + 1 (interleaved).
#include "cgp/kernels/common/config.h"
#include "cgp/kernels/kv_cache/kv_cache.h"

namespace cgp::kernels {

struct QkvAppend {
  KvCacheShape cache;  ///< pages of the tokens' type
  std::uint64_t batch = 1, tokens = 1, heads_q = 0;
  std::uint64_t qkv = 0, pitch = 0;  ///< elements between tokens; 0: dense
  std::uint64_t cos = 0, sin = 0;    ///< f32 [positions, d / 2]; both or neither: no rotation
  std::uint64_t positions = 0;       ///< a token beyond them becomes NaN
  bool interleaved = false;
  std::uint64_t q_weight = 0, k_weight = 0;  ///< [d] of RMSNorm; both or neither: no norm
  float eps = 1e-6f;
  std::uint64_t pool = 0;
  std::uint64_t table = 0, columns = 0;  ///< s32 [batch][columns]
  std::uint64_t lengths = 0;             ///< u32 [batch], the new tokens counted; or 0
  std::uint64_t offset = 0;
  std::uint64_t slots = 0;   ///< u64 [batch * tokens]: page * page_size + place in the page; or 0
  std::uint64_t places = 0;  ///< with slots: s32 [batch * tokens], positions
  /// u32: batch number + 1 of a sequence (with slots, number + 1 of a token) whose page is not there; that token is
  /// not written.
  std::uint64_t error_flag = 0;
  /// Programmatic dependent launch (sm_90): begins while the work queued before ends, and waits for it.
  bool pdl = false;
};
/// Why it is malformed, naming the argument; empty: it is fine.
std::string reject(const QkvAppend& p);
/// ArgumentError with reject()'s sentence.
void qkv_append(runtime::Stream& s, const QkvAppend& p);

struct QkvAppendConfig {
  DType type = DType::bf16;
  int d = 64;
  bool norm = false, rope = false, lengths = false, pdl = false, slots = false, interleaved = false;

  static QkvAppendConfig of(const QkvAppend& p);
  /// "qkv_append_bf16_d128_norm_rope_lengths_pdl"
  std::string name() const { return config_name("qkv_append", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type), v.number("d", "d", c.d);
    v.flag("norm", c.norm), v.flag("rope", c.rope), v.flag("lengths", c.lengths), v.flag("pdl", c.pdl);
    v.flag("slots", c.slots), v.flag("interleaved", c.interleaved);
  }
};
Variant qkv_append_variant(const QkvAppendConfig& c);
std::vector<Variant> qkv_append_variants();

}  // namespace cgp::kernels
