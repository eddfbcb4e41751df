// SPDX-License-Identifier: Apache-2.0
// Whole kernels: memory, launches, shared memory, barriers, calls, divergence.
#include <numeric>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;

namespace {
const char* const kVecadd = R"(
.visible .entry vecadd(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [pa];
  ld.param.u64 %rd2, [pb];
  ld.param.u64 %rd3, [pc];
  ld.param.u32 %r2, [pn];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r1, %r2;
  @%p1 bra $L__BB0_2;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.s32 %rd5, %r1, 4;
  add.s64 %rd6, %rd4, %rd5;
  cvta.to.global.u64 %rd7, %rd2;
  add.s64 %rd8, %rd7, %rd5;
  ld.global.f32 %f1, [%rd8];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f2, %f1;
  cvta.to.global.u64 %rd9, %rd3;
  add.s64 %rd10, %rd9, %rd5;
  st.global.f32 [%rd10], %f3;
$L__BB0_2:
  ret;
}
)";
}  // namespace

TEST(emu, vecadd_of_a_ragged_size) {
  for (bool portable : {false, true}) {
    Bench b(header() + kVecadd, portable);
    constexpr std::size_t n = 1000;
    std::vector<float> x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = float(i) * 0.5f, y[i] = 3.0f - float(i);
    const auto pa = b.upload(x, "a"), pb = b.upload(y, "b"), pc = b.machine.alloc(n * 4, "c");
    const Result r = b.run("vecadd", {8, 1, 1}, {128, 1, 1}, Params().add(pa).add(pb).add(pc).add(int(n)));
    for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
    const auto z = b.download<float>(pc, n);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(z[i], x[i] + y[i]) << i;
    // 1000 threads: 31 full warps, one with 8 lanes; 8 blocks of 4 warps.
    EXPECT_EQ(r.counters.global_load_requests, 64u);
    EXPECT_EQ(r.counters.global_load_sectors, 2u * 125);
    EXPECT_EQ(r.counters.global_store_sectors, 125u);
    EXPECT_EQ(r.counters.global_store_bytes, 4000u);
    EXPECT_EQ(r.counters.branches, 32u);
    EXPECT_EQ(r.counters.divergent_branches, 1u);
  }
}

TEST(emu, block_reverses_through_shared_memory) {
  Bench b(header() + R"(
.shared .align 4 .b8 buf[1024];
.visible .entry rev(.param .u64 p)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd2, %rd0, %rd1;
  ld.global.u32 %r1, [%rd2];
  mov.u32 %r2, buf;
  shl.b32 %r3, %r0, 2;
  add.u32 %r4, %r2, %r3;
  st.shared.u32 [%r4], %r1;
  bar.sync 0;
  sub.u32 %r5, 255, %r0;
  shl.b32 %r5, %r5, 2;
  add.u32 %r5, %r2, %r5;
  ld.shared.u32 %r6, [%r5];
  st.global.u32 [%rd2], %r6;
  ret;
}
)");
  std::vector<std::uint32_t> v(256);
  std::iota(v.begin(), v.end(), 7u);
  const auto p = b.upload(v, "v");
  const Result r = b.run("rev", {}, {256, 1, 1}, Params().add(p));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  const auto out = b.download<std::uint32_t>(p, 256);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(out[i], v[255 - i]);
  EXPECT_EQ(r.counters.barriers, 8u);
  EXPECT_EQ(r.counters.shared_load_wavefronts, 8u);
  EXPECT_EQ(r.counters.shared_load_conflicts, 0u);
}

TEST(emu, out_of_bounds_is_located) {
  Bench b(header() + kVecadd);
  std::vector<float> x(100, 1.0f);
  const auto pa = b.upload(x, "a"), pb = b.upload(x, "b"), pc = b.machine.alloc(400, "c");
  const Result r = b.run("vecadd", {1, 1, 1}, {128, 1, 1}, Params().add(pa).add(pb).add(pc).add(128));
  ASSERT_EQ(r.findings.size(), 3u);
  const Finding& f = r.findings[2];
  EXPECT_EQ(f.cls, "oob.global");
  EXPECT_EQ(f.buffer, "c");
  EXPECT_EQ(f.byte_offset, 400);
  EXPECT_EQ(f.thread.x, 100u);
  EXPECT_EQ(f.count, 28u);
  EXPECT_EQ(f.address, pc + 400);
  EXPECT_NE(f.instruction.find("st.global.f32"), std::string::npos);
  EXPECT_EQ(f.ptx_line, 31);
}

}  // namespace cgp::emu
