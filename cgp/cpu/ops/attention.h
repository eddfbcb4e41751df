// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of one new token to a cache of keys and values (decode), with an online softmax (Milakov, Gimelshein, 2018).
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

/// out[h] = sum over t of softmax(scale * q[h] . key[t]) * value[t], for heads = q.size() / head_dim, of which heads /
/// kv_heads in turn share a head of the cache. `window` > 0: the last so many tokens only. Each key and value is read once
/// for all heads that share it; sums are f32. No tokens: zeros. The number of threads changes no bit.
/// Throws ArgumentError, before out is written, for sizes that do not agree and pages that the cache does not have.
void decode_attention(std::span<const float> q, const KvCache& cache, float scale, std::int64_t window,
                      std::span<float> out, const OpOptions& options = {});

}  // namespace cgp::cpu
