// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/dispatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

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
  EXPECT_EQ(has(Isa::avx512_vnni), has(Isa::avx512) && flags.count("avx512_vnni"));
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

}  // namespace
}  // namespace cgp::cpu
