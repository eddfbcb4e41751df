// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/ops/ops_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

using ops_versions::kAttendTokens;
using std::int64_t;
using text::cat;

/// Tokens that one thread takes at a time, whose results are put together afterwards, in order.
constexpr int64_t kSplit = 512;

void check(std::span<const float> q, const KvCache& c, std::span<float> out) {
  if (c.kv_heads < 1 || c.head_dim < 1 || c.page_tokens < 1 || c.tokens < 0)
    throw ArgumentError(ErrorText{
        "the extents of a cache are positive",
        {},
        cat(c.kv_heads, " heads of ", c.head_dim, ", pages of ", c.page_tokens, ", ", c.tokens, " tokens"),
        {}});
  if (int64_t(q.size()) % (c.kv_heads * c.head_dim) != 0)
    throw ArgumentError(ErrorText{"the heads of the cache divide those of q",
                                  {},
                                  cat(q.size(), " elements of q, ", c.kv_heads, " heads of ", c.head_dim),
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

}  // namespace

void decode_attention(std::span<const float> q, const KvCache& c, float scale, int64_t window,
                      std::span<float> out, const OpOptions& o) {
  const auto attend = ops_versions::version(o.isa).attend[int(c.type)];
  check(q, c, out);
  std::fill(out.begin(), out.end(), 0.0f);
  if (q.empty() || c.tokens == 0) return;
  const int64_t d = c.head_dim, heads = int64_t(q.size()) / d, group = heads / c.kv_heads;
  const int64_t row = ops_versions::Group{nullptr, 0, d, 0, nullptr, nullptr, nullptr}.row();
  const int64_t begin = window > 0 ? std::max<int64_t>(0, c.tokens - window) : 0;
  const int64_t splits = (c.tokens - begin + kSplit - 1) / kSplit, stride = c.kv_heads * d;
  const int64_t element = c.type == CacheType::f32 ? 4 : 2;
  std::vector<float> padded(std::size_t(heads * row), 0.0f), parts(std::size_t(splits * heads * row), 0.0f);
  for (int64_t h = 0; h < heads; ++h) std::copy_n(q.begin() + h * d, d, padded.begin() + h * row);
  std::vector<float> max(std::size_t(splits * heads), -std::numeric_limits<float>::infinity()),
      sum(max.size(), 0.0f);

  const auto attend_to = [&](int64_t split, int64_t kv) {
    const int64_t head = split * heads + kv * group;
    thread_local AlignedBuffer scratch;
    scratch.at_least(std::size_t(kAttendTokens * row) * sizeof(float));
    const ops_versions::Group g{
        padded.data() + kv * group * row, group, d, scale, parts.data() + head * row, &max[std::size_t(head)],
        &sum[std::size_t(head)]};
    const int64_t end = std::min(c.tokens, begin + (split + 1) * kSplit);
    for (int64_t t = begin + split * kSplit; t < end;) {
      const int64_t in_page = t % c.page_tokens,
                    token = c.pages[std::size_t(t / c.page_tokens)] * c.page_tokens + in_page;
      const int64_t at = (token * stride + kv * d) * element,
                    count = std::min({kAttendTokens, c.page_tokens - in_page, end - t});
      attend(g, c.keys.data() + at, c.values.data() + at, stride, count, scratch.as<float>());
      t += count;
    }
  };
  parallel_for(c.kv_heads * splits, 1,
               threads_for((c.tokens - begin) * heads * d, kOpWorkPerThread, o.threads),
               [&](int64_t i, int64_t) { attend_to(i / c.kv_heads, i % c.kv_heads); });

  for (int64_t h = 0; h < heads; ++h) {
    float most = -std::numeric_limits<float>::infinity(), total = 0;
    for (int64_t s = 0; s < splits; ++s) most = std::max(most, max[std::size_t(s * heads + h)]);
    for (int64_t s = 0; s < splits; ++s)
      total += std::exp(max[std::size_t(s * heads + h)] - most) * sum[std::size_t(s * heads + h)];
    for (int64_t s = 0; s < splits; ++s) {
      const float weight = std::exp(max[std::size_t(s * heads + h)] - most) / total;
      const float* part = parts.data() + (s * heads + h) * row;
      for (int64_t i = 0; i < d; ++i) out[std::size_t(h * d + i)] += weight * part[i];
    }
  }
}

}  // namespace cgp::cpu
