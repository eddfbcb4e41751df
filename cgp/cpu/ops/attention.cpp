// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/ops/ops_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

using ops_versions::kAttendTokens;
using std::int64_t;
using text::cat;

/// Tokens that one thread takes at a time, whose results are put together afterwards, in order. Splits, and blocks of
/// kAttendTokens in them, begin at multiples: what a query adds up depends on its position alone.
constexpr int64_t kSplit = 512;
static_assert(kSplit % kAttendTokens == 0);
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check(std::span<const float> q, int64_t queries, const KvCache& c, const AttentionOptions& what,
           std::span<float> out) {
  if (c.kv_heads < 1 || c.head_dim < 1 || c.page_tokens < 1 || c.tokens < 0)
    throw ArgumentError(ErrorText{
        "the extents of a cache are positive",
        {},
        cat(c.kv_heads, " heads of ", c.head_dim, ", pages of ", c.page_tokens, ", ", c.tokens, " tokens"),
        {}});
  if (queries < 1 || (queries > c.tokens && c.tokens > 0))
    throw ArgumentError(
        ErrorText{"queries are tokens of the sequence", {}, cat(queries, " of ", c.tokens, " tokens"), {}});
  if (what.window < 0 || !(what.softcap >= 0))
    throw ArgumentError(ErrorText{"window and softcap are not negative",
                                  {},
                                  cat("window ", what.window, ", softcap ", what.softcap),
                                  {}});
  if (int64_t(q.size()) % (queries * c.kv_heads * c.head_dim) != 0)
    throw ArgumentError(
        ErrorText{"the heads of the cache divide those of q",
                  {},
                  cat(q.size(), " elements of ", queries, " q, ", c.kv_heads, " heads of ", c.head_dim),
                  {}});
  if (out.size() != q.size())
    throw ArgumentError(ErrorText{"out has the size of q", {}, cat(out.size(), " and ", q.size()), {}});
  if (c.keys.size() != c.values.size())
    throw ArgumentError(ErrorText{
        "keys and values have one size", {}, cat(c.keys.size(), " and ", c.values.size(), " bytes"), {}});
  int64_t page = 0;
  if (__builtin_mul_overflow(c.page_tokens, c.kv_heads * c.head_dim * (c.type == CacheType::f32 ? 4 : 2),
                             &page))
    throw ArgumentError(ErrorText{"a page beyond 2^63 bytes", {}, cat(c.page_tokens, " tokens"), {}});
  const int64_t there = int64_t(c.keys.size()) / page,
                used = c.tokens / c.page_tokens + (c.tokens % c.page_tokens != 0);
  if (int64_t(c.pages.size()) < used)
    throw ArgumentError(
        ErrorText{"every token has a page", {}, cat(c.pages.size(), " pages, needed are ", used), {}});
  for (int64_t i = 0; i < used; ++i)
    if (c.pages[std::size_t(i)] < 0 || c.pages[std::size_t(i)] >= there)
      throw ArgumentError(ErrorText{"a page lies in the cache",
                                    {},
                                    cat("pages[", i, "] is ", c.pages[std::size_t(i)], " of ", there),
                                    {}});
}

struct Problem {
  const KvCache& cache;
  const AttentionOptions& what;
  ops_versions::Attend attend;
  int64_t group, row;  ///< heads of q for one of the cache; floats of a padded head

  int64_t begin(int64_t position) const {
    return what.window > 0 ? std::max<int64_t>(0, position + 1 - what.window) : 0;
  }
};

/// What queries have gathered from one split of the tokens: rows [kv_heads][queries][group].
struct Gathered {
  float *out, *max, *sum;
};

/// Queries at `position` and after it, and one head of the cache, with the tokens [from, to) of a split.
void attend_split(const Problem& p, const float* q, int64_t queries, int64_t position, int64_t kv,
                  int64_t from, int64_t to, const Gathered& g) {
  const KvCache& c = p.cache;
  const int64_t d = c.head_dim, stride = c.kv_heads * d, element = c.type == CacheType::f32 ? 4 : 2;
  thread_local AlignedBuffer scratch;
  scratch.at_least(std::size_t(kAttendTokens * p.row) * sizeof(float));
  for (int64_t t = from, end; t < to; t = end) {
    end = std::min({to, t / kAttendTokens * kAttendTokens + kAttendTokens,
                    t / c.page_tokens * c.page_tokens + c.page_tokens});
    // Queries that see the same tokens of this block go together.
    for (int64_t i = 0, next; i < queries; i = next) {
      const auto first = [&](int64_t query) { return std::max(t, p.begin(position + query)); };
      const auto last = [&](int64_t query) { return std::min(end, position + query + 1); };
      for (next = i + 1; next < queries && first(next) == first(i) && last(next) == last(i);) ++next;
      const int64_t count = last(i) - first(i);
      if (count <= 0) continue;
      const int64_t token =
          c.pages[std::size_t(t / c.page_tokens)] * c.page_tokens + first(i) % c.page_tokens;
      const int64_t at = (token * stride + kv * d) * element, head = (kv * queries + i) * p.group;
      const ops_versions::Group group{q + head * p.row, (next - i) * p.group, d,
                                      p.what.scale,     p.what.softcap,       g.out + head * p.row,
                                      g.max + head,     g.sum + head};
      p.attend(group, c.keys.data() + at, c.values.data() + at, stride, count, scratch.as<float>());
    }
  }
}

/// Queries within one block of positions, so that they share most tokens. q and out: [queries, heads, head_dim].
void attend_queries(const Problem& p, const float* q, int64_t queries, int64_t position, float* out,
                    int threads) {
  const KvCache& c = p.cache;
  const int64_t d = c.head_dim, heads = queries * c.kv_heads * p.group, row = p.row;
  const int64_t begin = p.begin(position) / kSplit * kSplit, end = position + queries;
  const int64_t splits = (end - begin + kSplit - 1) / kSplit;
  thread_local AlignedBuffer memory;
  memory.at_least(std::size_t(heads * row + splits * heads * (row + 2)) * sizeof(float));
  float* const padded = memory.as<float>();
  float *const parts = padded + heads * row, *const max = parts + splits * heads * row,
               *const sum = max + splits * heads;
  std::fill(padded, max, 0.0f), std::fill(max, sum, -kInfinity), std::fill(sum, sum + splits * heads, 0.0f);
  // Head h of a query as a row of `padded`, and where it is in q and out.
  const auto for_heads = [&](auto&& body) {
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t h = 0; h < c.kv_heads * p.group; ++h)
        body((h / p.group * queries + i) * p.group + h % p.group, (i * c.kv_heads * p.group + h) * d);
  };
  for_heads([&](int64_t r, int64_t at) { std::copy_n(q + at, d, padded + r * row); });
  parallel_for(c.kv_heads * splits, 1, threads_for((end - begin) * heads * d, kOpWorkPerThread, threads),
               [&](int64_t i, int64_t) {
                 const int64_t split = i / c.kv_heads, from = begin + split * kSplit;
                 attend_split(p, padded, queries, position, i % c.kv_heads, from,
                              std::min(end, from + kSplit),
                              {parts + split * heads * row, max + split * heads, sum + split * heads});
               });
  for_heads([&](int64_t r, int64_t at) {
    float most = -kInfinity, total = 0;
    for (int64_t s = 0; s < splits; ++s) most = std::max(most, max[s * heads + r]);
    for (int64_t s = 0; s < splits; ++s) total += std::exp(max[s * heads + r] - most) * sum[s * heads + r];
    std::fill_n(out + at, d, 0.0f);
    for (int64_t s = 0; s < splits; ++s) {
      const float weight = std::exp(max[s * heads + r] - most) / total;
      const float* part = parts + (s * heads + r) * row;
      for (int64_t i = 0; i < d; ++i) out[at + i] += weight * part[i];
    }
  });
}

}  // namespace

void attention(std::span<const float> q, int64_t queries, const KvCache& c, const AttentionOptions& what,
               std::span<float> out, const OpOptions& o) {
  const auto attend = ops_versions::version(o.isa).attend[int(c.type)];
  check(q, queries, c, what, out);
  if (q.empty() || c.tokens == 0) return std::fill(out.begin(), out.end(), 0.0f);
  const int64_t width = int64_t(q.size()) / queries;
  const Problem p{c, what, attend, width / c.head_dim / c.kv_heads, (c.head_dim + 15) / 16 * 16};
  for (int64_t i = 0, count; i < queries; i += count) {
    const int64_t position = c.tokens - queries + i;
    count = std::min(queries - i, kAttendTokens - position % kAttendTokens);
    attend_queries(p, q.data() + i * width, count, position, out.data() + i * width, o.threads);
  }
}

}  // namespace cgp::cpu
