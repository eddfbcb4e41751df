// SPDX-License-Identifier: Apache-2.0
// What each pass does to a few lines, and what it must leave alone. That results stay the same is tested with
// random programs in tests/passes.
#include "cgp/ptx/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/cfg.h"
#include "cgp/ptx/loops.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/allocate.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"

namespace cgp::ptx {
namespace {

using testing::HasSubstr;
using testing::Not;

Module module_of(const std::string& body) {
  return parse(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global .align 16 "
      "a, "
      ".param .u64 b, .param .u32 n)\n{\n.reg .b32 %r<40>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<20>;\n"
      ".reg .pred %p<10>;\n.reg .b16 %h<10>;\n.shared .align 16 .b8 s[1024];\n" +
      body + "\n}\n");
}

/// The instructions after the passes, one a line, labels included.
std::string after(const std::string& body, std::string_view passes, PassStatistics* statistics = nullptr,
                  const PassOptions* options = nullptr) {
  Module m = module_of(body);
  const auto s = optimise(m, options ? *options : parse_passes(passes));
  if (statistics) *statistics = s;
  CheckOptions foreign;
  foreign.foreign = true;
  verify(m, foreign);
  const std::string text = print(m);
  return text.substr(text.find("b8 s[1024];\n") + 12);
}

constexpr std::string_view kStore = "st.global.u32 [%rd0], %r9;\nret;";
std::string with_store(const std::string& s) {
  return "ld.param.u64 %rd0, [a];\nld.param.u32 %r0, [n];\n" + s + "\n" + std::string(kStore);
}

TEST(Fold, ComputesWhatIsConstant) {
  EXPECT_THAT(after(with_store("mov.u32 %r1, 6;\nmul.lo.u32 %r9, %r1, 7;"), "fold"),
              HasSubstr("mov.b32 %r9, 42;"));
  EXPECT_THAT(after(with_store("mov.u32 %r1, -8;\nshr.s32 %r9, %r1, 40;"), "fold"),
              HasSubstr("mov.b32 %r9, 0xffffffff;"));
  EXPECT_THAT(after(with_store("mov.u32 %r1, 1;\nshl.b32 %r9, %r1, 32;"), "fold"),
              HasSubstr("mov.b32 %r9, 0;"));
  EXPECT_THAT(
      after(with_store("mov.f32 %f1, 0f3F800000;\nadd.f32 %f2, %f1, %f1;\nmov.b32 %r9, %f2;"), "fold"),
      HasSubstr("mov.b32 %r9, 0x40000000;"));
}
TEST(Fold, LeavesDivisionByZeroAndNanAlone) {
  EXPECT_THAT(after(with_store("mov.u32 %r1, 0;\ndiv.u32 %r9, %r0, %r1;"), "fold"),
              HasSubstr("div.u32 %r9, %r0, %r1;"));
  EXPECT_THAT(after(with_store("mov.u32 %r2, 5;\nmov.u32 %r1, 0;\ndiv.s32 %r9, %r2, %r1;"), "fold"),
              HasSubstr("div.s32"));
  EXPECT_THAT(after(with_store("mov.f32 %f1, 0f7FC00001;\nneg.f32 %f2, %f1;\nmov.b32 %r9, %f2;"), "fold"),
              HasSubstr("neg.f32"));
  EXPECT_THAT(
      after(with_store("mov.f32 %f1, 0f00000001;\nadd.ftz.f32 %f2, %f1, %f1;\nmov.b32 %r9, %f2;"), "fold"),
      HasSubstr("add.ftz.f32"));
}
TEST(Fold, MergesSumsIntoOffsets) {
  const std::string s = after(
      "ld.param.u64 %rd0, [a];\nadd.s64 %rd1, %rd0, 16;\nadd.s64 %rd2, %rd1, 8;\n"
      "st.global.u32 [%rd2+4], 1;\nret;",
      "fold");
  EXPECT_THAT(s, HasSubstr("st.global.u32 [%rd0+28], 1;"));
}
TEST(Fold, DecidesConstantBranches) {
  const std::string s = after(with_store("mov.u32 %r1, 3;\nsetp.lt.u32 %p1, %r1, 2;\nmov.u32 %r9, 1;\n"
                                         "@%p1 bra L;\nmov.u32 %r9, 2;\nL:"),
                              "fold,dead");
  EXPECT_THAT(s, Not(HasSubstr("bra")));
  EXPECT_THAT(s, HasSubstr("st.global.u32 [%rd0], 2;"));
}
TEST(Fold, DoesNotTouchGuardedDefinitions) {
  const std::string body = with_store(
      "setp.eq.u32 %p1, %r0, 4;\nmov.u32 %r1, 3;\n@%p1 mov.u32 %r1, 4;\n"
      "add.u32 %r9, %r1, 1;");
  EXPECT_THAT(after(body, "fold"), HasSubstr("add.u32 %r9, %r1, 1;"));
}

TEST(Fold, NeedsTheDefinitionOnEveryPath) {
  const std::string body = with_store(
      "setp.eq.u32 %p1, %r0, 4;\n@%p1 bra L;\nmov.u32 %r1, 3;\nL:\n"
      "add.u32 %r9, %r1, 1;");
  EXPECT_THAT(after(body, "fold"), HasSubstr("add.u32 %r9, %r1, 1;"));
}

TEST(Copy, ReadsTheOriginal) {
  EXPECT_THAT(after(with_store("mov.u32 %r1, %r0;\nadd.u32 %r9, %r1, 1;"), "copy"),
              HasSubstr("add.u32 %r9, %r0, 1;"));
}
TEST(Copy, StopsWhereTheOriginalChanges) {
  EXPECT_THAT(after(with_store("ld.global.u32 %r2, [%rd0];\nmov.u32 %r1, %r2;\nadd.u32 %r2, %r2, 5;\n"
                               "add.u32 %r9, %r1, %r2;"),
                    "copy"),
              HasSubstr("add.u32 %r9, %r1, %r2;"));
}

TEST(Cse, ComputesOnce) {
  const std::string s = after(
      with_store("add.u32 %r1, %r0, 1;\nadd.u32 %r2, 1, %r0;\nmul.lo.u32 %r9, %r1, %r2;"), "cse,copy,dead");
  EXPECT_THAT(s, HasSubstr("mul.lo.u32 %r9, %r1, %r1;"));
}
TEST(Cse, KeepsLoadsAcrossStoresAndBarriersApart) {
  const auto body = [](const std::string& between) {
    return "ld.param.u64 %rd0, [a];\nld.global.u32 %r1, [%rd0+64];\n" + between +
           "ld.global.u32 %r2, [%rd0+64];\nadd.u32 %r9, %r1, %r2;\nst.global.u32 [%rd0], %r9;\nret;";
  };
  EXPECT_THAT(after(body(""), "cse"), HasSubstr("mov.b32 %r2, %r1;"));
  for (const char* between : {"bar.sync 0;\n", "st.global.u32 [%rd0+4], 1;\n", "membar.gl;\n",
                              "atom.global.add.u32 %r5, [%rd0+8], 1;\n"})
    EXPECT_THAT(after(body(between), "cse"), Not(HasSubstr("mov.b32 %r2, %r1;"))) << between;
}
TEST(Cse, NeverMergesClocksOrVolatileLoads) {
  EXPECT_THAT(after(with_store("mov.u32 %r1, %clock;\nmov.u32 %r2, %clock;\nsub.u32 %r9, %r2, %r1;"), "all"),
              HasSubstr("sub.u32"));
  EXPECT_THAT(after(with_store("ld.volatile.global.u32 %r1, [%rd0];\nld.volatile.global.u32 %r2, [%rd0];\n"
                               "sub.u32 %r9, %r2, %r1;"),
                    "all"),
              HasSubstr("sub.u32"));
}
TEST(Cse, OneSideOfABranchDoesNotServeTheOther) {
  const std::string s = after(with_store("setp.eq.u32 %p1, %r0, 3;\n@%p1 bra E;\nadd.u32 %r1, %r0, 7;\n"
                                         "st.global.u32 [%rd0+4], %r1;\nbra J;\nE:\nadd.u32 %r2, %r0, 7;\n"
                                         "st.global.u32 [%rd0+8], %r2;\nJ:\nmov.u32 %r9, 0;"),
                              "cse");
  EXPECT_THAT(s, HasSubstr("add.u32 %r2, %r0, 7;"));
}

TEST(Strength, PowersOfTwo) {
  EXPECT_THAT(after(with_store("mul.lo.s32 %r9, %r0, 8;"), "strength"), HasSubstr("shl.b32 %r9, %r0, 3;"));
  EXPECT_THAT(after(with_store("div.u32 %r9, %r0, 8;"), "strength"), HasSubstr("shr.u32 %r9, %r0, 3;"));
  EXPECT_THAT(after(with_store("rem.u32 %r9, %r0, 8;"), "strength"), HasSubstr("and.b32 %r9, %r0, 7;"));
  const std::string s = after(with_store("div.s32 %r9, %r0, 8;"), "strength");
  EXPECT_THAT(s, Not(HasSubstr("div")));
  EXPECT_THAT(s, HasSubstr("shr.s32 %r40, %r0, 31;"));
  EXPECT_THAT(s, HasSubstr("shr.u32 %r41, %r40, 29;"));
  // The most negative number divides by no shift, and other numbers stay.
  EXPECT_THAT(after(with_store("div.s32 %r9, %r0, -2147483648;"), "strength"), HasSubstr("div.s32"));
  EXPECT_THAT(after(with_store("div.u32 %r9, %r0, 12;"), "strength"), HasSubstr("div.u32"));
}
TEST(Mad, ProductAndSumBecomeOne) {
  EXPECT_THAT(after(with_store("mul.lo.s32 %r1, %r0, 12;\nadd.s32 %r9, %r1, 5;"), "mad"),
              HasSubstr("mad.lo.s32 %r9, %r0, 12, 5;"));
  EXPECT_THAT(
      after(with_store("mul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd0, %rd0, %rd1;\nmov.u32 %r9, 1;"), "mad"),
      HasSubstr("mad.wide.u32 %rd0, %r0, 4, %rd0;"));
  // A product of two uses stays.
  EXPECT_THAT(
      after(with_store("mul.lo.s32 %r1, %r0, 12;\nadd.s32 %r2, %r1, 5;\nadd.s32 %r9, %r1, %r2;"), "mad"),
      HasSubstr("mul.lo.s32 %r1, %r0, 12;"));
}

TEST(Fma, OnlyByNameAndWhereRoundingPermits) {
  const std::string free = with_store(
      "cvt.rn.f32.u32 %f1, %r0;\nmul.f32 %f2, %f1, %f1;\nadd.f32 %f3, %f2, %f1;\nmov.b32 %r9, %f3;");
  EXPECT_THAT(after(free, "all"), HasSubstr("mul.f32"));
  EXPECT_THAT(after(free, "fma"), HasSubstr("fma.rn.f32 %f3, %f1, %f1, %f1;"));
  const std::string rounded = with_store(
      "cvt.rn.f32.u32 %f1, %r0;\nmul.rn.f32 %f2, %f1, %f1;\nadd.rn.f32 %f3, %f2, %f1;\nmov.b32 %r9, %f3;");
  EXPECT_THAT(after(rounded, "fma"), HasSubstr("mul.rn.f32"));
  PassOptions o = PassOptions::only(Pass::fma);
  o.fuse_rounded = true;
  EXPECT_THAT(after(rounded, "", nullptr, &o), HasSubstr("fma.rn.f32"));
}

TEST(Convert, ShortBranches) {
  const std::string s = after(with_store("setp.eq.u32 %p1, %r0, 3;\nmov.u32 %r9, 5;\n@%p1 bra J;\n"
                                         "add.u32 %r1, %r0, 7;\nmov.u32 %r9, %r1;\nJ:"),
                              "convert");
  EXPECT_THAT(s, Not(HasSubstr("bra")));
  EXPECT_THAT(s, HasSubstr("selp.b32 %r9, %r9, %r1, %p1;"));
  EXPECT_THAT(s, HasSubstr("\tadd.u32 %r1, %r0, 7;"));
}
TEST(Convert, BothSides) {
  const std::string s =
      after(with_store("setp.eq.u32 %p1, %r0, 3;\n@%p1 bra E;\nadd.u32 %r9, %r0, 7;\nbra J;\n"
                       "E:\nsub.u32 %r9, %r0, 7;\nJ:"),
            "convert");
  EXPECT_THAT(s, Not(HasSubstr("bra")));
  EXPECT_THAT(s, HasSubstr("@!%p1 add.u32 %r9, %r0, 7;"));
  EXPECT_THAT(s, HasSubstr("@%p1 sub.u32 %r9, %r0, 7;"));
}
TEST(Convert, NeverAroundMemoryBarriersOrWarpInstructions) {
  for (const char* inside : {"ld.global.u32 %r9, [%rd0];", "bar.sync 0;", "st.shared.u32 [s], %r0;",
                             "shfl.sync.idx.b32 %r9, %r0, 0, 31, -1;", "vote.sync.ballot.b32 %r9, %p1, -1;",
                             "mov.u32 %r9, %clock;", "membar.gl;"}) {
    const std::string s = after(
        with_store(text::cat("setp.eq.u32 %p1, %r0, 3;\nmov.u32 %r9, 5;\n@%p1 bra J;\n", inside, "\nJ:")),
        "convert");
    EXPECT_THAT(s, HasSubstr("@%p1 bra")) << inside;
  }
}

const char* kCounted =
    "mov.u32 %r1, 0;\nmov.u32 %r9, 0;\nL:\nadd.u32 %r9, %r9, %r0;\nadd.u32 %r1, %r1, 1;\n"
    "setp.lt.u32 %p1, %r1, 4;\n@%p1 bra L;";
TEST(Unroll, ConstantTrips) {
  PassStatistics s;
  const std::string text = after(with_store(kCounted), "unroll,split,fold,copy,dead", &s);
  EXPECT_EQ(s[Pass::unroll].changes, 1u);
  EXPECT_THAT(text, Not(HasSubstr("bra")));
  EXPECT_THAT(text, Not(HasSubstr("setp")));
  std::size_t adds = 0;
  for (std::size_t at = text.find("add.u32"); at != std::string::npos; at = text.find("add.u32", at + 1))
    ++adds;
  EXPECT_GE(adds, 3u);  // the first adds to a constant zero
  EXPECT_LE(adds, 4u);
}
TEST(Unroll, LeavesUnknownTripsCallsAndPragmas) {
  EXPECT_THAT(after(with_store("mov.u32 %r1, 0;\nmov.u32 %r9, 0;\nL:\nadd.u32 %r1, %r1, 1;\n"
                               "setp.lt.u32 %p1, %r1, %r0;\n@%p1 bra L;"),
                    "unroll"),
              HasSubstr("bra"));
  EXPECT_THAT(after(with_store("mov.u32 %r1, 0;\nmov.u32 %r9, 0;\nL:\n.pragma \"nounroll\";\n"
                               "add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 4;\n@%p1 bra L;"),
                    "unroll"),
              HasSubstr("bra"));
  // The start is known on one way into the loop only.
  EXPECT_THAT(after(with_store("mov.u32 %r1, 0;\nmov.u32 %r9, 0;\nsetp.eq.u32 %p2, %r0, 0;\n@%p2 bra L;\n"
                               "mov.u32 %r1, %r0;\nL:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 4;\n"
                               "@%p1 bra L;"),
                    "unroll"),
              HasSubstr("@%p1 bra"));
}

TEST(Hoist, MovesInvariantsInFrontOfTheLoop) {
  const std::string s =
      after(with_store("mov.u32 %r1, 0;\nmov.u32 %r9, 0;\nbra L;\nL:\nmul.lo.u32 %r2, %r0, 77;\n"
                       "add.u32 %r9, %r9, %r2;\nadd.u32 %r1, %r1, 1;\n"
                       "setp.lt.u32 %p1, %r1, %r0;\n@%p1 bra L;"),
            "hoist");
  EXPECT_LT(s.find("mul.lo.u32"), s.find("L:\n\tadd")) << s;
  EXPECT_THAT(s, HasSubstr("bra $new_0;"));  // who enters runs it, who comes back does not
  EXPECT_THAT(s, HasSubstr("@%p1 bra L;"));
}
TEST(Hoist, LeavesWhatTheLoopChangesAndLoads) {
  const std::string body = with_store(
      "mov.u32 %r1, 0;\nL:\nld.global.u32 %r9, [%rd0];\nmul.lo.u32 %r2, %r1, 77;\n"
      "st.global.u32 [%rd0], %r2;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, %r0;\n@%p1 bra L;");
  PassStatistics s;
  after(body, "hoist", &s);
  EXPECT_EQ(s.changes(), 0u);
}

TEST(Address, MultiplesBecomeSums) {
  const std::string s = after(
      with_store(
          "mov.u32 %r1, 0;\nL:\nsetp.ge.u32 %p1, %r1, %r0;\n@%p1 bra E;\nmad.wide.u32 %rd1, %r1, 12, %rd0;\n"
          "st.global.u32 [%rd1], 5;\nadd.u32 %r1, %r1, 1;\nbra L;\nE:\nmov.u32 %r9, 1;"),
      "address");
  EXPECT_THAT(s, HasSubstr("add.s64 %rd20, %rd20, 12;"));
  EXPECT_LT(s.find("mad.wide.u32 %rd20, %r1, 12, %rd0;"), s.find("L:\n"));
}
TEST(Address, NotWhereTheCounterMayWrap) {
  // A step of 2 below an unknown bound can pass 2^32.
  PassStatistics s;
  after(
      with_store(
          "mov.u32 %r1, 0;\nL:\nsetp.ge.u32 %p1, %r1, %r0;\n@%p1 bra E;\nmad.wide.u32 %rd1, %r1, 12, %rd0;\n"
          "st.global.u32 [%rd1], 5;\nadd.u32 %r1, %r1, 2;\nbra L;\nE:\nmov.u32 %r9, 1;"),
      "address", &s);
  EXPECT_EQ(s.changes(), 0u);
}

TEST(Vector, JoinsAlignedNeighbours) {
  EXPECT_THAT(
      after("ld.param.u64 %rd0, [a];\ncvta.to.global.u64 %rd1, %rd0;\nld.global.f32 %f0, [%rd1+16];\n"
            "ld.global.f32 %f1, [%rd1+20];\nld.global.f32 %f2, [%rd1+28];\nld.global.f32 %f3, [%rd1+24];\n"
            "ret;",
            "vector"),
      HasSubstr("ld.global.v4.f32 {%f0, %f1, %f3, %f2}, [%rd1+16];"));
  EXPECT_THAT(
      after("mov.u32 %r0, 1;\nmov.u32 %r1, 2;\nst.shared.u32 [s+8], %r0;\nst.shared.u32 [s+12], %r1;\nret;",
            "vector"),
      HasSubstr("st.shared.v2.u32 [s+8], {%r0, %r1};"));
}
TEST(Vector, NeedsProofOfAlignmentAndNothingBetween) {
  const auto two = [](const std::string& base, int offset, const std::string& between) {
    return text::cat("ld.param.u64 %rd0, [", base, "];\nld.global.u32 %r0, [%rd0+", offset, "];\n", between,
                     "ld.global.u32 %r1, [%rd0+", offset + 4, "];\nret;");
  };
  EXPECT_THAT(after(two("a", 8, ""), "vector"), HasSubstr(".v2"));
  EXPECT_THAT(after(two("a", 4, ""), "vector"), Not(HasSubstr(".v2")));
  EXPECT_THAT(after(two("b", 8, ""), "vector"), Not(HasSubstr(".v2")));  // says nothing of its alignment
  EXPECT_THAT(after(two("a", 8, "bar.sync 0;\n"), "vector"), Not(HasSubstr(".v2")));
  EXPECT_THAT(after(two("a", 8, "st.global.u32 [%rd0+12], 3;\n"), "vector"), Not(HasSubstr(".v2")));
  EXPECT_THAT(after(two("a", 8, "mov.u32 %r1, 3;\nst.global.u32 [%rd0+32], %r1;\n"), "vector"),
              Not(HasSubstr(".v2")));
}

TEST(Dead, DropsWhatNothingReads) {
  const std::string s =
      after(with_store("add.u32 %r1, %r0, 1;\nmov.u32 %r9, 3;\nmov.u32 %r9, 4;\nmov.u32 %r3, 0;\nL:\n"
                       "add.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r0, 5;\n@%p1 bra L;"),
            "dead");
  EXPECT_THAT(s, Not(HasSubstr("%r1,")));
  EXPECT_THAT(s, Not(HasSubstr("mov.u32 %r9, 3;")));
  EXPECT_THAT(s, Not(HasSubstr("%r3")));  // a counter that only counts itself
}
TEST(Dead, KeepsMemoryClocksAndEffects) {
  for (const char* kept : {"ld.global.u32 %r5, [%rd0];", "ld.volatile.shared.u32 %r5, [s];",
                           "mov.u32 %r5, %clock;", "shfl.sync.idx.b32 %r5, %r0, 0, 31, -1;",
                           "atom.global.add.u32 %r5, [%rd0], 1;", "bar.sync 0;", "activemask.b32 %r5;"})
    EXPECT_THAT(after(with_store(text::cat("mov.u32 %r9, 1;\n", kept)), "all"),
                HasSubstr(std::string(kept).substr(0, 8)))
        << kept;
}

TEST(Split, IndependentValuesPartWays) {
  const std::string s =
      after(with_store("add.u32 %r1, %r0, 1;\nst.global.u32 [%rd0+4], %r1;\nadd.u32 %r1, %r0, 2;\n"
                       "mov.u32 %r9, %r1;"),
            "split");
  EXPECT_THAT(s, HasSubstr("add.u32 %r40, %r0, 2;"));
  EXPECT_THAT(s, HasSubstr("mov.u32 %r9, %r40;"));
}
TEST(Split, PartialDefinitionsStayTogether) {
  PassStatistics s;
  after(with_store("setp.eq.u32 %p1, %r0, 1;\nmov.u32 %r9, 5;\n@%p1 mov.u32 %r9, 6;"), "split", &s);
  EXPECT_EQ(s.changes(), 0u);
}

TEST(Asynchronous, RegistersOfWgmmaAreNotTouched) {
  Module m = parse(R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<2>;
ld.param.u64 %rd0, [a];
mov.f32 %f0, 0f00000000;
mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
mov.b64 %rd1, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mov.f32 %f4, %f0;
st.global.f32 [%rd0], %f4;
ret;
})");
  optimise(m, PassOptions::all());
  const std::string s = print(m);
  EXPECT_THAT(s, HasSubstr("mov.f32 %f1, %f0;"));
  EXPECT_THAT(s, HasSubstr("{%f0, %f1, %f2, %f3}"));
  EXPECT_THAT(s, HasSubstr("mov.f32 %f4, %f0;"));
}

TEST(Locations, EveryInstructionKeepsItsLine) {
  Module m = parse(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b32 %r<8>; .reg .b64 %rd<4>;
.loc 1 10 0
ld.param.u64 %rd0, [a];
.loc 1 11 0
mov.u32 %r0, 5;
add.u32 %r1, %r0, 1;
.loc 1 12 0
mov.u32 %r2, 7;
st.global.u32 [%rd0], %r1;
ret;
}
.file 1 "k.cu")");
  optimise(m, parse_passes("fold,dead"));
  const Function& f = m.functions[0];
  ASSERT_EQ(f.body.size(), 3u);
  EXPECT_EQ(m.locs[f.body[1].loc].line, 12);
  EXPECT_EQ(m.locs[f.body[0].loc].line, 10);
}

TEST(Options, Names) {
  EXPECT_EQ(name(parse_passes("all")), name(PassOptions::all()));
  EXPECT_FALSE(parse_passes("all").has(Pass::fma));
  EXPECT_TRUE(parse_passes("all,fma").has(Pass::fma));
  EXPECT_FALSE(parse_passes("all,-hoist").has(Pass::hoist));
  EXPECT_EQ(name(parse_passes("none")), "none");
  EXPECT_EQ(name(parse_passes("fold, dead")), "fold,dead");
  try {
    parse_passes("fodl");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean fold?"));
  }
}

TEST(Loops, NestAndKnowTheirExits) {
  const Module m = module_of(
      "mov.u32 %r1, 0;\nA:\nmov.u32 %r2, 0;\nB:\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 3;\n@%p1 bra "
      "B;\n"
      "add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 3;\n@%p1 bra A;\nret;");
  const Cfg c = build_cfg(m.functions[0]);
  const LoopForest f = find_loops(c);
  ASSERT_EQ(f.loops.size(), 2u);
  EXPECT_EQ(f.loops[0].depth, 1);
  EXPECT_EQ(f.loops[1].depth, 2);
  EXPECT_EQ(f.loops[1].parent, 0u);
  EXPECT_EQ(f.loops[1].blocks.size(), 1u);
  EXPECT_EQ(f.loops[0].exits.size(), 1u);
  EXPECT_EQ(f.innermost[c.block_of[2]], 1u);
  EXPECT_EQ(f.innermost[c.block_of[6]], 0u);
  EXPECT_EQ(f.innermost[c.block_of[0]], kNone);
}

// ---------------------------------------------------------------- allocation
Module sum_of(int n) {  // n values are live at once
  std::string s = "ld.param.u64 %rd0, [a];\n";
  for (int k = 0; k < n; ++k) s += text::cat("ld.global.u32 %r", k, ", [%rd0+", 4 * k, "];\n");
  for (int k = 1; k < n; ++k) s += text::cat("add.u32 %r0, %r0, %r", k, ";\n");
  return module_of(s + "st.global.u32 [%rd0], %r0;\nret;");
}
TEST(Allocate, CountsWhatIsLiveAtOnce) {
  const Module m = sum_of(20);
  const Allocation a = allocate(m.functions[0]);
  EXPECT_TRUE(a.spills.empty());
  EXPECT_EQ(a.used, 22);  // twenty and the address
  EXPECT_EQ(a.limit, 255);
  for (const Inst& i : m.functions[0].body)
    if (i.op == Op::ld && i.operands[1].reg != kNone) {
      EXPECT_NE(a.home[i.operands[0].reg] / 2, a.home[i.operands[1].reg] / 2);
    }
}
TEST(Allocate, SpillsTheFurthestNextUse) {
  const Module m = sum_of(20);
  const Allocation a = allocate(m.functions[0], 16);
  EXPECT_LE(a.used, 16);
  EXPECT_GE(a.spills.size(), 6u);
  EXPECT_LE(a.spills.size(), 8u);
  // The address is needed by the next load, and %r0 first of all: neither goes.
  for (const Spill& s : a.spills) EXPECT_NE(m.functions[0].regs[s.reg].name, "%r0");
  EXPECT_EQ(a.spill_words(), int(a.spills.size()));
  EXPECT_GE(a.spill_loads(), int(a.spills.size()));
  EXPECT_THAT(describe(m, m.functions[0], a), HasSubstr("use smaller tiles, fewer elements per thread"));
}
TEST(Allocate, NoTwoLiveValuesShareARegister) {
  const Module m = module_of(
      "ld.param.u64 %rd0, [a];\nld.param.u32 %r0, [n];\nmov.u32 %r1, 0;\nmov.u32 %r2, 1;\nL:\n"
      "add.u32 %r3, %r1, %r2;\nmov.u32 %r1, %r2;\nmov.u32 %r2, %r3;\nadd.s64 %rd1, %rd0, 8;\n"
      "st.global.u32 [%rd1], %r3;\nsetp.lt.u32 %p0, %r3, %r0;\n@%p0 bra L;\nret;");
  const Function& f = m.functions[0];
  const Allocation a = allocate(f);
  const auto home = [&](const char* name) {
    for (RegId r = 0; r < f.regs.size(); ++r)
      if (f.regs[r].name == name) return a.home[r];
    return -2;
  };
  // Around the loop %rd0, %r0, %r1 and %r2 are all live.
  const int pair = home("%rd0");
  EXPECT_EQ(pair % 2, 0);
  std::vector<int> taken{pair, pair + 1, home("%r0"), home("%r1"), home("%r2")};
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(std::unique(taken.begin(), taken.end()), taken.end());
  EXPECT_EQ(a.predicates, 1);
}

}  // namespace
}  // namespace cgp::ptx
