// SPDX-License-Identifier: Apache-2.0
#pragma once
// A paged key-value cache in device memory: pool[pages][2][heads][page_size][d], keys then values. Tokens are
// written through slots (page * page_size + place) and read through tables of pages; KvPages hands both out.
// 8-bit pages hold x / scale, one scale for all keys and one for all values.
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/kv_cache/kv_pages.h"

namespace cgp::kernels {

struct KvCacheShape {
  DType type = DType::bf16;                                          ///< of the tokens: f16 or bf16
  DType pages = DType::bf16;                                         ///< of the pool: as the tokens, or e4m3
  std::uint64_t page_count = 0, page_size = 16, heads = 1, d = 128;  ///< d: a multiple of 8
  float key_scale = 1, value_scale = 1;

  std::uint64_t elements() const { return page_count * 2 * heads * page_size * d; }
  std::uint64_t bytes() const;  ///< of the pool
};
/// Why the cache is malformed; empty: it is fine.
std::string reject(const KvCacheShape& c);

struct KvTokens {
  std::uint64_t k = 0, v = 0;       ///< addresses of [tokens][heads][d]
  std::uint64_t row = 0, head = 0;  ///< elements between tokens and heads; 0: dense
  std::uint64_t count = 0;
};
/// Writes tokens to their slots (u64 on the device). A slot outside the pool writes nothing and leaves its
/// token's number + 1 in u32 `error_flag` (the largest of several), which the caller zeroes and reads.
void kv_append(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool, const KvTokens& tokens,
               std::uint64_t slots, std::uint64_t error_flag);
/// Copies the beginnings of pages (KvPages::Append::copies), for copy on write.
void kv_copy(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool,
             const std::vector<KvPages::Copy>& copies);
/// k, v [batch][heads][rows][d] <- the first lengths[b] tokens of each sequence, zeros behind them. `table`
/// is s32 [batch][columns], lengths u32 [batch]; a page outside the pool leaves batch number + 1 in `error_flag`.
void kv_gather(runtime::Stream& s, const KvCacheShape& c, std::uint64_t pool, std::uint64_t table,
               std::uint64_t columns, std::uint64_t lengths, std::uint64_t batch, std::uint64_t rows,
               std::uint64_t k, std::uint64_t v, std::uint64_t error_flag);

std::vector<Variant> kv_cache_variants();

}  // namespace cgp::kernels
