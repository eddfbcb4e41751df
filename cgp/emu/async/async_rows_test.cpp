// SPDX-License-Identifier: Apache-2.0
// async.register: accumulators and A registers of wgmma touched between issue and wait, and the missing
// fence.
#include "cgp/emu/policy.h"
#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;

// One warpgroup; `body` works on accumulators %d0..%d3 (m64n8k16), A registers %a0..%a3 and the descriptor %b
// of a zeroed tile, and leaves %d0 to be stored.
Result run(const std::string& body, const char* async = "eager") {
  Kit kit;
  parse_async(async).apply(kit.options);
  const std::uint64_t out = kit.upload(std::vector<float>(128), "out");
  const std::string k = cat(R"(
.visible .entry k(.param .u64 po) {
 .reg .u64 %o, %b; .reg .u32 %t, %s, %z, %n; .reg .b32 %a<4>; .reg .f32 %d<4>, %e; .reg .pred %p;
 .shared .align 1024 .b8 tile[1024];
 mov.u32 %t, %tid.x; mov.u32 %z, 0; mov.u32 %s, tile;
 mad.lo.u32 %n, %t, 8, %s; st.shared.v2.u32 [%n], {%z, %z};
 fence.proxy.async.shared::cta; bar.sync 0;
 shr.u32 %n, %s, 4; cvt.u64.u32 %b, %n; or.b64 %b, %b, 0x800080000;
 mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0;
 mov.f32 %d0, 0f3f800000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;
)",
                            body, R"(
 ld.param.u64 %o, [po]; mad.wide.u32 %o, %t, 4, %o; st.global.f32 [%o], %d0;
 ret;
})");
  return kit.launch(k, {}, {128, 1, 1}, Params().add(out));
}

const std::string kFence = " wgmma.fence.sync.aligned;\n";
const std::string kMma =
    " wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, %b, 1, 1, 1, "
    "0;\n";
const std::string kMmaZero =
    " wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, %b, 0, 1, 1, "
    "0;\n";
const std::string kCommit = " wgmma.commit_group.sync.aligned;\n";
const std::string kWait = " wgmma.wait_group.sync.aligned 0;\n";
const std::string kWaitOne = " wgmma.wait_group.sync.aligned 1;\n";

TEST(AsyncRegister, CorrectOrders) {
  for (const char* async : {"eager", "late", "random:3"}) {
    EXPECT_CLEAN(run(kFence + kMma + kCommit + kWait, async));
    // chained operations on one accumulator, and a second batch after the wait
    EXPECT_CLEAN(run(kFence + kMma + kMma + kCommit + kWait + " add.f32 %d0, %d0, %d0;\n" + kFence + kMma +
                         kCommit + kWait,
                     async));
    // a register that no wgmma uses, between issue and wait
    EXPECT_CLEAN(
        run(kFence + kMma + " mov.f32 %e, 0f00000000; add.f32 %e, %e, %e;\n" + kCommit + kWait, async));
    // wait for the older of two groups, then touch only its registers: none here, the accumulators are shared
    EXPECT_CLEAN(run(kFence + kMma + kCommit + kMma + kCommit + kWaitOne + kWait, async));
    // nvcc moves the initial values of accumulators behind the fence
    EXPECT_CLEAN(
        run(kFence + " mov.f32 %d0, 0f40000000; mov.f32 %d1, %d0;\n" + kMma + kCommit + kWait, async));
  }
}

TEST(AsyncRegister, AccumulatorReadBeforeTheWait) {
  for (const char* async : {"eager", "late", "random:3"}) {
    const Result r = run(kFence + kMma + kCommit + " add.f32 %e, %d2, %d2;\n" + kWait, async);
    ASSERT_EQ(first_class(r), "async.register") << findings(r);
    EXPECT_THAT(r.findings[0].message, HasSubstr("reads %d2"));
    EXPECT_THAT(r.findings[0].instruction, HasSubstr("add.f32"));
    ASSERT_TRUE(r.findings[0].other.has_value());
    EXPECT_THAT(r.findings[0].other->instruction, HasSubstr("wgmma.mma_async"));
  }
}

TEST(AsyncRegister, WaitThatLeavesTheGroupPending) {
  const Result r = run(kFence + kMma + kCommit + kWaitOne);  // and the store of %d0 behind it
  ASSERT_EQ(first_class(r), "async.register");
  EXPECT_THAT(r.findings[0].message, HasSubstr("reads %d0"));
  EXPECT_THAT(r.findings[0].instruction, HasSubstr("st.global"));
}

TEST(AsyncRegister, MissingCommit) {
  const Result r = run(kFence + kMma + kWait);
  EXPECT_EQ(first_class(r), "async.register") << findings(r);
}

TEST(AsyncRegister, AccumulatorWrittenBeforeTheWait) {
  const Result r = run(kFence + kMma + kCommit + " mov.f32 %d3, 0f00000000;\n" + kWait);
  ASSERT_EQ(first_class(r), "async.register");
  EXPECT_THAT(r.findings[0].message, HasSubstr("overwrites %d3"));
}

TEST(AsyncRegister, OperandRegisterOverwrittenBeforeTheWait) {
  const Result r = run(kFence + kMma + kCommit + " mov.b32 %a1, 7;\n" + kWait);
  ASSERT_EQ(first_class(r), "async.register");
  EXPECT_THAT(r.findings[0].message, HasSubstr("overwrites %a1"));
  EXPECT_THAT(r.findings[0].message, HasSubstr("may still read"));
  EXPECT_CLEAN(run(kFence + kMma + kCommit + " mov.b32 %n, %a1;\n" + kWait));  // reading them is fine
}

TEST(AsyncRegister, MissingFence) {
  const Result first = run(kMma + kCommit + kWait);
  ASSERT_EQ(first_class(first), "async.register");
  EXPECT_THAT(first.findings[0].message, HasSubstr("no wgmma.fence"));
  const Result second =
      run(kFence + kMma + kCommit + kWait + " mul.f32 %d0, %d0, %d1;\n" + kMma + kCommit + kWait);
  ASSERT_EQ(first_class(second), "async.register");
  EXPECT_THAT(second.findings[0].message, HasSubstr("reads %d0"));
}

// The ISA asks for the fence whatever scale-d is: before the first wgmma and after accesses to accumulators.
TEST(AsyncRegister, MissingFenceOfOverwrittenAccumulators) {
  EXPECT_EQ(first_class(run(kMmaZero + kCommit + kWait)), "async.register");
  const std::string first = kFence + kMma + kCommit + kWait, second = kMmaZero + kCommit + kWait;
  EXPECT_CLEAN(run(first + second));
  EXPECT_CLEAN(run(first + " add.f32 %e, %d1, %d1;\n" + kFence + second));
  const Result r = run(first + " add.f32 %e, %d1, %d1;\n" + second);
  ASSERT_EQ(first_class(r), "async.register");
  EXPECT_THAT(r.findings[0].message, HasSubstr("overwrites %d1"));
}

TEST(AsyncRegister, TheCheckCanBeTakenAway) {
  Kit kit;
  kit.options.checks = parse_checks("all,-async");
  const Result r =
      kit.launch(cat(".visible .entry k() {\n .reg .u64 %b; .reg .u32 %s; .reg .f32 %d<4>, %e; .reg .b32 "
                     "%a<4>;\n mov.u64 %b, 0x800080000;\n .shared .align 1024 .b8 tile[1024];\n mov.u32 %s, "
                     "tile; mov.b32 %a0, 0;\n",
                     kMmaZero, " add.f32 %e, %d0, %d0;\n", kCommit, kWait, " ret;\n}\n"),
                 {}, {128, 1, 1}, Params());
  for (const Finding& f : r.findings) EXPECT_NE(f.cls, "async.register");
}

}  // namespace
}  // namespace cgp::emu
