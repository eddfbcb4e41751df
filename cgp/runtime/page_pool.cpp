// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/page_pool.h"

#include <algorithm>
#include <bit>

#include "cgp/base/text.h"

namespace cgp::runtime {
namespace {
using text::cat;

constexpr std::uint64_t kWord = 64;

// Lowest bit where a run of `count` ones (1..64) starts; 64 if there is none. Each step halves what is left
// of the count: after and-ing x with x >> s, a one stands for a run of (have + s).
int find_run(std::uint64_t x, std::uint32_t count) {
  std::uint32_t have = 1;
  while (have < count) {
    const std::uint32_t s = std::min(have, count - have);
    x &= x >> s;
    have += s;
  }
  return std::countr_zero(x);
}

std::uint32_t longest_run(std::uint64_t x) {
  std::uint32_t n = 0;
  for (; x; x &= x << 1) ++n;
  return n;
}

}  // namespace

PagePool::Run PagePool::of_word(std::uint64_t x) {
  return {std::uint32_t(std::countr_one(x)), std::uint32_t(std::countl_one(x)), longest_run(x)};
}
PagePool::Run PagePool::join(const Run& a, const Run& b, std::uint32_t a_pages, std::uint32_t b_pages) {
  return {a.prefix == a_pages ? a_pages + b.prefix : a.prefix,
          b.suffix == b_pages ? b_pages + a.suffix : b.suffix,
          std::max({a.best, b.best, a.suffix + b.prefix})};
}

PagePool::PagePool(std::uint64_t bytes, PoolOptions options) : options_(std::move(options)) {
  if (options_.page_bytes == 0) throw ArgumentError("a pool's pages have at least one byte");
  pages_ = bytes / options_.page_bytes;
  if (pages_ == 0 || pages_ > (1ull << 31))
    throw ArgumentError({"a pool has 1 to 2^31 pages",
                         {},
                         cat(bytes, " bytes are ", pages_, " pages of ", options_.page_bytes),
                         {}});
  const std::size_t words = std::size_t((pages_ + kWord - 1) / kWord);
  leaves_ = std::bit_ceil(words);
  words_.assign(leaves_, 0);
  tree_.assign(2 * leaves_, Run());
  for (std::uint64_t p = 0; p < pages_; p += kWord)
    words_[std::size_t(p / kWord)] = pages_ - p >= kWord ? ~0ull : (1ull << (pages_ - p)) - 1;
  refresh(0, words - 1);
  stats_.pages = stats_.free_pages = pages_;
}

std::unique_lock<std::mutex> PagePool::lock() const {
  return options_.thread_safe ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void PagePool::refresh(std::size_t first, std::size_t last) {
  for (std::size_t w = first; w <= last; ++w) tree_[leaves_ + w] = of_word(words_[w]);
  first += leaves_;
  last += leaves_;
  for (std::uint32_t half = kWord; first > 1; half *= 2) {
    first /= 2;
    last /= 2;
    for (std::size_t i = first; i <= last; ++i) tree_[i] = join(tree_[2 * i], tree_[2 * i + 1], half, half);
  }
}

void PagePool::mark(std::uint64_t page, std::uint64_t count, bool free) {
  const std::size_t first = std::size_t(page / kWord), last = std::size_t((page + count - 1) / kWord);
  for (std::size_t w = first; w <= last; ++w) {
    const std::uint64_t base = w * kWord, lo = std::max(page, base) - base,
                        hi = std::min(page + count, base + kWord) - base;
    const std::uint64_t mask = (hi == kWord ? ~0ull : (1ull << hi) - 1) & ~((1ull << lo) - 1);
    words_[w] = free ? words_[w] | mask : words_[w] & ~mask;
  }
  refresh(first, last);
}

// The leftmost long enough run: in the left half, else across the middle, else in the right half.
std::uint64_t PagePool::first_fit(std::uint64_t count) const {
  if (count > tree_[1].best) return kNoPage;
  std::size_t node = 1;
  std::uint64_t base = 0, span = leaves_ * kWord;
  while (node < leaves_) {
    const Run &left = tree_[2 * node], &right = tree_[2 * node + 1];
    span /= 2;
    if (left.best >= count) {
      node = 2 * node;
    } else if (std::uint64_t(left.suffix) + right.prefix >= count) {
      return base + span - left.suffix;
    } else {
      node = 2 * node + 1;
      base += span;
    }
  }
  return base + std::uint64_t(find_run(words_[node - leaves_], std::uint32_t(count)));
}

PageAllocation PagePool::allocate(std::uint64_t bytes) {
  const auto guard = lock();
  const std::uint64_t start = options_.clock ? options_.clock() : 0;
  const auto fail = [&](PoolFailure kind, std::string rule, std::string why) -> PoolError {
    ++stats_.failures;
    return PoolError(kind, {std::move(rule), {}, std::move(why), {}});
  };
  if (bytes == 0) throw fail(PoolFailure::zero_size, "an allocation has at least one byte", {});
  const std::uint64_t count = (bytes - 1) / options_.page_bytes + 1;
  if (count > pages_)
    throw fail(PoolFailure::larger_than_pool, "the allocation is larger than the pool",
               cat(count, " pages of ", text::bytes(options_.page_bytes), " wanted, the pool has ", pages_));
  const std::uint64_t page = first_fit(count);
  if (page == kNoPage) {
    const bool enough = stats_.free_pages >= count;
    throw fail(enough ? PoolFailure::fragmented : PoolFailure::exhausted,
               enough ? "the pool's free pages are too scattered" : "the pool is exhausted",
               cat(count, " pages wanted, ", stats_.free_pages, " of ", pages_, " free, the longest run has ",
                   tree_[1].best));
  }
  mark(page, count, false);
  const std::uint64_t end = options_.clock ? options_.clock() : 0;
  const PageAllocation a{next_id_++, page, count, bytes, start, page * options_.page_bytes};
  live_.emplace(a.id, a);
  stats_.used_pages += count;
  stats_.free_pages -= count;
  stats_.peak_used_pages = std::max(stats_.peak_used_pages, stats_.used_pages);
  stats_.requested_bytes += bytes;
  ++stats_.allocations;
  stats_.total_latency_ns += end - start;
  stats_.max_latency_ns = std::max(stats_.max_latency_ns, end - start);
  return a;
}

PoolError PagePool::lookup_error(std::uint64_t id) const {
  if (id != 0 && id < next_id_)
    return {PoolFailure::double_free, {cat("allocation ", id, " was freed before"), {}, {}, {}}};
  return {PoolFailure::unknown_id, {cat("allocation ", id, " is not of this pool"), {}, {}, {}}};
}

void PagePool::free(std::uint64_t id) {
  const auto guard = lock();
  auto it = live_.find(id);
  if (it == live_.end()) throw lookup_error(id);
  const PageAllocation a = it->second;
  live_.erase(it);
  mark(a.page, a.pages, true);
  stats_.used_pages -= a.pages;
  stats_.free_pages += a.pages;
  stats_.requested_bytes -= a.bytes;
  ++stats_.frees;
}

PageAllocation PagePool::find(std::uint64_t id) const {
  const auto guard = lock();
  auto it = live_.find(id);
  if (it == live_.end()) throw lookup_error(id);
  return it->second;
}

bool PagePool::is_free(std::uint64_t page) const {
  const auto guard = lock();
  if (page >= pages_) throw ArgumentError(cat("the pool has ", pages_, " pages, there is no page ", page));
  return words_[std::size_t(page / kWord)] >> (page % kWord) & 1;
}

PoolStats PagePool::stats() const {
  const auto guard = lock();
  PoolStats s = stats_;
  s.largest_free_pages = tree_[1].best;
  s.live = live_.size();
  if (s.free_pages && s.used_pages)
    s.fragmentation_percent = (1.0 - double(s.largest_free_pages) / double(s.free_pages)) * 100.0;
  return s;
}

}  // namespace cgp::runtime
