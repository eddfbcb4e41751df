// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which pages of a fixed range are in use: first fit over contiguous pages, any number of pages at a time.
// Knows nothing of devices; device_pool.h puts memory behind it. Free neighbours join by themselves, since
// the only record of free space is one bit per page and a tree of run lengths over it.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cgp/base/error.h"

namespace cgp::runtime {

enum class PoolFailure : std::uint8_t {
  zero_size,
  larger_than_pool,
  exhausted,   ///< not enough free pages
  fragmented,  ///< enough free pages, but no run of them is long enough
  double_free,
  unknown_id,
};
/// The pool is as it was before the call.
class PoolError : public Error {
 public:
  PoolError(PoolFailure kind, ErrorText text) : Error(std::move(text)), kind_(kind) {}
  PoolFailure kind() const { return kind_; }

 private:
  PoolFailure kind_;
};

struct PoolOptions {
  std::uint64_t page_bytes = 256 << 10;
  bool thread_safe = false;
  /// Nanoseconds from some fixed point, for the time stamps and latencies; without it there are none.
  std::function<std::uint64_t()> clock;
};

struct PageAllocation {
  std::uint64_t id = 0;    ///< never used twice
  std::uint64_t page = 0;  ///< the first
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;    ///< as asked for
  std::uint64_t time_ns = 0;  ///< of the clock; 0 without one
  std::uint64_t offset = 0;   ///< of the first page, in bytes
};

struct PoolStats {
  std::uint64_t pages = 0, used_pages = 0, free_pages = 0, peak_used_pages = 0;
  std::uint64_t largest_free_pages = 0;  ///< the longest run
  std::uint64_t live = 0;                ///< allocations that exist
  std::uint64_t requested_bytes = 0;     ///< by them; the rest of their last pages is lost to rounding
  std::uint64_t allocations = 0, frees = 0, failures = 0;
  std::uint64_t total_latency_ns = 0, max_latency_ns = 0;  ///< of successful allocations, by the clock
  /// (1 - largest run / free pages) * 100; 0 when nothing is free, or nothing used.
  double fragmentation_percent = 0;
};

class PagePool {
 public:
  /// bytes / page_bytes pages, rounded down; at least one.
  explicit PagePool(std::uint64_t bytes, PoolOptions options = {});
  PagePool(const PagePool&) = delete;

  /// The lowest run of ceil(bytes / page_bytes) free pages. Throws PoolError.
  PageAllocation allocate(std::uint64_t bytes);
  /// Throws PoolError (double_free, unknown_id).
  void free(std::uint64_t id);
  /// Throws PoolError (unknown_id, or double_free for one that was freed).
  PageAllocation find(std::uint64_t id) const;
  PoolStats stats() const;
  std::uint64_t page_bytes() const { return options_.page_bytes; }
  bool is_free(std::uint64_t page) const;

 private:
  struct Run {  // of free pages in a span: at its start, at its end, and the longest anywhere
    std::uint32_t prefix = 0, suffix = 0, best = 0;
  };
  static Run join(const Run& a, const Run& b, std::uint32_t a_pages, std::uint32_t b_pages);
  static Run of_word(std::uint64_t free_bits);
  void mark(std::uint64_t page, std::uint64_t count, bool free);
  void refresh(std::size_t first_word, std::size_t last_word);
  std::uint64_t first_fit(std::uint64_t count) const;  // kNoPage if there is none
  PoolError lookup_error(std::uint64_t id) const;
  std::unique_lock<std::mutex> lock() const;

  static constexpr std::uint64_t kNoPage = ~0ull;
  PoolOptions options_;
  std::uint64_t pages_;
  std::size_t leaves_;                // words of 64 pages, rounded up to a power of two
  std::vector<std::uint64_t> words_;  // 1 = free
  std::vector<Run> tree_;             // 1 is the root, leaves_ + w is word w
  std::unordered_map<std::uint64_t, PageAllocation> live_;
  std::uint64_t next_id_ = 1;
  PoolStats stats_;
  mutable std::mutex mutex_;
};

}  // namespace cgp::runtime
