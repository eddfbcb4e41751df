// SPDX-License-Identifier: Apache-2.0
// Costs of memory accesses: known by hand, and against the rules written out for single addresses.
#include <gtest/gtest.h>

#include "cgp/base/text.h"
#include "cgp/ptx/analysis/analyse.h"
#include "cgp/ptx/parse.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

/// The only access of a kernel whose address is `index` (in %r2) times `scale` bytes, from a pointer or
/// shared memory.
struct Access {
  Module module;
  Analysis analysis;
  Access(const std::string& index, const std::string& access, int scale = 4,
         std::array<std::uint32_t, 3> block = {128, 1, 1}, LaunchAssumptions a = {}) {
    module = parse(text::cat(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{\n"
        ".reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<16>;\n.reg .f32 %f<16>;\n"
        ".shared .align 128 .b8 s[32768];\n"
        "mov.u32 %r1, %tid.x;\nmov.u32 %r20, %tid.y;\nld.param.u32 %r9, [n];\nmov.u32 %r10, s;\n",
        index, "\nmul.lo.u32 %r3, %r2, ", scale,
        ";\nadd.u32 %r4, %r10, %r3;\nld.param.u64 %rd1, [a];\ncvta.to.global.u64 %rd2, %rd1;\nmul.wide.u32 "
        "%rd3, %r2, ",
        scale, ";\nadd.s64 %rd4, %rd2, %rd3;\n", access, "\nret;\n}\n"));
    a.block = block;
    analysis = analyse(module, module.functions[0], a);
  }
  const MemoryAccess& only() const {
    const auto& m = analysis.functions[0]->memory;
    if (m.size() != 1) throw Error(text::cat(m.size(), " accesses"));
    return m[0];
  }
  /// Sectors or conflicts of the first warp.
  int sectors() const { return only().warps ? int(only().warps->at(0).sectors) : -1; }
  int conflicts() const { return only().warps ? int(only().warps->at(0).banks.conflicts) : -1; }
  int passes() const { return only().warps ? int(only().warps->at(0).banks.passes) : -1; }
  bool has(Bug b) const {
    for (const BugReport& r : analysis.bugs)
      if (r.bug == b) return true;
    return false;
  }
};

constexpr const char* kTid = "mov.u32 %r2, %r1;";
constexpr const char* kLoad = "ld.global.f32 %f1, [%rd4];";
constexpr const char* kShared = "ld.shared.f32 %f1, [%r4];";

}  // namespace

TEST(coalescing, consecutive_strided_scattered) {
  EXPECT_EQ(Access(kTid, kLoad).sectors(), 4);
  EXPECT_EQ(Access(kTid, "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4];", 16).sectors(), 16);
  EXPECT_EQ(Access(kTid, "ld.global.u8 %h1, [%rd4];", 1).sectors(), 1);
  EXPECT_EQ(Access("shl.b32 %r2, %r1, 1;", kLoad).sectors(), 8);
  const Access wide("shl.b32 %r2, %r1, 5;", kLoad);  // 128 bytes apart: 32 sectors, 12.5 %
  EXPECT_EQ(wide.sectors(), 32);
  EXPECT_TRUE(wide.has(Bug::B12));
  EXPECT_FALSE(Access(kTid, kLoad).has(Bug::B12));
  EXPECT_EQ(Access("mov.u32 %r2, 7;", kLoad).sectors(), 1);  // one word for all
}

TEST(coalescing, unknown_is_never_a_number) {
  const Access by_n("mul.lo.u32 %r2, %r1, %r9;", kLoad);
  EXPECT_EQ(by_n.sectors(), -1);
  EXPECT_EQ(by_n.only().why, "the distance between lanes depends on n");
  const Access by_data(
      "ld.param.u64 %rd9, [a];\nmul.wide.u32 %rd10, %r1, 4;\nadd.s64 %rd9, %rd9, %rd10;\n"
      "mov.u32 %r2, %clock;",
      kLoad);
  EXPECT_EQ(by_data.only().why, "the address depends on %clock, which may differ in every lane");
  // A start that is only known to be a multiple of 4 bytes: 4 or 5 sectors.
  const Access off("add.u32 %r2, %r1, %r9;", kLoad);
  EXPECT_EQ(off.sectors(), -1);
  EXPECT_EQ(off.only().why, "depends on the alignment of n");
  EXPECT_EQ(off.only().least_sectors, 4u);
  EXPECT_EQ(off.only().most_sectors, 5u);
  // With the value of the parameter it is known.
  LaunchAssumptions with;
  with.parameters["n"] = 8;
  EXPECT_EQ(Access("add.u32 %r2, %r1, %r9;", kLoad, 4, {128, 1, 1}, with).sectors(), 4);
  EXPECT_EQ(Access("mul.lo.u32 %r2, %r1, %r9;", kLoad, 4, {128, 1, 1}, with).sectors(), 32);
  // Of one lane the start does not matter.
  EXPECT_EQ(
      Access("add.u32 %r2, %r1, %r9;\nsetp.eq.u32 %p1, %r1, 0;", "@%p1 ld.global.f32 %f1, [%rd4];").sectors(),
      1);
}

TEST(coalescing, offsets_and_pointer_alignment_count) {
  EXPECT_EQ(Access(kTid, "ld.global.f32 %f1, [%rd4+4];").sectors(), 5);
  EXPECT_EQ(Access(kTid, "ld.global.f32 %f1, [%rd4+32];").sectors(), 4);
  LaunchAssumptions loose;
  loose.pointer_alignment = 4;
  EXPECT_EQ(Access(kTid, kLoad, 4, {128, 1, 1}, loose).sectors(), -1);
  EXPECT_TRUE(Access(kTid, "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4+4];", 16).has(Bug::B19));
}

TEST(coalescing, rows_of_the_block) {
  // index = tid.x + n * tid.y: a row of 32 is one stretch, two rows of 16 have an unknown distance.
  const std::string row = "mad.lo.u32 %r2, %r20, %r9, %r1;";
  EXPECT_EQ(Access(row, kLoad, 4, {32, 4, 1}).only().why, "depends on the alignment of n");
  const Access rows(text::cat("shl.b32 %r9, %r9, 3;\n", row), kLoad, 4, {32, 4, 1});
  EXPECT_EQ(rows.sectors(), 4);
  EXPECT_EQ(Access(row, kLoad, 4, {16, 8, 1}).only().why, "the distance between lanes depends on n");
  // Rows at a known distance.
  EXPECT_EQ(Access("mad.lo.u32 %r2, %r20, 100, %r1;", kLoad, 4, {16, 8, 1}).sectors(), 5);
}

TEST(coalescing, known_conditions_choose_the_lanes) {
  const Access quarter("mov.u32 %r2, %r1;\nand.b32 %r5, %r1, 24;\nsetp.eq.u32 %p1, %r5, 8;",
                       "@%p1 ld.global.f32 %f1, [%rd4];");
  EXPECT_EQ(quarter.sectors(), 1);
  EXPECT_EQ(quarter.only().warps->at(0).lanes, 8u);
  EXPECT_TRUE(quarter.only().all_lanes);
  const Access first("mov.u32 %r2, %r1;\nsetp.lt.u32 %p1, %r1, 40;", "@%p1 ld.global.f32 %f1, [%rd4];");
  ASSERT_EQ(first.only().warps->size(), 2u);
  EXPECT_EQ(first.only().warps->at(1).lanes, 8u);
  const Access some("mov.u32 %r2, %r1;\nsetp.lt.u32 %p1, %r1, %r9;", "@%p1 ld.global.f32 %f1, [%rd4];");
  EXPECT_EQ(some.sectors(), 4);
  EXPECT_FALSE(some.only().all_lanes);
}

TEST(banks, columns_and_padding) {
  const Access column("shl.b32 %r2, %r1, 5;", kShared);  // [32][32] by column
  EXPECT_EQ(column.passes(), 32);
  EXPECT_EQ(column.conflicts(), 31);
  EXPECT_TRUE(column.has(Bug::B13));
  const Access padded("mul.lo.u32 %r2, %r1, 33;", kShared);
  EXPECT_EQ(padded.conflicts(), 0);
  EXPECT_FALSE(padded.has(Bug::B13));
  EXPECT_EQ(Access("shl.b32 %r2, %r1, 1;", kShared).passes(), 2);
  EXPECT_EQ(Access("mov.u32 %r2, 3;", kShared).passes(), 1);  // broadcast
  EXPECT_EQ(
      Access("shl.b32 %r5, %r1, 5;\nxor.b32 %r2, %r5, %r1;\nand.b32 %r2, %r2, 1023;", kShared).conflicts(),
      0);  // swizzle
  EXPECT_EQ(Access("shr.u32 %r2, %r1, 2;", kShared).passes(), 1);
  // A start that is not known turns the banks; the conflicts are the same.
  EXPECT_EQ(Access("mad.lo.u32 %r2, %r1, 32, %r9;", kShared).conflicts(), 31);
}

TEST(banks, groups_of_wide_accesses) {
  EXPECT_EQ(Access(kTid, "ld.shared.v2.f32 {%f1, %f2}, [%r4];", 8).passes(), 2);
  EXPECT_EQ(Access(kTid, "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r4];", 16).passes(), 4);
  EXPECT_EQ(Access(kTid, "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r4];", 16).conflicts(), 0);
  // Pairs of lanes that read one address: half the groups.
  EXPECT_EQ(Access("shr.u32 %r2, %r1, 1;", "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r4];", 16).passes(), 2);
  EXPECT_EQ(Access("shr.u32 %r2, %r1, 1;", "st.shared.v4.f32 [%r4], {%f1, %f2, %f3, %f4};", 16).passes(), 4);
  // Atomics on one word take turns.
  EXPECT_EQ(Access("mov.u32 %r2, 0;", "atom.shared.add.u32 %r7, [%r4], 1;").conflicts(), 31);
}

TEST(banks, matrices) {
  // Rows of 16 bytes, 128 bytes apart: every row begins in bank 0.
  const Access flat("mov.u32 %r2, %r1;",
                    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];", 128, {32, 1, 1});
  EXPECT_EQ(flat.passes(), 32);
  const Access padded("mov.u32 %r2, %r1;",
                      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];", 144,
                      {32, 1, 1});
  EXPECT_EQ(padded.passes(), 4);
}

// 8-bit and 16-bit accesses: several lanes in one word.
TEST(banks, small_elements_share_words) {
  EXPECT_EQ(Access(kTid, "ld.shared.u8 %h1, [%r4];", 1).passes(), 1);
  EXPECT_EQ(Access(kTid, "ld.shared.u16 %h1, [%r4];", 2).passes(), 1);
  EXPECT_EQ(Access(kTid, "ld.shared.u16 %h1, [%r4];", 128).passes(), 32);
}

TEST(rules, sectors_and_banks_of_addresses) {
  EXPECT_EQ(sectors_of({0, 31, 32, 40}, 1), 2u);
  EXPECT_EQ(sectors_of({28}, 8), 2u);
  EXPECT_EQ(banks_of({0, 128, 256, 4}, {0, 1, 2, 3}, AccessKind::load, 4).passes, 3u);
  EXPECT_EQ(banks_of({0, 0, 0}, {0, 5, 9}, AccessKind::atomic, 4).passes, 3u);
  EXPECT_EQ(banks_of({0, 0}, {0, 31}, AccessKind::store, 8).passes, 2u);
}
