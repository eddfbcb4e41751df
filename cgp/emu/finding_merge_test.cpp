// SPDX-License-Identifier: Apache-2.0
// One finding a cause, in the order of causes, with names; never-written values are reported where they come from.
#include <gmock/gmock.h>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
namespace {
using namespace testing;
using text::cat;

/// 32 threads; %o is the argument, %s a shared array of 4 bytes for each, %m a predicate that is never true.
Result run(const std::string& body, const std::string& name = "o", std::size_t bytes = 256,
           std::uint32_t threads = 32, bool written = true) {
  Bench b(header() + cat(".file 1 \"kernel.cu\"\n.visible .entry k(.param .u64 ", name,
                         ")\n{\n.reg .b64 %o, %x; .reg .b32 %r<9>, %t, %s; .reg .pred %p;\n"
                         ".shared .align 16 .b8 tile[1024];\nld.param.u64 %o, [",
                         name,
                         "]; mov.u32 %t, %tid.x; mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;\n"
                         "mul.wide.u32 %x, %t, 4; add.u64 %x, %x, %o;\n",
                         body, "\nret;\n}\n"));
  const std::uint64_t o = b.machine.alloc(bytes);
  if (written) b.machine.fill(o, 0, bytes);
  return b.run("k", {1, 1, 1}, {threads, 1, 1}, Params().add(o));
}

std::vector<std::string> classes(const Result& r) {
  std::vector<std::string> all;
  for (const Finding& f : r.findings) all.push_back(f.cls);
  return all;
}

const char* const kFour =
    "st.global.u32 [%o+1024], 1;\nst.global.u32 [%o+1028], 1;\nst.global.u32 [%o+1032], 1;\n"
    "st.global.u32 [%o+1036], 1;\n";

TEST(Causes, copies_of_an_unrolled_loop_are_one) {
  const Result r = run(kFour);
  ASSERT_EQ(classes(r), std::vector<std::string>{"oob.global"});
  EXPECT_EQ(r.findings[0].instructions, 4u);
  EXPECT_EQ(r.findings[0].count, 128u);
  EXPECT_THAT(describe(r.findings[0]), ::testing::HasSubstr("at 4 instructions"));
  // Behind a barrier it may be another one.
  EXPECT_EQ(run(cat(kFour, "bar.sync 0;\n", kFour)).findings.size(), 2u);
  EXPECT_EQ(run(cat(kFour, "ld.global.u32 %r1, [%o+2048];\n")).findings.size(), 2u);
}

TEST(Causes, a_cpp_line_is_one) {
  const auto lines = [](int second) {
    return run(cat(".loc 1 7 3\n", kFour, "bar.sync 0;\n.loc 1 ", second, " 3\n", kFour));
  };
  ASSERT_EQ(lines(7).findings.size(), 1u);
  EXPECT_EQ(lines(7).findings[0].instructions, 8u);
  EXPECT_EQ(lines(8).findings.size(), 2u);
}

TEST(Causes, come_before_what_follows_from_them) {
  // A stale flag: the race, the value that was never written, and the wait that never ends.
  const Result r =
      run("setp.eq.u32 %p, %t, 40; @%p st.shared.u32 [tile], 1;\nld.shared.u32 %r1, [tile+4]; st.global.u32 "
          "[%x], %r1;\n"
          "ld.shared.u32 %r2, [tile];\nW: ld.volatile.global.u32 %r2, [%o+508]; setp.ne.u32 %p, %r2, 99; @%p "
          "bra W;",
          "o", 512, 64);
  EXPECT_EQ(classes(r), (std::vector<std::string>{"race.shared", "uninit.shared", "deadlock"}));
  Finding note, error;
  note.severity = Severity::note;
  error.cls = "deadlock";
  EXPECT_TRUE(reported_before(error, note));
}

TEST(Origins, stay_with_the_value) {
  const Result r =
      run("ld.global.u32 %r1, [%x];\nadd.u32 %r2, %r1, 1; st.shared.u32 [%s], %r2;\nbar.warp.sync -1;\n"
          "ld.shared.u32 %r3, [%s]; mov.b32 %r4, %r3;\nst.global.u32 [%x+128], %r4;",
          "o", 256, 32, false);
  ASSERT_EQ(classes(r), std::vector<std::string>{"uninit.global"});
  const Finding& f = r.findings[0];
  EXPECT_EQ(f.instruction, "ld.global.u32 %r1, [%x];");
  ASSERT_TRUE(f.other);
  EXPECT_EQ(f.other->instruction, "st.global.u32 [%x+128], %r4;");
  EXPECT_THAT(f.message, ::testing::HasSubstr("is stored to global memory at PTX line"));
}

TEST(Names, of_buffers_are_those_of_arguments) {
  const char* store = "st.global.u32 [%o+1024], 1;";
  EXPECT_EQ(run(store, "scales").findings[0].buffer, "argument 0 (scales)");
  EXPECT_EQ(run(store, "k_param_0").findings[0].buffer, "argument 0");
  EXPECT_EQ(run(store, "p0").findings[0].buffer, "argument 0");
}

// Rows of A that were never written make rows of D that are not: only their use is an error.
TEST(Origins, go_through_a_product_by_rows) {
  const auto padded = [](int written, int used) {
    return run(
        cat(".reg .b64 %da, %db; .reg .f32 %f<4>; .reg .b32 %row, %w;\n.shared .align 1024 .b8 ab[2304];\n"
            "mov.u32 %r1, ab; mad.lo.u32 %r2, %t, 16, %r1; and.b32 %row, %t, 63;\n"
            "setp.lt.u32 %p, %row, ",
            written,
            "; @%p st.shared.v4.u32 [%r2], {0, 0, 0, 0};\n"
            "setp.lt.u32 %p, %t, 16; @%p st.shared.v4.u32 [%r2+2048], {0, 0, 0, 0};\n"
            "fence.proxy.async.shared::cta; bar.sync 0;\n"
            "shr.u32 %r3, %r1, 4; cvt.u64.u32 %da, %r3; add.u64 %db, %da, 128;\n"
            "or.b64 %da, %da, 0x800400000; or.b64 %db, %db, 0x800080000;\n"
            "wgmma.fence.sync.aligned; setp.ne.u32 %p, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %da, %db, %p, 1, 1, 0, "
            "0;\n"
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
            "shr.u32 %w, %t, 5; and.b32 %row, %t, 31; shr.u32 %row, %row, 2; mad.lo.u32 %row, %w, 16, %row;\n"
            "setp.lt.u32 %p, %row, ",
            used,
            "; @%p st.global.f32 [%x], %f0;\n"
            "add.u32 %row, %row, 8; setp.lt.u32 %p, %row, ",
            used, "; @%p st.global.f32 [%x], %f2;"),
        "o", 1024, 128);
  };
  EXPECT_EQ(classes(padded(64, 64)), std::vector<std::string>{});
  EXPECT_EQ(classes(padded(20, 20)), std::vector<std::string>{});
  const Result r = padded(20, 21);
  ASSERT_EQ(classes(r), std::vector<std::string>{"uninit.shared"});
  EXPECT_EQ(r.findings[0].buffer, "ab");
  EXPECT_THAT(r.findings[0].instruction, ::testing::HasSubstr("wgmma.mma_async"));
}

}  // namespace
}  // namespace cgp::emu
