// SPDX-License-Identifier: Apache-2.0
// Heap profiles as valgrind writes them, and of a program whose allocations are known.
#include "cgp/profile/collect/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/profile/measure/process.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using testing::HasSubstr;

TEST(heap, a_file_of_dhat_is_read) {
  const char* file = R"j({"dhatFileVersion":2,"mode":"heap","verb":"Allocated","bklt":true,"bkacc":true,
    "ftbl":["[root]","0x1: malloc (vg_replace_malloc.c:381)","0x2: make(int) (a.cpp:7)","0x3: main (a.cpp:20)",
            "0x4: operator new(unsigned long) (x.c:1)"],
    "pps":[{"tb":1000,"tbk":10,"mb":400,"mbk":4,"gb":400,"gbk":4,"eb":100,"ebk":1,"fs":[0,1,2,3]},
           {"tb":5000,"tbk":1,"mb":5000,"mbk":1,"gb":5000,"gbk":1,"eb":0,"ebk":0,"fs":[4,3]},
           {"tb":72704,"tbk":1,"mb":72704,"mbk":1,"gb":72704,"gbk":1,"eb":72704,"ebk":1,"fs":[1]}]})j";
  const auto p = read_dhat(file, "f");
  EXPECT_EQ(p.bytes, 6000);
  EXPECT_EQ(p.blocks, 11);
  EXPECT_EQ(p.peak_bytes, 5400);
  EXPECT_EQ(p.left_bytes, 100);
  ASSERT_EQ(p.sites.size(), 2u) << "the pool for exceptions is the library's";
  EXPECT_EQ(p.sites[0].where, "main (a.cpp:20)");
  EXPECT_EQ(p.sites[1].where, "make(int) (a.cpp:7) < main (a.cpp:20)");
  measure::MetricSet m;
  p.add_to(m);
  EXPECT_EQ(m[Metric::malloc_count].number(), 11);
  EXPECT_EQ(m[Metric::free_count].number(), 10);
  EXPECT_EQ(m[Metric::memory_leaks_bytes].number(), 100);
  EXPECT_THAT(heap_text(p, 100), HasSubstr("11 allocations"));
  EXPECT_THROW(read_dhat("{}", "f"), ParseError);
  EXPECT_THROW(read_dhat("nothing", "f"), ParseError);
}

#ifdef CGP_HEAP_LIBRARY
TEST(heap, what_a_program_allocates_is_counted_by_its_callers) {
  setenv("CGP_HEAP_LIBRARY", CGP_HEAP_LIBRARY, 1);
  const auto p = profile_heap({CGP_PLANTED_HEAP});
  unsetenv("CGP_HEAP_LIBRARY");
  EXPECT_EQ(p.counted_by, "libcgp_heap.so");
  const auto site = [&](const std::string& begin) -> HeapSite {
    for (const auto& s : p.sites)
      if (s.where.rfind(begin, 0) == 0) return s;
    ADD_FAILURE() << begin << "\n" << heap_text(p, 120);
    return {};
  };
  const auto lost = site("lose"), churned = site("churn"), kept = site("keep");
  EXPECT_EQ(lost.blocks, 10);
  EXPECT_EQ(lost.left_bytes, 1000);
  EXPECT_LT(lost.lifetime_us, 0) << "none of it was freed";
  EXPECT_EQ(churned.blocks, 1000);
  EXPECT_EQ(churned.bytes, 4096000);
  EXPECT_EQ(churned.left_bytes, 0);
  EXPECT_EQ(kept.peak_bytes, 500000) << "it lived when most did";
  EXPECT_GT(kept.lifetime_us, 10000) << "20 ms, by a clock of 4";
  EXPECT_THAT(lost.where, HasSubstr("planted_heap.cpp:"));
  EXPECT_GE(p.peak_bytes, 501000);
  EXPECT_LT(p.peak_bytes, 700000);
  EXPECT_EQ(p.left_bytes, 1000);
  EXPECT_EQ(p.blocks - p.left_blocks, 1001) << heap_text(p, 120);
  EXPECT_THROW(read_heap_records({"what\n"}), ParseError);
}
#endif

TEST(heap, a_program_is_watched) {
  if (heap_library().empty() && find_program("valgrind").empty()) GTEST_SKIP() << "needs valgrind";
  const auto p = profile_heap({"/bin/echo", "hello"});
  EXPECT_GT(p.blocks, 0);
  EXPECT_GE(p.bytes, p.peak_bytes);
  EXPECT_GE(p.peak_bytes, 1);
  EXPECT_THROW(profile_heap({"/bin/false"}), Error);
}
