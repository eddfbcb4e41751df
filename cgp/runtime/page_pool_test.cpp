// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/page_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <random>
#include <thread>

namespace cgp::runtime {
namespace {

PoolFailure failure(const std::function<void()>& f) {
  try {
    f();
  } catch (const PoolError& e) {
    return e.kind();
  }
  throw std::runtime_error("nothing was thrown");
}
PoolOptions pages_of(std::uint64_t bytes) {
  PoolOptions o;
  o.page_bytes = bytes;
  return o;
}

// The oracle: a plain array of flags, searched from the left.
struct NaivePool {
  std::vector<bool> used;
  explicit NaivePool(std::size_t n) : used(n) {}
  std::int64_t allocate(std::size_t count) {
    for (std::size_t at = 0, run = 0; at < used.size(); ++at) {
      run = used[at] ? 0 : run + 1;
      if (run < count) continue;
      const std::size_t first = at + 1 - count;
      for (std::size_t i = first; i <= at; ++i) used[i] = true;
      return std::int64_t(first);
    }
    return -1;
  }
  void free(std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) used[first + i] = false;
  }
  std::size_t longest() const {
    std::size_t best = 0, run = 0;
    for (bool u : used) best = std::max(best, run = u ? 0 : run + 1);
    return best;
  }
};

TEST(page_pool, follows_a_naive_first_fit_through_random_work) {
  for (std::size_t pages : {1, 63, 64, 65, 300, 1000}) {
    std::mt19937_64 random(pages);
    PagePool pool(pages * 16, pages_of(16));
    NaivePool naive(pages);
    std::vector<PageAllocation> live;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 5 < 3) {
        const std::size_t want = 1 + random() % (random() % 8 ? 9 : pages);
        const std::int64_t expected = naive.allocate(want);
        if (expected < 0) {
          EXPECT_THROW(pool.allocate(want * 16 - random() % 16), PoolError);
          continue;
        }
        live.push_back(pool.allocate(want * 16 - random() % 16));
        ASSERT_EQ(live.back().page, std::uint64_t(expected)) << pages << " pages, step " << step;
        ASSERT_EQ(live.back().pages, want);
        ASSERT_EQ(live.back().offset, std::uint64_t(expected) * 16);
      } else if (!live.empty()) {
        const std::size_t i = random() % live.size();
        naive.free(live[i].page, live[i].pages);
        pool.free(live[i].id);
        live.erase(live.begin() + std::ptrdiff_t(i));
      }
      const PoolStats s = pool.stats();
      const std::size_t free = std::size_t(std::count(naive.used.begin(), naive.used.end(), false));
      ASSERT_EQ(s.free_pages, free);
      ASSERT_EQ(s.used_pages + s.free_pages, pages);
      ASSERT_EQ(s.largest_free_pages, naive.longest());
      const double fragmentation =
          free == 0 || free == pages ? 0 : (1 - double(naive.longest()) / double(free)) * 100;
      ASSERT_DOUBLE_EQ(s.fragmentation_percent, fragmentation);
    }
    for (std::size_t p = 0; p < pages; ++p) ASSERT_EQ(pool.is_free(p), !naive.used[p]);
  }
}

TEST(page_pool, refusals_are_typed_and_change_nothing) {
  PagePool pool(10 * 100, pages_of(100));
  const auto a = pool.allocate(300), b = pool.allocate(100), c = pool.allocate(300);
  EXPECT_EQ(a.pages, 3u);
  pool.free(b.id);
  const PoolStats before = pool.stats();
  EXPECT_EQ(failure([&] { pool.allocate(0); }), PoolFailure::zero_size);
  EXPECT_EQ(failure([&] { pool.allocate(1001); }), PoolFailure::larger_than_pool);
  EXPECT_EQ(failure([&] { pool.allocate(~0ull); }), PoolFailure::larger_than_pool);
  EXPECT_EQ(failure([&] { pool.allocate(400); }), PoolFailure::fragmented);
  EXPECT_EQ(failure([&] { pool.allocate(500); }), PoolFailure::exhausted);
  EXPECT_EQ(failure([&] { pool.free(b.id); }), PoolFailure::double_free);
  EXPECT_EQ(failure([&] { pool.free(99); }), PoolFailure::unknown_id);
  EXPECT_EQ(failure([&] { pool.free(0); }), PoolFailure::unknown_id);
  EXPECT_EQ(failure([&] { pool.find(b.id); }), PoolFailure::double_free);
  const PoolStats after = pool.stats();
  EXPECT_EQ(after.used_pages, before.used_pages);
  EXPECT_EQ(after.largest_free_pages, before.largest_free_pages);
  EXPECT_EQ(after.live, 2u);
  EXPECT_EQ(after.failures, 5u);
  EXPECT_EQ(pool.find(c.id).page, 4u);
}

TEST(page_pool, neighbours_join_in_every_order) {
  for (int order = 0; order < 6; ++order) {
    PagePool pool(3 * 64 * 8, pages_of(8));
    const PageAllocation parts[3] = {pool.allocate(64 * 8), pool.allocate(64 * 8), pool.allocate(64 * 8)};
    const int permutation[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i : permutation[order]) pool.free(parts[i].id);
    EXPECT_EQ(pool.stats().largest_free_pages, 192u);
    EXPECT_EQ(pool.allocate(192 * 8).page, 0u);
  }
}

TEST(page_pool, fragmentation_is_zero_when_empty_and_when_full) {
  PagePool pool(4 * 8, pages_of(8));
  EXPECT_EQ(pool.stats().fragmentation_percent, 0);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(pool.allocate(8).id);
  EXPECT_EQ(pool.stats().fragmentation_percent, 0);
  pool.free(ids[0]);
  pool.free(ids[2]);
  EXPECT_DOUBLE_EQ(pool.stats().fragmentation_percent, 50);
  EXPECT_EQ(pool.stats().peak_used_pages, 4u);
}

TEST(page_pool, time_stamps_and_latency_come_from_the_given_clock) {
  std::uint64_t now = 100;
  PoolOptions o = pages_of(8);
  o.clock = [&] { return now += 7; };
  PagePool pool(64, o);
  EXPECT_EQ(pool.allocate(1).time_ns, 107u);
  pool.allocate(1);
  EXPECT_EQ(pool.stats().total_latency_ns, 14u);
  EXPECT_EQ(pool.stats().max_latency_ns, 7u);
}

/// Of this thread: what else runs on the machine does not count.
double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

TEST(page_pool, a_million_pages_are_not_walked_through) {
  constexpr std::uint64_t kPages = 1 << 20;
  PagePool pool(kPages, pages_of(1));
  std::vector<std::uint64_t> ids;
  // Every second page used: the worst case for a scan. One run of 3 near the end.
  for (std::uint64_t i = 0; i < kPages; ++i) ids.push_back(pool.allocate(1).id);
  for (std::uint64_t i = 0; i < kPages; i += 2) pool.free(ids[i]);
  pool.free(ids[kPages - 7]);
  const double start = processor_seconds();
  // A microsecond each, some 500 where every page is looked at: minutes.
  constexpr int kRounds = 200'000;
  for (int i = 0; i < kRounds; ++i) {
    const PageAllocation a = pool.allocate(3);
    ASSERT_EQ(a.page, kPages - 8);
    pool.free(a.id);
  }
  const double seconds = processor_seconds() - start;
  EXPECT_LT(seconds, 60) << "allocate and free of 3 pages among 2^20";
  RecordProperty("microseconds_per_pair", std::to_string(seconds / kRounds * 1e6));
}

TEST(page_pool, several_threads_share_one_pool) {
  PoolOptions o = pages_of(8);
  o.thread_safe = true;
  PagePool pool(4096 * 8, o);
  std::vector<std::thread> threads;
  std::atomic<bool> overlap = false;
  std::vector<std::atomic<int>> owner(4096);
  for (int t = 1; t <= 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const PageAllocation a = pool.allocate((1 + random() % 100) * 8);
        for (std::uint64_t p = a.page; p < a.page + a.pages; ++p)
          if (owner[p].exchange(t) != 0) overlap = true;
        for (std::uint64_t p = a.page; p < a.page + a.pages; ++p) owner[p] = 0;
        pool.free(a.id);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_FALSE(overlap);
  EXPECT_EQ(pool.stats().used_pages, 0u);
  EXPECT_EQ(pool.stats().frees, 8000u);
}

}  // namespace
}  // namespace cgp::runtime
