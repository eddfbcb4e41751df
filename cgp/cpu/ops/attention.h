// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of new tokens to a paged cache of keys and values, with an online softmax (Milakov, Gimelshein, 2018).
#include <cstddef>
#include <cstdint>
#include <span>

#include "cgp/cpu/ops/ops.h"

namespace cgp::cpu {

enum class CacheType : std::uint8_t { f32, f16, bf16 };

/// Keys and values of one sequence: arrays [page][page_tokens][kv_heads][head_dim]. Token t lies in page
/// pages[t / page_tokens]. A cache without pages is one page of all its tokens: pages {0}.
struct KvCache {
  std::span<const std::byte> keys, values;
  CacheType type = CacheType::f16;
  std::int64_t kv_heads = 1, head_dim = 128, page_tokens = 16;
  std::span<const std::int32_t> pages;
  std::int64_t tokens = 0;  ///< of the sequence
};

struct AttentionOptions {
  float scale = 1;
  float softcap = 0;        ///< s becomes softcap * tanh(s / softcap); 0: none
  std::int64_t window = 0;  ///< the last so many tokens of each query, its own among them; 0: all
};

/// Causal attention of the sequence's last `queries` tokens, whose keys and values are in the cache: q and out are
/// [queries, heads, head_dim]. out[i, h] = sum over t of softmax(cap(scale * q[i, h] . key[t])) * value[t], t up to query i's own
/// token; heads / kv_heads heads in turn share a head of the cache. Each key and value is read once for all heads and queries
/// that share it; sums are f32. An empty cache: zeros. Neither threads nor the other queries change a bit of a query's
/// result. Throws ArgumentError, before out is written, for sizes that do not agree and pages that the cache does not have.
void attention(std::span<const float> q, std::int64_t queries, const KvCache& cache,
               const AttentionOptions& what, std::span<float> out, const OpOptions& options = {});

}  // namespace cgp::cpu
