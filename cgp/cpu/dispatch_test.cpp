// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/dispatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

TEST(dispatch, what_it_finds_is_what_the_system_lists) {
  std::ifstream info("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(info, line);)
    if (line.rfind("flags", 0) == 0) {
      std::istringstream words(line);
      for (std::string w; words >> w;) flags.insert(w);
      break;
    }
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  EXPECT_EQ(has(Isa::avx2), flags.count("avx2") && flags.count("fma"));
  EXPECT_EQ(has(Isa::avx512), flags.count("avx512f") && flags.count("avx512bw") && flags.count("avx512dq") &&
                                  flags.count("avx512vl") && flags.count("fma"));
  EXPECT_EQ(has(Isa::avx_vnni), has(Isa::avx2) && flags.count("avx_vnni"));
  EXPECT_EQ(has(Isa::avx512_vnni), has(Isa::avx512) && flags.count("avx512_vnni"));
  EXPECT_EQ(has(Isa::avx512_bf16), has(Isa::avx512_vnni) && flags.count("avx512_bf16"));
  if (has(Isa::amx)) {
    EXPECT_TRUE(flags.count("amx_tile") && flags.count("amx_bf16"));
  }
}

TEST(dispatch, the_environment_narrows_it_and_wrong_names_are_errors) {
  setenv("CGP_SIMD", "scalar", 1);
  EXPECT_EQ(chosen_isa(), Isa::scalar);
  setenv("CGP_SIMD", "avx3", 1);
  EXPECT_THROW(chosen_isa(), ArgumentError);
  for (Isa i : all_isas()) {
    setenv("CGP_SIMD", std::string(name(i)).c_str(), 1);
    if (has(i))
      EXPECT_EQ(chosen_isa(), i);
    else
      EXPECT_THROW(chosen_isa(), Unsupported);
  }
  unsetenv("CGP_SIMD");
  EXPECT_EQ(chosen_isa(), widest_isa());
}

TEST(dispatch, caches_grow_with_their_level) {
  EXPECT_GE(caches().l1, 8 << 10);
  EXPECT_GE(caches().l2, caches().l1);
  EXPECT_GE(caches().l3, caches().l2);
}

TEST(threads, each_body_runs_once_and_a_run_inside_a_run_is_alone) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ran[3] = {}, nested = 0;
    Barrier barrier(3);
    run_on_threads(3, [&](int i, int count) {
      ASSERT_EQ(count, 3);
      ++ran[i];
      barrier.wait();
      for (auto& r : ran) EXPECT_EQ(r.load(), 1);
      barrier.wait();
      run_on_threads(2, [&](int, int inner) { nested += inner; });
    });
    EXPECT_EQ(nested.load(), 3);
  }
  EXPECT_THROW(run_on_threads(-1, [](int, int) {}), ArgumentError);
  EXPECT_EQ(threads_for(10, 100, 4), 1);
  EXPECT_EQ(threads_for(250, 100, 4), 2);
  EXPECT_EQ(threads_for(1000, 100, 4), 4);
}

TEST(threads, chunks_cover_the_range_once) {
  for (std::int64_t extent : {0, 1, 7, 64, 1000})
    for (std::int64_t chunk : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> ran(static_cast<std::size_t>(extent));
      parallel_for(extent, chunk, 3, [&](std::int64_t from, std::int64_t to) {
        EXPECT_LT(from, to);
        EXPECT_LE(to - from, chunk);
        for (std::int64_t i = from; i < to; ++i) ++ran[std::size_t(i)];
        std::atomic<int> inner = 0;  // a range inside a range is run by this thread alone
        parallel_for(2, 1, 3, [&](std::int64_t, std::int64_t) { ++inner; });
        EXPECT_EQ(inner.load(), 2);
      });
      for (auto& r : ran) EXPECT_EQ(r.load(), 1);
    }
  EXPECT_THROW(parallel_for(1, 0, 1, [](std::int64_t, std::int64_t) {}), ArgumentError);
  EXPECT_THROW(parallel_for(1, 1, -1, [](std::int64_t, std::int64_t) {}), ArgumentError);
}

TEST(threads, ranges_and_runs_take_turns) {
  std::atomic<std::int64_t> sum = 0;
  for (int round = 0; round < 300; ++round) {
    parallel_for(20, 1, 1 + round % 4, [&](std::int64_t from, std::int64_t) { sum += from; });
    run_on_threads(1 + round % 3, [&](int, int) { ++sum; });
  }
  std::int64_t want = 0;
  for (int round = 0; round < 300; ++round) want += 190 + 1 + round % 3;
  EXPECT_EQ(sum.load(), want);
}

// What a busy neighbour does: a worker stops in a chunk for 30 ms. For a while the caller takes all chunks.
TEST(threads, a_worker_that_was_waited_for_is_left_out_for_a_while) {
  using namespace std::chrono_literals;
  const auto caller = std::this_thread::get_id();
  const auto by_others = [&](auto pause) {
    std::atomic<int> count = 0;
    parallel_for(20, 1, 2, [&](std::int64_t, std::int64_t) {
      std::this_thread::sleep_for(std::this_thread::get_id() == caller ? 2ms : pause);
      count += std::this_thread::get_id() != caller;
    });
    return count.load();
  };
  int slow = 0;
  for (int i = 0; i < 100 && slow == 0; ++i) slow = by_others(100ms);
  ASSERT_GT(slow, 0) << "no worker ever took a chunk";
  EXPECT_EQ(by_others(0ms), 0);
  EXPECT_EQ(by_others(0ms), 0);
}

// A thread that the system does not run must not hold up the others: the caller ends when the chunks are done, also when
// no worker ever woke.
TEST(threads, the_caller_alone_can_finish_a_range) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ran = 0;
    parallel_for(1, 1, 4, [&](std::int64_t, std::int64_t) { ++ran; });  // one chunk, four threads
    EXPECT_EQ(ran.load(), 1);
  }
}

}  // namespace
}  // namespace cgp::cpu
