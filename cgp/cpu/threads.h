// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads that wait for work: started once, so that a kernel of some tens of microseconds can use them.
#include <atomic>
#include <cstdint>
#include <functional>

namespace cgp::cpu {

/// Processors that this process may use.
int processors();

/// Where all threads of one run wait for each other. Spins a little, then sleeps: on a machine that is shared
/// the thread that is waited for may need this one's processor.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait() noexcept;

 private:
  int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> round_{0};
};

/// Runs body(i, count) on `count` threads at once, i from 0, and returns when all have ended. count is
/// `threads`, or 1: when the threads are at work for another caller, inside a body, or when the system starts
/// no more. 0 threads: processors(). `body` must not throw. Throws ArgumentError for a negative number.
void run_on_threads(int threads, const std::function<void(int thread, int count)>& body);

/// body(from, to) over [0, extent) in chunks of `chunk`, on up to `threads` threads (0: processors()), the caller among
/// them; returns when all chunks are done. Whoever is free takes the next chunk, and nobody waits for a thread that has
/// not begun one. A call in which the caller could not run for more than half a millisecond, because the system gave its
/// processor or that of a thread it needs to somebody else, is followed by 32 times as long in which callers work alone:
/// with busy neighbours threads cost a few percent at most. Inside a body, or while
/// the threads work for another caller, the caller runs all of it. `body` must not throw. Throws ArgumentError for a negative
/// number of threads and a chunk below 1.
void parallel_for_range(std::int64_t extent, std::int64_t chunk, int threads,
                        const std::function<void(std::int64_t from, std::int64_t to)>& body);
/// The same without a copy of `body`, which may need memory.
template <class Body>
void parallel_for(std::int64_t extent, std::int64_t chunk, int threads, const Body& body) {
  parallel_for_range(extent, chunk, threads, std::cref(body));
}

/// Threads worth starting for so much work: one for each `least` of it, at most `threads` (0: processors()).
int threads_for(std::int64_t work, std::int64_t least, int threads);

}  // namespace cgp::cpu
