// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/profile/collect/misaligned.h"

using namespace cgp;
using namespace cgp::profile;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(memory_check, a_report_of_valgrind_is_read) {
  const char* xml = R"x(<?xml version="1.0"?><valgrindoutput><protocolversion>4</protocolversion>
<error><unique>0x0</unique><tid>1</tid><kind>InvalidWrite</kind><what>Invalid write of size 4</what>
  <stack><frame><ip>0x1091A0</ip><obj>/tmp/a.out</obj><fn>fill(std::vector&lt;int&gt;&amp;)</fn><dir>/src</dir><file>a.cpp</file><line>7</line></frame>
         <frame><ip>0x1091F0</ip><obj>/usr/lib/libx.so</obj><fn>run</fn></frame><frame><ip>0x10AB</ip></frame></stack>
  <auxwhat>Address 0x4e67068 is 0 bytes after a block of size 40 alloc'd</auxwhat>
  <stack><frame><ip>0x48</ip><fn>malloc</fn></frame></stack></error>
<error><unique>0x1</unique><kind>Leak_DefinitelyLost</kind><xwhat><text>77 bytes in 1 blocks are definitely lost</text>
  <leakedbytes>77</leakedbytes></xwhat><stack><frame><fn>malloc</fn></frame></stack></error>
<errorcounts><pair><count>3</count><unique>0x0</unique></pair></errorcounts></valgrindoutput>)x";
  const auto errors = read_valgrind_xml(xml, "f");
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].kind, "invalid write");
  EXPECT_EQ(errors[0].count, 3u);
  EXPECT_THAT(errors[0].where, ElementsAre("fill(std::vector<int>&) at a.cpp:7", "run in libx.so", "0x10AB"));
  EXPECT_THAT(errors[0].notes,
              ElementsAre("Address 0x4e67068 is 0 bytes after a block of size 40 alloc'd", "  malloc"));
  EXPECT_EQ(errors[1].kind, "leak");
  EXPECT_EQ(errors[1].what, "77 bytes in 1 blocks are definitely lost");
  EXPECT_EQ(errors[1].count, 1u);
  EXPECT_THROW(read_valgrind_xml("<html>", "f"), ParseError);
  MemoryReport r{"valgrind", errors, {}};
  EXPECT_THAT(memory_text(r), HasSubstr("invalid write (3 times): Invalid write of size 4\n  at fill("));
  EXPECT_THAT(memory_text(r), HasSubstr("4 errors at 2 places"));
  EXPECT_EQ(to_json(r)["errors"][0]["count"], 3);
}

TEST(memory_check, what_compute_sanitizer_prints_is_read) {
  // Of a program on an H200; its threads 64 and 65 write behind an array.
  const char* memcheck = R"x(========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at over(int *, int)+0x90 in bug.cu:2
=========     by thread (64,0,0) in block (0,0,0)
=========     Access to 0x7f03ae800100 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f03ae800000 of size 256 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x39fb94] in libcuda.so.1
========= 
========= Invalid __global__ write of size 4 bytes
=========     at over(int *, int)+0x90 in bug.cu:2
=========     by thread (65,0,0) in block (0,0,0)
=========     Access to 0x7f03ae800104 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x39fb94] in libcuda.so.1
========= 
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame:  [0x4cb045] in libcuda.so.1
========= ERROR SUMMARY: 3 errors
)x";
  const auto errors = read_compute_sanitizer(memcheck);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].kind, "invalid __global__ write");
  EXPECT_EQ(errors[0].count, 2u);
  EXPECT_THAT(errors[0].where, ElementsAre("over(int *, int)+0x90 in bug.cu:2"));
  ASSERT_EQ(errors[0].notes.size(), 3u);
  EXPECT_EQ(errors[0].notes[0], "by thread (64,0,0) in block (0,0,0)");
  EXPECT_EQ(errors[1].kind, "failed call");
  EXPECT_TRUE(errors[1].where.empty());
  const auto races = read_compute_sanitizer(R"x(========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at race(int *)+0xa0 in bug.cu:4
=========     and Read access at race(int *)+0xb0 in bug.cu:4 [256 hazards]
========= 
no error
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
)x");
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].kind, "race");
  EXPECT_THAT(races[0].where,
              ElementsAre("race(int *)+0xa0 in bug.cu:4", "race(int *)+0xb0 in bug.cu:4 [256 hazards]"));
  EXPECT_TRUE(read_compute_sanitizer("========= COMPUTE-SANITIZER\n========= Error: Target application "
                                     "terminated before first instrumented API call\n")
                  .empty());
}

TEST(memory_check, the_address_of_a_vector_access_comes_from_its_instruction) {
  MachineState at;
  for (std::size_t i = 0; i < 16; ++i) at.registers[i] = 0x1000 * (i + 1);
  at.instruction = 0x400000, at.fs = 0x70000000;
  const auto seen = [&](std::vector<std::uint8_t> code) {
    code.resize(24);
    const auto a = aligned_access(code, at);
    if (!a) return std::string("-");
    char text[80];
    std::snprintf(text, sizeof text, "%s %s %d %llx", a->name.c_str(), a->writes ? "writes" : "reads",
                  a->bytes, static_cast<unsigned long long>(a->address));
    return std::string(text);
  };
  EXPECT_EQ(seen({0x0f, 0x2b, 0x40, 0x04}), "movntps writes 16 1004");  // [rax+4]
  EXPECT_EQ(seen({0x0f, 0x28, 0x00}), "movaps reads 16 1000");          // [rax]
  EXPECT_EQ(seen({0x66, 0x41, 0x0f, 0x6f, 0x44, 0x8b, 0xf0}),
            "movdqa reads 16 13ff0");  // [r11 + rcx * 4 - 16]
  EXPECT_EQ(seen({0xc5, 0xfc, 0x29, 0x05, 0x10, 0, 0, 0}), "vmovaps writes 32 400018");    // ymm, [rip+16]
  EXPECT_EQ(seen({0xc5, 0xfd, 0xe7, 0x84, 0x24, 0, 1, 0, 0}), "vmovntdq writes 32 5100");  // [rsp+256]
  EXPECT_EQ(seen({0xc4, 0xc1, 0x79, 0x6f, 0x00}), "vmovdqa reads 16 9000");                // [r8]
  EXPECT_EQ(seen({0x62, 0xf1, 0x7c, 0x48, 0x2b, 0x40, 0x01}), "vmovntps writes 64 1040");  // zmm, [rax+64]
  EXPECT_EQ(seen({0x64, 0x0f, 0x28, 0x04, 0x25, 0x20, 0, 0, 0}), "movaps reads 16 70000020");  // fs:[0x20]
  EXPECT_EQ(seen({0x0f, 0x58, 0x03}), "an SSE instruction reads 16 4000");                     // addps [rbx]
  EXPECT_EQ(seen({0xc5, 0xfc, 0x10, 0x00}), "-") << "vmovups takes any address";
  EXPECT_EQ(seen({0xf3, 0x0f, 0x10, 0x00}), "-") << "a scalar";
  EXPECT_EQ(seen({0x0f, 0x28, 0xc1}), "-") << "registers";
  EXPECT_EQ(seen({0x90}), "-");
}

#ifdef CGP_PLANTED_BUG
TEST(memory_check, a_program_with_mistakes_is_caught_and_a_good_one_is_not) {
  if (find_program("valgrind").empty()) GTEST_SKIP() << "needs valgrind";
  const auto bad = check_memory({CGP_PLANTED_BUG}, "", 60);
  ASSERT_EQ(bad.errors.size(), 2u) << memory_text(bad);
  EXPECT_EQ(bad.errors[0].kind, "invalid write");
  EXPECT_EQ(bad.errors[0].count, 3u);
  ASSERT_FALSE(bad.errors[0].where.empty());
  EXPECT_THAT(bad.errors[0].where[0], HasSubstr("main"));
  EXPECT_EQ(bad.errors[1].kind, "leak");
  EXPECT_THAT(bad.errors[1].what, HasSubstr("77"));
  const auto good = check_memory({"/bin/true"}, "", 60);
  EXPECT_TRUE(good.errors.empty()) << memory_text(good);
  EXPECT_TRUE(good.process.ok());
  EXPECT_THAT(memory_text(good), HasSubstr("no errors"));
}
#endif
