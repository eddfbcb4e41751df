// SPDX-License-Identifier: Apache-2.0
// Handwritten PTX whose answers are known by hand: values and their scopes, divergence, barriers, registers,
// spaces. memory_test.cpp has the costs.
#include <gtest/gtest.h>

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/analysis/analyse.h"
#include "cgp/ptx/analysis/estimate.h"
#include "cgp/ptx/analysis/registers.h"
#include "cgp/ptx/parse.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

/// One kernel with pointers a and b, and a 32-bit n; analysed for a block shape.
struct Sample {
  Module module;
  Analysis analysis;

  explicit Sample(const std::string& body, std::array<std::uint32_t, 3> block = {128, 1, 1},
                  const std::string& before = "", const LaunchAssumptions& more = {}) {
    module = parse(text::cat(".version 8.0\n.target sm_90a\n.address_size 64\n", before,
                             ".visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)\n{\n"
                             ".reg .pred %p<16>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<32>;\n.reg .f32 %f<16>;\n"
                             ".shared .align 16 .b8 s[4096];\n",
                             body, "\n}\n"));
    LaunchAssumptions a = more;
    a.block = block;
    analysis = analyse(module, *module.find("k"), a);
  }
  const FunctionAnalysis& kernel() const { return *analysis.functions[0]; }
  /// What the last write of a register holds.
  Shape shape_of(const std::string& reg) const {
    const FunctionAnalysis& x = kernel();
    ValueId last = kNone;
    for (ValueId v = 0; v < x.ssa.values.size(); ++v)
      if (x.function->regs[x.ssa.values[v].reg].name == reg && x.ssa.values[v].kind == Value::Kind::inst)
        if (last == kNone || x.ssa.values[v].inst > x.ssa.values[last].inst) last = v;
    if (last == kNone) throw Error("nothing writes " + reg);
    return shape(*x.values, x.values->of(last));
  }
  std::string codes() const {  ///< of severity P0 and P1, in order
    std::string s;
    for (const BugReport& b : analysis.bugs)
      if (bug_class(b.bug).severity != Severity::P2)
        s += text::cat(s.empty() ? "" : " ", bug_class(b.bug).code.substr(4));
    return s;
  }
  bool has(Bug bug) const {
    return std::any_of(analysis.bugs.begin(), analysis.bugs.end(),
                       [&](const BugReport& b) { return b.bug == bug; });
  }
};

constexpr const char* kTid = "mov.u32 %r1, %tid.x;\n";

}  // namespace

// ---------------------------------------------------------------- values
TEST(values, affine_and_uniform) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nld.param.u32 %r4, [n];\n"
      "mad.lo.s32 %r5, %r2, %r3, %r1;\nld.param.u64 %rd1, [a];\ncvta.to.global.u64 %rd2, %rd1;\n"
      "mul.wide.s32 %rd3, %r5, 4;\nadd.s64 %rd4, %rd2, %rd3;\nshl.b32 %r6, %r2, 3;\nadd.s32 %r7, %r4, 1;\n"
      "and.b32 %r8, %r1, 31;\nshr.u32 %r9, %r1, 5;\nxor.b32 %r10, %r1, 5;\nmul.lo.s32 %r11, %r1, %r4;\n"
      "ld.global.u32 %r12, [%rd4];\nld.global.u32 %r13, [%rd2];\nst.global.u32 [%rd4], %r12;\nret;");
  EXPECT_EQ(s.shape_of("%rd4").kind, Shape::Kind::affine);
  EXPECT_EQ(s.shape_of("%rd4").text, "4*tid.x + 512*%ctaid.x + a");
  EXPECT_EQ(s.shape_of("%r6").scope, Scope::block);
  EXPECT_EQ(s.shape_of("%r7").scope, Scope::grid);
  EXPECT_EQ(s.shape_of("%r8").kind, Shape::Kind::function);  // the lane: not affine over four warps
  EXPECT_EQ(s.shape_of("%r9").kind, Shape::Kind::uniform);
  EXPECT_EQ(s.shape_of("%r9").scope, Scope::warp);
  EXPECT_EQ(s.shape_of("%r10").kind, Shape::Kind::function);
  EXPECT_EQ(s.shape_of("%r11").text, "(tid.x)*n");
  EXPECT_EQ(s.shape_of("%r12").kind, Shape::Kind::divergent);
  EXPECT_EQ(s.shape_of("%r13").scope, Scope::grid);  // one address
  EXPECT_EQ(s.codes(), "");
}

TEST(values, alignment_survives_masks_and_shifts) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nshl.b32 %r3, %r2, 8;\nadd.u32 %r4, %r3, %r1;\n"
      "and.b32 %r5, %r4, 255;\n"    // tid.x
      "shr.u32 %r6, %r4, 5;\n"      // warp + 8 * ctaid
      "or.b32 %r7, %r3, %r1;\n"     // as +
      "rem.u32 %r8, %r4, 16;\n"     // known
      "and.b32 %r9, %r4, -32;\n"    // without the lane
      "bfe.u32 %r10, %r4, 5, 3;\n"  // the warp
      "and.b32 %r11, %r4, 1023;\n"  // ctaid shows through
      "add.u32 %r12, %r5, %r6;\nadd.u32 %r12, %r12, %r7;\nadd.u32 %r12, %r12, %r8;\nadd.u32 %r12, %r12, "
      "%r9;\n"
      "add.u32 %r12, %r12, %r10;\nadd.u32 %r12, %r12, %r11;\nst.shared.u32 [s], %r12;\nret;",
      {256, 1, 1});
  EXPECT_EQ(s.shape_of("%r5").text, "tid.x");
  EXPECT_EQ(s.shape_of("%r6").scope, Scope::warp);
  EXPECT_EQ(s.shape_of("%r7").text, "tid.x + 256*%ctaid.x");
  EXPECT_EQ(s.shape_of("%r8").kind, Shape::Kind::function);
  EXPECT_EQ(s.shape_of("%r9").scope, Scope::warp);
  EXPECT_EQ(s.shape_of("%r10").scope, Scope::warp);
  EXPECT_EQ(s.shape_of("%r11").kind, Shape::Kind::divergent);  // unknown is never uniform
}

TEST(values, division_by_a_constant_as_compilers_write_it) {
  // tid / 7 by multiplication: known for every thread.
  const Sample s(
      "mov.u32 %r1, %tid.x;\nmul.hi.u32 %r2, %r1, 613566757;\nsub.u32 %r3, %r1, %r2;\nshr.u32 %r3, %r3, 1;\n"
      "add.u32 %r3, %r3, %r2;\nshr.u32 %r4, %r3, 2;\nst.shared.u32 [s], %r4;\nret;",
      {64, 1, 1});
  const FunctionAnalysis& x = s.kernel();
  const LinearForm f = x.values->operand(6, x.function->body[6].operands[1], 32);
  ASSERT_TRUE(f.known());
  for (std::size_t t = 0; t < 64; ++t) EXPECT_EQ(f.constant[t], std::int64_t(t / 7));
}

TEST(values, strided_loops_keep_their_step) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nld.param.u32 %r2, [n];\n"
      "LOOP: setp.ge.u32 %p1, %r1, %r2;\n@%p1 bra END;\n"
      "shl.b32 %r3, %r1, 2;\nst.shared.u32 [%r3], %r1;\nadd.u32 %r1, %r1, 128;\nbra LOOP;\nEND: add.u32 %r4, "
      "%r1, 1;\n"
      "st.shared.u32 [s], %r4;\nret;");
  EXPECT_EQ(s.shape_of("%r3").text, "4*tid.x + 512*%r1");  // %r1: the trips so far
  EXPECT_EQ(s.shape_of("%r3").kind, Shape::Kind::affine);
  // Threads leave the loop at different trips: behind it the counter is another number in each.
  EXPECT_EQ(s.shape_of("%r4").kind, Shape::Kind::divergent);
}

TEST(values, uniform_loops_stay_uniform_behind) {
  const Sample s(
      "ld.param.u32 %r2, [n];\nmov.u32 %r1, 0;\nLOOP: add.u32 %r1, %r1, 3;\nsetp.lt.u32 %p1, %r1, %r2;\n"
      "@%p1 bra LOOP;\nadd.u32 %r4, %r1, 1;\nst.shared.u32 [s], %r4;\nret;");
  EXPECT_EQ(s.shape_of("%r4").scope, Scope::grid);
  EXPECT_EQ(s.shape_of("%p1").scope, Scope::grid);
}

TEST(values, merges_under_divergent_branches_are_divergent) {
  const std::string body =
      "setp.lt.u32 %p1, %r1, %r9;\n@%p1 bra A;\nmov.u32 %r2, 5;\nbra J;\nA: mov.u32 %r2, 9;\n"
      "J: add.u32 %r3, %r2, 1;\nst.shared.u32 [s], %r3;\nret;";
  EXPECT_EQ(Sample("mov.u32 %r1, %tid.x;\nld.param.u32 %r9, [n];\n" + body).shape_of("%r3").kind,
            Shape::Kind::divergent);
  const Sample uniform("mov.u32 %r1, %ctaid.x;\nld.param.u32 %r9, [n];\n" + body);
  EXPECT_EQ(uniform.shape_of("%r3").scope, Scope::block);
  // The same number on both sides is no difference.
  const Sample same(
      "mov.u32 %r1, %tid.x;\nld.param.u32 %r9, [n];\nsetp.lt.u32 %p1, %r1, %r9;\n@%p1 bra A;\nmov.u32 %r2, "
      "5;\nbra "
      "J;\nA: mov.u32 %r2, 5;\nJ: add.u32 %r3, %r2, 1;\nst.shared.u32 [s], %r3;\nret;");
  EXPECT_EQ(same.shape_of("%r3").text, "6");
}

TEST(values, guards_are_selects) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 16;\nmov.u32 %r2, 3;\n@%p1 mov.u32 %r2, 8;\n"
      "ld.param.u32 %r5, [n];\nsetp.gt.u32 %p2, %r5, 7;\nmov.u32 %r3, 0;\n@%p2 mov.u32 %r3, 64;\n"
      "ld.global.u32 %r6, [%rd1];\nadd.u32 %r7, %r2, %r3;\nst.shared.u32 [s], %r7;\nret;");
  EXPECT_EQ(s.shape_of("%r2").kind, Shape::Kind::function);
  EXPECT_EQ(s.shape_of("%r3").scope, Scope::grid);
  EXPECT_EQ(s.shape_of("%r7").kind, Shape::Kind::function);
}

TEST(values, temporal_divergence_through_break) {
  // A uniform counter, but threads break out at different trips.
  const Sample s(
      "mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [a];\nmov.u32 %r2, 0;\n"
      "LOOP: mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r3, [%rd3];\n"
      "setp.eq.u32 %p1, %r3, %r2;\n@%p1 bra OUT;\nadd.u32 %r2, %r2, 1;\nadd.u32 %r8, %r2, 0;\n"
      "setp.lt.u32 %p2, %r2, 10;\n@%p2 bra LOOP;\nOUT: add.u32 %r4, %r2, 7;\nst.shared.u32 [s], %r4;\nret;");
  EXPECT_EQ(s.shape_of("%r8").kind, Shape::Kind::uniform);  // inside, the threads that are there agree
  EXPECT_EQ(s.shape_of("%r4").kind, Shape::Kind::divergent);
}

TEST(values, irreducible_flow_is_followed) {
  // Two entries into the loop A <-> B; the way in depends on the thread.
  const Sample s(
      "mov.u32 %r1, %tid.x;\nld.param.u32 %r2, [n];\nmov.u32 %r3, 0;\nsetp.lt.u32 %p1, %r1, %r2;\n@%p1 bra "
      "B;\n"
      "A: add.u32 %r3, %r3, 1;\nB: add.u32 %r3, %r3, 2;\nadd.u32 %r4, %r3, 0;\nsetp.lt.u32 %p2, %r3, 100;\n"
      "@%p2 bra A;\nst.shared.u32 [s], %r3;\nret;");
  EXPECT_EQ(s.shape_of("%r4").kind, Shape::Kind::divergent);
  const Sample t(
      "ld.param.u32 %r2, [n];\nmov.u32 %r3, 0;\nsetp.lt.u32 %p1, %r2, 7;\n@%p1 bra B;\n"
      "A: add.u32 %r3, %r3, 1;\nB: add.u32 %r3, %r3, 2;\nadd.u32 %r4, %r3, 0;\nsetp.lt.u32 %p2, %r3, 100;\n"
      "@%p2 bra A;\nst.shared.u32 [s], %r3;\nret;");
  EXPECT_EQ(t.shape_of("%r4").scope, Scope::grid);
}

TEST(values, a_loop_to_the_first_instruction) {
  const Sample s(
      "TOP: add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 10;\n@%p1 bra TOP;\nst.shared.u32 [s], %r1;\nret;");
  EXPECT_TRUE(s.has(Bug::B08) || s.has(Bug::B07));
}

TEST(values, calls_return_unknowns) {
  const Sample s(
      "mov.u32 %r1, 5;\n{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], %r1;\ncall.uni (y), f, "
      "(x);\nld.param.b32 "
      "%r2, [y];\n}\nadd.u32 %r3, %r2, 1;\nst.shared.u32 [s], %r3;\nret;",
      {128, 1, 1},
      ".func (.param .b32 o) f(.param .b32 i)\n{\n.reg .b32 %r<4>;\nld.param.b32 %r1, [i];\nadd.u32 %r2, "
      "%r1, 1;\n"
      "st.param.b32 [o], %r2;\nret;\n}\n");
  EXPECT_EQ(s.shape_of("%r3").kind, Shape::Kind::divergent);
  EXPECT_EQ(s.analysis.functions.size(), 2u);
}

TEST(values, warp_operations_agree) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [a];\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
      "ld.global.u32 %r2, [%rd3];\nshfl.sync.idx.b32 %r3, %r2, 0, 31, -1;\nshfl.sync.bfly.b32 %r4, %r2, 1, "
      "31, -1;\n"
      "setp.gt.u32 %p1, %r2, 5;\nvote.sync.any.pred %p2, %p1, -1;\nvote.sync.ballot.b32 %r5, %p1, 65535;\n"
      "redux.sync.add.u32 %r6, %r2, -1;\nadd.u32 %r7, %r3, %r4;\nadd.u32 %r7, %r7, %r6;\nadd.u32 %r7, %r7, "
      "%r5;\n"
      "@%p2 st.global.u32 [%rd3], %r7;\nret;");
  EXPECT_EQ(s.shape_of("%r3").scope, Scope::warp);
  EXPECT_EQ(s.shape_of("%r4").scope, Scope::thread);
  EXPECT_EQ(s.shape_of("%p2").scope, Scope::warp);
  EXPECT_EQ(s.shape_of("%r5").scope, Scope::thread);
  EXPECT_EQ(s.shape_of("%r6").scope, Scope::warp);
}

TEST(values, block_shapes_make_rows) {
  const std::string body =
      "mov.u32 %r1, %tid.y;\nmov.u32 %r2, %tid.x;\nadd.u32 %r3, %r1, %r2;\nst.shared.u32 [s], %r3;\nret;";
  EXPECT_EQ(Sample(body, {32, 4, 1}).shape_of("%r1").scope, Scope::warp);
  EXPECT_EQ(Sample(body, {16, 8, 1}).shape_of("%r1").kind, Shape::Kind::affine);
  EXPECT_EQ(Sample(body, {16, 8, 1}).shape_of("%r3").text, "tid.x + tid.y");
  EXPECT_THROW(Sample(body, {2048, 1, 1}), ArgumentError);
}

// ---------------------------------------------------------------- branches
TEST(branches, half_a_warp_is_half_efficient) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nsetp.ge.u32 %p1, %r1, 16;\n@%p1 bra E;\nadd.u32 %r2, %r1, 1;\nst.shared.u32 "
      "[s], %r2;\nE: "
      "ret;",
      {32, 1, 1});
  ASSERT_EQ(s.kernel().branches.size(), 1u);
  ASSERT_TRUE(s.kernel().branches[0].efficiency);
  EXPECT_DOUBLE_EQ(*s.kernel().branches[0].efficiency, 0.5);
  EXPECT_TRUE(s.has(Bug::B14));
}

TEST(branches, odd_lanes_split_every_warp_and_whole_warps_none) {
  const std::string rest =
      "@%p1 bra O;\nadd.u32 %r3, %r1, 1;\nbra J;\nO: add.u32 %r3, %r1, 2;\nadd.u32 %r3, %r3, 3;\nJ: "
      "st.shared.u32 [s], "
      "%r3;\nret;";
  const Sample odd("mov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 1;\nsetp.eq.u32 %p1, %r2, 1;\n" + rest);
  ASSERT_EQ(odd.kernel().branches.size(), 1u);
  EXPECT_EQ(odd.kernel().branches[0].warps, 4u);
  EXPECT_DOUBLE_EQ(*odd.kernel().branches[0].efficiency, 0.5);
  const Sample warps("mov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 5;\nsetp.eq.u32 %p1, %r2, 1;\n" + rest);
  EXPECT_TRUE(warps.kernel().branches.empty());
}

TEST(branches, one_thread_that_issues_is_elected) {
  const auto body = [](const std::string& condition, const std::string& work) {
    return condition + "@!%p1 bra E;\n" + work + "E: ret;";
  };
  const std::string first = "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n",
                    half = "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 16;\n",
                    issue = "mov.u32 %r2, s;\nmbarrier.init.shared.b64 [%r2], 1;\n",
                    plain = "add.u32 %r2, %r1, 1;\nst.shared.u32 [s], %r2;\n";
  const Sample one(body(first, issue), {64, 1, 1});
  ASSERT_EQ(one.kernel().branches.size(), 1u);
  EXPECT_TRUE(one.kernel().branches[0].elected);
  EXPECT_FALSE(one.has(Bug::B14));
  EXPECT_TRUE(Sample(body(first, plain), {64, 1, 1}).has(Bug::B14))
      << "any other work of one thread is divergence";
  EXPECT_TRUE(Sample(body(half, issue), {64, 1, 1}).has(Bug::B14)) << "16 threads issue";
}

TEST(branches, data_makes_no_number) {
  const Sample s(
      "mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [a];\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
      "ld.global.u32 %r2, [%rd3];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra E;\nst.global.u32 [%rd3], %r1;\nE: "
      "ret;");
  ASSERT_EQ(s.kernel().branches.size(), 1u);
  EXPECT_FALSE(s.kernel().branches[0].efficiency);
  EXPECT_EQ(s.kernel().branches[0].condition, "ld of line 15");
}

// ---------------------------------------------------------------- barriers
TEST(barriers, uniform_control_is_safe) {
  const Sample s(
      "ld.param.u32 %r2, [n];\nmov.u32 %r1, 0;\nLOOP: bar.sync 0;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, "
      "%r1, %r2;\n"
      "@%p1 bra LOOP;\nmov.u32 %r3, %ctaid.x;\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra E;\nbarrier.sync 0;\nE: "
      "bar.sync 0;\nret;");
  ASSERT_EQ(s.kernel().collectives.size(), 3u);
  for (const Collective& c : s.kernel().collectives) EXPECT_EQ(c.verdict, Verdict::safe) << c.why;
  EXPECT_EQ(s.codes(), "");
}

TEST(barriers, divergent_branch) {
  const Sample s(text::cat(
      kTid, "setp.ge.u32 %p1, %r1, 64;\n@%p1 bra E;\nbar.sync 0;\nE: st.shared.u32 [s], %r1;\nret;"));
  EXPECT_EQ(s.codes(), "B01");
  EXPECT_NE(s.analysis.bugs[0].why.find("64 of 128 threads come (not thread 64)"), std::string::npos);
  // All 64 of a smaller block come: nothing is wrong there.
  EXPECT_EQ(
      Sample(
          text::cat(kTid,
                    "setp.ge.u32 %p1, %r1, 64;\n@%p1 bra E;\nbar.sync 0;\nE: st.shared.u32 [s], %r1;\nret;"),
          {64, 1, 1})
          .codes(),
      "");
}

TEST(barriers, unknown_is_never_ok) {
  const std::string load =
      "mov.u32 %r1, %tid.x;\nld.param.u64 %rd1, [a];\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
      "ld.global.u32 %r2, [%rd3];\nsetp.eq.u32 %p1, %r2, 0;\n";
  EXPECT_EQ(Sample(load + "@%p1 bra E;\nbar.sync 0;\nE: ret;").codes(), "B02");
  EXPECT_EQ(Sample(load + "@%p1 bar.sync 0;\nret;").codes(), "B02");
  EXPECT_EQ(Sample(load + "L: bar.sync 0;\n@%p1 bra L;\nret;").codes(), "B02");
  EXPECT_EQ(Sample(load + "@%p1 ret;\nbar.sync 0;\nret;").codes(), "B02");
  // One value for the whole block is fine.
  EXPECT_EQ(Sample("ld.param.u64 %rd1, [a];\nld.global.u32 %r2, [%rd1];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra "
                   "E;\nbar.sync "
                   "0;\nE: ret;")
                .codes(),
            "");
}

TEST(barriers, early_exit) {
  const Sample s(text::cat(kTid,
                           "setp.ge.u32 %p1, %r1, 100;\n@%p1 bra END;\nst.shared.u32 [s], %r1;\nbar.sync 0;\n"
                           "ld.shared.u32 %r2, [s];\nst.shared.u32 [s+4], %r2;\nEND: ret;"));
  EXPECT_TRUE(s.has(Bug::B03));
  EXPECT_TRUE(
      Sample(text::cat(kTid, "setp.ge.u32 %p1, %r1, 100;\n@%p1 exit;\nbar.sync 0;\nret;")).has(Bug::B03));
}

// layernorm_shared of ANA-15: threads from 128 on skip bar.sync 1, and everyone meets at bar.sync 2.
TEST(barriers, skipped_named_barrier) {
  const Sample s(
      text::cat(kTid,
                "setp.ge.u32 %p1, %r1, 128;\n@%p1 bra SKIP;\nst.shared.u32 [s], %r1;\nbar.sync 1;\nSKIP: "
                "bar.sync 2;\nret;"),
      {256, 1, 1});
  EXPECT_EQ(s.codes(), "B01");
  EXPECT_EQ(s.analysis.bugs[0].ptx_line, 15u);
}

// softmax_warp of ANA-15: lanes from `length` on have left, the shuffle names all 32.
TEST(barriers, full_mask_shuffle_after_partial_exit) {
  const Sample known(
      text::cat(kTid,
                "setp.ge.u32 %p1, %r1, 20;\n@%p1 bra END;\nshfl.sync.down.b32 %r2, %r1, 16, 31, -1;\n"
                "st.shared.u32 [s], %r2;\nEND: ret;"),
      {32, 1, 1});
  EXPECT_EQ(known.codes(), "B05");
  const Sample unknown(
      text::cat(kTid,
                "ld.param.u32 %r3, [n];\nsetp.ge.u32 %p1, %r1, %r3;\n@%p1 bra END;\n"
                "shfl.sync.down.b32 %r2, %r1, 16, 31, -1;\nst.shared.u32 [s], %r2;\nEND: ret;"),
      {32, 1, 1});
  EXPECT_EQ(unknown.codes(), "B06");
  // rmsnorm of ANA-15: an early exit and no barrier is nothing to report.
  const Sample none(text::cat(kTid,
                              "ld.param.u32 %r3, [n];\nsetp.ge.u32 %p1, %r1, %r3;\n@%p1 bra END;\n"
                              "st.shared.u32 [s], %r1;\nEND: ret;"));
  EXPECT_EQ(none.codes(), "");
}

TEST(barriers, two_sides_of_whole_warps_meet) {
  const auto split = [](int at) {
    return Sample(text::cat(kTid, "setp.lt.u32 %p1, %r1, ", at,
                            ";\n@%p1 bra A;\nbar.sync 0;\nbra E;\nA: bar.sync 0;\nE: "
                            "ret;"));
  };
  EXPECT_EQ(split(64).codes(), "");
  EXPECT_EQ(split(48).codes(), "B01 B01");  // warp 1 is torn
}

TEST(barriers, counts) {
  const auto roles = [](int count, int last) {
    return Sample(text::cat(kTid, "setp.lt.u32 %p1, %r1, 64;\n@%p1 bra A;\nsetp.ge.u32 %p2, %r1, ", last,
                            ";\n@%p2 bra E;\nbar.arrive 1, ", count, ";\nbra E;\nA: bar.sync 1, ", count,
                            ";\nE: ret;"))
        .codes();
  };
  EXPECT_EQ(roles(128, 128), "");
  EXPECT_EQ(roles(96, 96), "");
  EXPECT_EQ(roles(128, 96), "B04 B04");
  EXPECT_EQ(roles(64, 128), "B02 B02");  // more may come than it waits for
  EXPECT_EQ(Sample("bar.sync 1, 96;\nret;", {64, 1, 1}).codes(), "B04");
  // A barrier for each warpgroup: its number is known for every thread.
  const std::string own = text::cat(kTid, "shr.u32 %r2, %r1, 7;\nadd.u32 %r2, %r2, 1;\nbar.sync %r2, ");
  EXPECT_EQ(Sample(own + "128;\nret;", {256, 1, 1}).codes(), "");
  EXPECT_EQ(Sample(own + "256;\nret;", {256, 1, 1}).codes(), "B04");
  EXPECT_EQ(Sample("ld.param.u32 %r1, [n];\nbar.sync %r1, 64;\nret;", {64, 1, 1}).codes(), "B02");
}

TEST(barriers, masks) {
  EXPECT_EQ(Sample(text::cat(kTid, "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra E;\nbar.warp.sync 65535;\nE: ret;"),
                   {32, 1, 1})
                .codes(),
            "");
  EXPECT_EQ(Sample(text::cat(kTid, "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra E;\nbar.warp.sync 255;\nE: ret;"),
                   {32, 1, 1})
                .codes(),
            "B05");
  EXPECT_EQ(Sample("bar.warp.sync -1;\nret;").codes(), "");
}

TEST(barriers, aligned_instructions_need_whole_warps) {
  const std::string load =
      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [s];\nst.shared.u32 [s+64], %r2;\n";
  EXPECT_EQ(Sample(load + "ret;").codes(), "");
  EXPECT_TRUE(
      Sample(text::cat(kTid, "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra E;\n", load, "E: ret;")).has(Bug::B05));
  EXPECT_FALSE(
      Sample(text::cat(kTid, "setp.lt.u32 %p1, %r1, 32;\n@!%p1 bra E;\n", load, "E: ret;")).has(Bug::B05));
}

TEST(barriers, cluster_barriers_need_every_block) {
  EXPECT_EQ(Sample("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nret;").codes(), "");
  EXPECT_EQ(Sample("mov.u32 %r1, %cluster_ctarank;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra E;\n"
                   "barrier.cluster.arrive.aligned;\nE: ret;")
                .codes(),
            "B02");
}

TEST(barriers, in_functions_count_where_they_are_called) {
  const std::string f = ".func f()\n{\nbar.sync 0;\nret;\n}\n";
  EXPECT_EQ(Sample("call.uni f;\nret;", {128, 1, 1}, f).codes(), "");
  const std::string load = "mov.u32 %r1, %tid.x;\nld.param.u32 %r2, [n];\nsetp.lt.u32 %p1, %r1, %r2;\n";
  EXPECT_EQ(Sample(load + "@%p1 bra E;\ncall.uni f;\nE: ret;", {128, 1, 1}, f).codes(), "B02");
}

TEST(barriers, behind_an_endless_loop) {
  const Sample s(
      text::cat(kTid,
                "ld.param.u32 %r3, [n];\nsetp.lt.u32 %p1, %r1, %r3;\n@%p1 bra DONE;\nL: bar.sync 0;\nbra L;\n"
                "DONE: ret;"));
  EXPECT_EQ(s.codes(), "B02");
}

// ---------------------------------------------------------------- registers
TEST(registers, uninitialised) {
  EXPECT_EQ(Sample("add.u32 %r2, %r1, 1;\nst.shared.u32 [s], %r2;\nret;").codes(), "B07");
  const Sample path(
      text::cat("ld.param.u32 %r3, [n];\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 bra J;\nmov.u32 %r2, 1;\nJ: "
                "st.shared.u32 [s], %r2;\nret;"));
  EXPECT_EQ(path.codes(), "B08");
  EXPECT_EQ(path.analysis.bugs[0].why, "%r2 is not written on some path");
  // A structure is passed with its padding; a number that is passed has to be one.
  const auto passed = [](const std::string& store) {
    return Sample(text::cat(".reg .b16 %rs<4>;\nmov.b16 %rs0, 1;\n{\n.param .align 4 .b8 p[8];\n", store,
                            "\ncall f, (p);\n}\nret;"),
                  {128, 1, 1}, ".func f(.param .align 4 .b8 i[8])\n{\nret;\n}\n")
        .codes();
  };
  EXPECT_EQ(passed("st.param.v4.b8 [p+4], {%rs0, %rs1, %rs2, %rs3};"), "");
  EXPECT_EQ(passed("st.param.b32 [p], %r1;"), "B07");
  // A selection passes on what it takes, like a move: parts of structures and unions come by it.
  const std::string choose = "ld.param.u32 %r3, [n];\nsetp.eq.u32 %p1, %r3, 0;\nselp.b32 %r4, %r1, ";
  EXPECT_EQ(Sample(choose + "%r3, %p1;\nst.shared.u32 [s], %r4;\nret;").codes(), "B08");
  EXPECT_EQ(Sample(choose + "%r2, %p1;\nst.shared.u32 [s], %r4;\nret;").codes(), "B07");
  // Places of one block with one reason are one report.
  const Sample both(
      "ld.param.u32 %r3, [n];\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 bra J;\nmov.u32 %r2, 1;\nmov.u32 %r4, 1;\n"
      "J: st.shared.u32 [s], %r2;\nst.shared.u32 [s+4], %r4;\nret;");
  EXPECT_EQ(both.codes(), "B08");
  EXPECT_EQ(both.analysis.bugs[0].why,
            "%r2 is not written on some path; the same in 1 more place of the block");
  // Both sides write it.
  EXPECT_EQ(Sample("ld.param.u32 %r3, [n];\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 bra A;\nmov.u32 %r2, 1;\nbra "
                   "J;\nA: mov.u32 "
                   "%r2, 2;\nJ: st.shared.u32 [s], %r2;\nret;")
                .codes(),
            "");
}

TEST(registers, guards) {
  const std::string p = "ld.param.u32 %r3, [n];\nsetp.eq.u32 %p1, %r3, 0;\n@%p1 mov.u32 %r2, 1;\n";
  EXPECT_EQ(Sample(p + "@%p1 st.shared.u32 [s], %r2;\nret;").codes(), "");
  EXPECT_EQ(Sample(p + "@!%p1 st.shared.u32 [s], %r2;\nret;").codes(), "B08");
  EXPECT_EQ(Sample(p + "st.shared.u32 [s], %r2;\nret;").codes(), "B08");
  EXPECT_EQ(Sample(p + "@!%p1 mov.u32 %r2, 2;\n@%p1 st.shared.u32 [s], %r2;\nret;").has(Bug::B07), false);
}

TEST(registers, a_loop_writes_after_it_reads) {
  EXPECT_EQ(Sample("mov.u32 %r1, 0;\nL: add.u32 %r3, %r2, 1;\nmov.u32 %r2, %r3;\nadd.u32 %r1, %r1, "
                   "1;\nsetp.lt.u32 %p1, %r1, "
                   "4;\n@%p1 bra L;\nst.shared.u32 [s], %r2;\nret;")
                .codes(),
            "B08");
}

TEST(registers, dead) {
  const Sample s(
      "mov.u32 %r1, 1;\nadd.u32 %r2, %r1, 1;\nadd.u32 %r3, %r2, 1;\nmov.u32 %r4, 4;\nst.shared.u32 [s], "
      "%r4;\nret;");
  const FunctionAnalysis& x = s.kernel();
  EXPECT_EQ(dead_instructions(*x.function, x.cfg, x.ssa), (std::vector<std::uint32_t>{0, 1, 2}));
  // A loop that only feeds itself is dead too, apart from its branch.
  const Sample loop(
      "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nL: add.u32 %r2, %r2, 5;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, "
      "%r1, "
      "4;\n@%p1 bra L;\nret;");
  const FunctionAnalysis& y = loop.kernel();
  EXPECT_EQ(dead_instructions(*y.function, y.cfg, y.ssa), (std::vector<std::uint32_t>{1, 2}));
}

// ---------------------------------------------------------------- spaces
TEST(spaces, generic_and_window_addresses) {
  // gemv_coalesced of ANA-14: cvta makes a generic address, ld.shared wants an offset.
  EXPECT_TRUE(
      Sample("mov.u64 %rd1, s;\ncvta.shared.u64 %rd2, %rd1;\nld.shared.u32 %r1, [%rd2];\nst.shared.u32 [s], "
             "%r1;\nret;")
          .has(Bug::B10));
  EXPECT_EQ(
      Sample("mov.u64 %rd1, s;\ncvta.shared.u64 %rd2, %rd1;\nadd.s64 %rd3, %rd2, 8;\nld.global.u32 %r1, "
             "[%rd3];\nst.shared.u32 [s], %r1;\nret;")
          .codes(),
      "B10");
  EXPECT_EQ(Sample("mov.u64 %rd1, s;\nld.u32 %r1, [%rd1];\nst.shared.u32 [s], %r1;\nret;").codes(), "B10");
  EXPECT_EQ(
      Sample("mov.u64 %rd1, s;\ncvta.shared.u64 %rd2, %rd1;\nld.u32 %r1, [%rd2+4];\ncvta.to.shared.u64 %rd3, "
             "%rd2;\nst.shared.u32 [%rd3], %r1;\nret;")
          .codes(),
      "");
  EXPECT_EQ(
      Sample("ld.param.u64 %rd1, [a];\nld.global.u32 %r1, [%rd1];\nld.u32 %r2, [%rd1];\nadd.u32 %r1, %r1, "
             "%r2;\nst.global.u32 [%rd1], %r1;\nret;")
          .codes(),
      "");
  EXPECT_EQ(Sample("mov.u64 %rd1, s;\ncvta.shared.u64 %rd2, %rd1;\ncvta.to.global.u64 %rd3, "
                   "%rd2;\nst.global.u32 [%rd3], "
                   "0;\nret;")
                .codes(),
            "B10");
}

// ---------------------------------------------------------------- races
TEST(races, write_then_read_needs_a_barrier) {
  const auto body = [](const char* between) {
    return text::cat(
        kTid, "mov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\n",
        between, "ld.shared.u32 %r5, [%r4+128];\nst.shared.u32 [%r4+2048], %r5;\nret;");
  };
  EXPECT_EQ(Sample(body("")).codes(), "B11");
  EXPECT_EQ(Sample(body("bar.sync 0;\n")).codes(), "");
  EXPECT_EQ(Sample(body("membar.cta;\n")).codes(), "B11");
  // A barrier on one side only.
  EXPECT_EQ(Sample(body("ld.param.u32 %r9, [n];\nsetp.eq.u32 %p1, %r9, 0;\n@%p1 bra S;\nbar.sync 0;\nS:\n"))
                .codes(),
            "B11");
  // Threads that read back their own word.
  EXPECT_EQ(
      Sample(text::cat(kTid,
                       "mov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r4, %r2, %r3;\nst.shared.u32 [%r4], "
                       "%r1;\nld.shared.u32 %r5, [%r4];\nst.shared.u32 [%r4+2048], %r5;\nret;"))
          .codes(),
      "");
}

// ---------------------------------------------------------------- launch and classes
TEST(launch, shape_against_directives) {
  const Module m = parse(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.reqntid 128, 1, "
      "1\n.reqnctapercluster 2, 1, "
      "1\n{\nret;\n}\n");
  LaunchAssumptions a;
  a.block = {256, 1, 1};
  EXPECT_EQ(analyse(m, m.functions[0], a).bugs.at(0).why, "a block of 256,1,1, the kernel requires 128,1,1");
  a.block = {128, 1, 1};
  a.grid = {{3, 1, 1}};
  EXPECT_EQ(analyse(m, m.functions[0], a).bugs.at(0).why,
            "a grid of 3,1,1 is no multiple of clusters of 2,1,1");
  a.grid = {{4, 1, 1}};
  EXPECT_TRUE(analyse(m, m.functions[0], a).bugs.empty());
  AnalysisLimits limits;
  limits.shared_bytes = 300000;
  EXPECT_EQ(analyse(m, m.functions[0], a, limits).bugs.at(0).bug, Bug::B15);
}

TEST(estimate, a_limit_below_what_is_live_spills) {
  std::string body = "ld.param.u64 %rd1, [a];\n";
  for (int i = 0; i < 48; ++i) body += text::cat("ld.global.f32 %f", i, ", [%rd1+", 4 * i, "];\n");
  for (int i = 1; i < 48; ++i) body += text::cat("fma.rn.f32 %f0, %f0, %f", i, ", %f", i, ";\n");
  const auto kernel = [&](const char* limit) {
    return parse(text::cat(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n", limit,
        "{\n.reg .b64 %rd<4>;\n.reg .f32 %f<48>;\n", body, "st.global.f32 [%rd1], %f0;\nret;\n}\n"));
  };
  const RegisterEstimate tight = estimate_registers(kernel(".maxnreg 32\n").functions[0]);
  EXPECT_EQ(tight.registers, 32);
  EXPECT_GT(tight.spilled, 0);
  const RegisterEstimate free = estimate_registers(kernel("").functions[0]);
  EXPECT_EQ(free.spilled, 0);
  EXPECT_GE(free.registers, 48);
}

TEST(bugs, codes_are_stable) {
  ASSERT_GE(bug_classes().size(), 16u);
  EXPECT_EQ(bug_class(Bug::B01).code, "ANA-B01");
  EXPECT_EQ(bug_class(Bug::B01).name, "barrier.divergent");
  EXPECT_EQ(bug_class(Bug::B13).severity, Severity::P2);
  EXPECT_EQ(parse_bug("ANA-B10"), Bug::B10);
  EXPECT_EQ(parse_bugs("B10, shared.race"), (std::vector<Bug>{Bug::B10, Bug::B11}));
  EXPECT_THROW(parse_bug("shared.rice"), ArgumentError);
  EXPECT_NE(bug_markdown().find("| ANA-B07 | P0 | `register.uninitialised` |"), std::string::npos);
}

TEST(bugs, the_documentation_has_the_table) {
  EXPECT_NE(read_file(CGP_ANALYSES_PAGE).find(bug_markdown()), std::string::npos)
      << "docs/analyses.md must end with\n"
      << bug_markdown();
}
