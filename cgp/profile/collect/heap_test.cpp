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

TEST(heap, a_program_is_watched) {
  if (find_program("valgrind").empty()) GTEST_SKIP() << "needs valgrind";
  const auto p = profile_heap({"/bin/echo", "hello"});
  EXPECT_GT(p.blocks, 0);
  EXPECT_GE(p.bytes, p.peak_bytes);
  EXPECT_GE(p.peak_bytes, 1);
  EXPECT_THROW(profile_heap({"/bin/false"}), Error);
}
