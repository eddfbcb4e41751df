// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/threads.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cgp::cpu {
namespace {

/// Until `value` is no longer `old`: spins for some microseconds, then sleeps, so that a thread that is
/// waited for gets this processor, and this one wakes as soon as it is done.
template <class T>
void wait_while(const std::atomic<T>& value, T old) noexcept {
  for (int turn = 0; turn < 256; ++turn) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

thread_local bool inside = false;  ///< a body runs on this thread

class Workers {
 public:
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    start_.notify_all();
    for (auto& t : threads_) t.join();
  }

  /// body(i, count) on every thread.
  void run(int count, const std::function<void(int, int)>& body) {
    const std::unique_lock busy(one_at_a_time_, std::try_to_lock);
    if (count <= 1 || inside || !busy || !grow(count - 1)) return body(0, 1);
    begin(count, body, count - 1);
    inside = true;
    body(0, count);
    inside = false;
    wait_for_workers();
  }

  /// body() on this thread, and on those others that wake before it returns.
  void run_on_free_ones(int count, const std::function<void()>& body) {
    const std::unique_lock busy(one_at_a_time_, std::try_to_lock);
    if (count <= 1 || inside || !busy || Clock::now() < alone_until_ || !grow(count - 1)) return body();
    const std::function<void(int, int)> joined = [&body](int, int) { body(); };
    const auto start = Clock::now();
    const auto used = processor_time();
    begin(count, joined, 0);
    inside = true;
    body();
    inside = false;
    {
      const std::lock_guard lock(mutex_);
      count_ = 0;  // who wakes now finds nothing
    }
    wait_for_workers();
    // On a busy machine the worker may wake on the processor of the caller and displace it, or lose its own in a chunk: some
    // milliseconds until the system lets the caller go on. It then works alone for so long that the loss is a few percent.
    const auto ended = Clock::now();
    const auto lost = (ended - start) - (processor_time() - used);
    if (lost > kLongWait) alone_until_ = ended + kAlone * lost;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kLongWait{500};
  static constexpr int kAlone = 32;

  /// Of this thread.
  static std::chrono::nanoseconds processor_time() noexcept {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  }

  bool grow(int wanted) {
    while (int(threads_.size()) < wanted) {
      try {
        threads_.emplace_back([this, i = int(threads_.size()) + 1] { work(i); });
      } catch (const std::system_error&) {
        return false;
      }
    }
    return true;
  }

  /// `expected` workers count as running from now on; 0: each from when it wakes.
  void begin(int count, const std::function<void(int, int)>& body, int expected) {
    {
      const std::lock_guard lock(mutex_);
      body_ = &body, count_ = count;
      expected_ = expected > 0;
      running_.store(expected, std::memory_order_relaxed);
      ++round_;
    }
    start_.notify_all();
  }

  void wait_for_workers() noexcept {
    for (int left; (left = running_.load(std::memory_order_acquire)) != 0;) wait_while(running_, left);
  }

  void work(int index) {
    inside = true;
    std::uint64_t seen = 0;
    for (;;) {
      const std::function<void(int, int)>* body = nullptr;
      int count = 0;
      {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return ending_ || (round_ != seen && index < count_); });
        if (ending_) return;
        seen = round_, body = body_, count = count_;
        if (!expected_) running_.fetch_add(1, std::memory_order_relaxed);
      }
      (*body)(index, count);
      running_.fetch_sub(1, std::memory_order_release);
      running_.notify_one();
    }
  }

  std::mutex one_at_a_time_, mutex_;
  std::condition_variable start_;
  std::vector<std::thread> threads_;
  const std::function<void(int, int)>* body_ = nullptr;
  int count_ = 0;
  bool expected_ = false;
  std::uint64_t round_ = 0;
  Clock::time_point alone_until_{};  ///< under one_at_a_time_
  std::atomic<int> running_{0};
  bool ending_ = false;
};

Workers& workers() {
  static Workers all;
  return all;
}

void check_threads(int threads) {
  if (threads < 0)
    throw ArgumentError(
        ErrorText{"a number of threads is positive, or 0 for all", {}, text::cat(threads), {}});
}

}  // namespace

int processors() {
  static const int count = [] {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    return int(std::max(1u, std::thread::hardware_concurrency()));
  }();
  return count;
}

void Barrier::wait() noexcept {
  if (threads_ == 1) return;
  const unsigned round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return round_.notify_all();
  }
  wait_while(round_, round);
}

void run_on_threads(int threads, const std::function<void(int, int)>& body) {
  check_threads(threads);
  workers().run(threads == 0 ? processors() : threads, body);
}

void parallel_for_range(std::int64_t extent, std::int64_t chunk, int threads,
                        const std::function<void(std::int64_t, std::int64_t)>& body) {
  check_threads(threads);
  if (chunk < 1) throw ArgumentError(ErrorText{"a chunk has at least one element", {}, text::cat(chunk), {}});
  if (threads == 0) threads = processors();
  std::atomic<std::int64_t> next{0};
  const std::int64_t chunks = extent / chunk + (extent % chunk != 0);
  const auto take_chunks = [&] {
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < chunks;)
      body(i * chunk, std::min((i + 1) * chunk, extent));
  };
  workers().run_on_free_ones(int(std::clamp<std::int64_t>(chunks, 1, threads)), std::cref(take_chunks));
}

int threads_for(std::int64_t work, std::int64_t least, int threads) {
  check_threads(threads);
  if (threads == 0) threads = processors();
  return int(std::clamp<std::int64_t>(work / least, 1, threads));
}

}  // namespace cgp::cpu
