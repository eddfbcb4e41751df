// SPDX-License-Identifier: Apache-2.0
// Divergence, spin locks between lanes, calls, recursion, function pointers, jump tables, printf, local
// memory.
#include <numeric>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

namespace {
std::string kernel(const std::string& body, const std::string& before = "") {
  return header() + before +
         text::cat(".visible .entry k(.param .u64 pout)\n{\n", R"(
  .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<8>; .reg .f32 %f<8>;
  ld.param.u64 %rd0, [pout];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd0, %rd1;
)",
                   body, "\n}\n");
}

std::vector<u32> run(const std::string& text, std::size_t threads, std::size_t words, Options options = {}) {
  Bench b(text);
  const auto out = b.machine.alloc(words * 4, "out");
  b.machine.fill(out, 0, words * 4);
  const Result r = b.run("k", {}, {u32(threads), 1, 1}, Params().add(out), options);
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  return b.download<u32>(out, words);
}
}  // namespace

TEST(control, loop_with_a_different_trip_count_in_every_lane) {
  for (SchedulePolicy policy : {SchedulePolicy::fair, SchedulePolicy::diverge, SchedulePolicy::random}) {
    Options o;
    o.schedule = policy;
    o.seed = 5;
    const auto v = run(kernel(R"(
  mov.u32 %r1, 0;
  mov.u32 %r2, 0;
L:
  setp.ge.u32 %p0, %r1, %r0;
  @%p0 bra E;
  and.b32 %r3, %r1, 1;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra EVEN;
  add.u32 %r2, %r2, 100;
  bra NEXT;
EVEN:
  add.u32 %r2, %r2, 1;
NEXT:
  add.u32 %r1, %r1, 1;
  bra L;
E:
  st.global.u32 [%rd1], %r2;
  ret;)"),
                       64, 64, o);
    for (u32 t = 0; t < 64; ++t) EXPECT_EQ(v[t], (t + 1) / 2 + t / 2 * 100) << t;
  }
}

// Every lane of every warp takes one lock: needs lanes that make progress independently of each other.
TEST(control, spin_lock_between_lanes) {
  for (SchedulePolicy policy : {SchedulePolicy::fair, SchedulePolicy::random}) {
    Options o;
    o.schedule = policy;
    const auto v = run(kernel(R"(
AGAIN:
  atom.global.cas.b32 %r1, [%rd0], 0, 1;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra AGAIN;
  ld.volatile.global.u32 %r2, [%rd0+4];
  add.u32 %r2, %r2, 1;
  st.volatile.global.u32 [%rd0+4], %r2;
  membar.gl;
  atom.global.exch.b32 %r3, [%rd0], 0;
  ret;)"),
                       96, 2, o);
    EXPECT_EQ(v[0], 0u);
    EXPECT_EQ(v[1], 96u);
  }
}

TEST(control, jump_table) {
  const auto v = run(kernel(R"(
  and.b32 %r1, %r0, 3;
  ts: .branchtargets A, B, C, D;
  brx.idx %r1, ts;
A: mov.u32 %r2, 10; bra E;
B: mov.u32 %r2, 20; bra E;
C: mov.u32 %r2, 30; bra E;
D: mov.u32 %r2, 40;
E: st.global.u32 [%rd1], %r2;
  ret;)"),
                     32, 32);
  for (u32 t = 0; t < 32; ++t) EXPECT_EQ(v[t], 10 * (t % 4 + 1));
}

TEST(control, recursion_with_param_space) {
  const auto v = run(kernel(R"(
  and.b32 %r1, %r0, 7;
  {
  .param .b32 arg; .param .b32 res;
  st.param.b32 [arg+0], %r1;
  call.uni (res), fib, (arg);
  ld.param.b32 %r2, [res+0];
  }
  st.global.u32 [%rd1], %r2;
  ret;)",
                            R"(
.func (.param .b32 result) fib(.param .b32 n)
{
  .reg .b32 %a<6>; .reg .pred %q;
  ld.param.u32 %a0, [n];
  setp.lt.u32 %q, %a0, 2;
  @%q bra BASE;
  sub.u32 %a1, %a0, 1;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %a1; call (y), fib, (x); ld.param.b32 %a2, [y]; }
  sub.u32 %a1, %a0, 2;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %a1; call (y), fib, (x); ld.param.b32 %a3, [y]; }
  add.u32 %a4, %a2, %a3;
  st.param.b32 [result], %a4;
  ret;
BASE:
  st.param.b32 [result], %a0;
  ret;
}
)"),
                     32, 32);
  const u32 fib[] = {0, 1, 1, 2, 3, 5, 8, 13};
  for (u32 t = 0; t < 32; ++t) EXPECT_EQ(v[t], fib[t % 8]) << t;
}

TEST(control, register_parameters_and_barriers_inside_functions) {
  const auto v = run(kernel(R"(
  setp.lt.u32 %p0, %r0, 32;
  call.uni (%r2), twice, (%r0, %p0);
  st.global.u32 [%rd1], %r2;
  ret;)",
                            R"(
.func (.reg .b32 r) twice(.reg .b32 x, .reg .pred low)
{
  bar.sync 0;
  add.u32 r, x, x;
  @low add.u32 r, r, 1;
  ret;
}
)"),
                     64, 64);
  for (u32 t = 0; t < 64; ++t) EXPECT_EQ(v[t], 2 * t + (t < 32));
}

TEST(control, function_pointers_from_a_table) {
  const auto v = run(kernel(R"(
  and.b32 %r1, %r0, 1;
  mul.wide.u32 %rd2, %r1, 8;
  mov.u64 %rd3, table;
  add.u64 %rd3, %rd3, %rd2;
  ld.global.u64 %rd4, [%rd3];
  {
  .param .b32 a; .param .b32 r;
  st.param.b32 [a], %r0;
  proto: .callprototype (.param .b32 _) _ (.param .b32 _);
  call (r), %rd4, (a), proto;
  ld.param.b32 %r2, [r];
  }
  st.global.u32 [%rd1], %r2;
  ret;)",
                            R"(
.func (.param .b32 r) inc(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) neg(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; neg.s32 %x, %x; st.param.b32 [r], %x; ret; }
.global .align 8 .u64 table[2] = {inc, neg};
)"),
                     32, 32);
  for (u32 t = 0; t < 32; ++t) EXPECT_EQ(v[t], t % 2 ? 0 - t : t + 1);
}

TEST(control, local_memory_is_private_to_each_lane) {
  const auto v = run(kernel(R"(
  .local .align 16 .b8 depot[64];
  mov.u64 %rd2, depot;
  cvta.local.u64 %rd3, %rd2;
  and.b32 %r1, %r0, 15;
  mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd5, %rd3, %rd4;
  st.u32 [%rd5], %r0;
  mov.u64 %rd6, depot;
  add.u64 %rd6, %rd6, %rd4;
  ld.local.u32 %r2, [%rd6];
  isspacep.local %p0, %rd5;
  isspacep.global %p1, %rd5;
  isspacep.global %p2, %rd1;
  selp.u32 %r3, 1000, 0, %p0;
  @%p1 add.u32 %r3, %r3, 1;
  @%p2 add.u32 %r3, %r3, 2000;
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd1], %r2;
  ret;)"),
                     64, 64);
  for (u32 t = 0; t < 64; ++t) EXPECT_EQ(v[t], t + 3000);
}

TEST(control, constants_and_initialisers) {
  const auto v = run(kernel(R"(
  and.b32 %r1, %r0, 3;
  mul.wide.u32 %rd2, %r1, 4;
  mov.u64 %rd3, coef;
  add.u64 %rd3, %rd3, %rd2;
  ld.const.u32 %r2, [%rd3];
  ld.global.u32 %r3, [start+4];
  ld.global.u64 %rd4, [pointer];
  ld.u32 %r4, [%rd4];
  add.u32 %r2, %r2, %r3;
  add.u32 %r2, %r2, %r4;
  st.global.u32 [%rd1], %r2;
  ret;)",
                            R"(
.const .align 4 .u32 coef[4] = {10, 20, 30, 40};
.global .align 4 .u32 start[2] = {7, 1000};
.global .align 8 .u64 pointer = generic(start);
)"),
                     32, 32);
  for (u32 t = 0; t < 32; ++t) EXPECT_EQ(v[t], 10 * (t % 4 + 1) + 1000 + 7);
}

TEST(control, printf_reaches_the_result) {
  Bench b(kernel(R"(
  .local .align 8 .b8 args[24];
  setp.ne.u32 %p0, %r0, 3;
  @%p0 bra E;
  mov.u64 %rd2, args;
  st.local.u32 [%rd2], %r0;
  mov.u64 %rd5, 0d3ff8000000000000;
  st.local.u64 [%rd2+8], %rd5;
  mov.u32 %r4, -5;
  st.local.u32 [%rd2+16], %r4;
  cvta.local.u64 %rd3, %rd2;
  mov.u64 %rd4, text;
  cvta.global.u64 %rd4, %rd4;
  {
  .param .b64 a; .param .b64 b; .param .b32 r;
  st.param.b64 [a], %rd4;
  st.param.b64 [b], %rd3;
  call.uni (r), vprintf, (a, b);
  }
E: ret;)",
                 R"(
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[20] = {116,61,37,117,32,120,61,37,46,50,102,32,37,48,52,100,37,37,10,0};
)"));
  const auto out = b.machine.alloc(4);
  const Result r = b.run("k", {}, {32, 1, 1}, Params().add(out));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  EXPECT_EQ(r.output, "t=3 x=1.50 -005%\n");
}

TEST(control, special_registers) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<32>; .reg .b64 %rd<8>; .reg .pred %p0;
  ld.param.u64 %rd0, [pout];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
  mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y;
  mad.lo.u32 %r5, %r2, %r4, %r1;
  mad.lo.u32 %r5, %r5, %r3, %r0;
  mov.u32 %r6, %ctaid.y;
  mov.u32 %r7, %nctaid.x;
  mad.lo.u32 %r6, %r6, %r7, %ctaid.x;
  mad.lo.u32 %r8, %r6, 60, %r5;
  mul.wide.u32 %rd1, %r8, 16;
  add.u64 %rd1, %rd0, %rd1;
  mov.u32 %r9, %laneid;
  mov.u32 %r10, %warpid;
  mov.u32 %r11, %lanemask_lt;
  mov.u32 %r12, %smid;
  mov.u64 %rd2, %clock64;
  mov.u64 %rd3, %clock64;
  setp.lt.u64 %p0, %rd2, %rd3;
  selp.u32 %r13, %r12, 999, %p0;
  st.global.v4.u32 [%rd1], {%r9, %r10, %r11, %r13};
  ret;
}
)");
  const auto out = b.machine.alloc(6 * 60 * 16);
  const Result r = b.run("k", {3, 2, 1}, {5, 4, 3}, Params().add(out));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  const auto v = b.download<u32>(out, 6 * 60 * 4);
  for (u32 c = 0; c < 6; ++c)
    for (u32 t = 0; t < 60; ++t) {
      const u32* p = &v[(c * 60 + t) * 4];
      EXPECT_EQ(p[0], t % 32);
      EXPECT_EQ(p[1], t / 32);
      EXPECT_EQ(p[2], (1u << t % 32) - 1);
      EXPECT_EQ(p[3], c);
    }
}

TEST(control, a_trap_and_an_assertion_are_findings) {
  Bench b(kernel("setp.eq.u32 %p0, %r0, 7; @%p0 trap; ret;"));
  const auto out = b.machine.alloc(4);
  const Result r = b.run("k", {}, {32, 1, 1}, Params().add(out));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].cls, "trap");
  EXPECT_EQ(r.findings[0].thread.x, 7u);
}

TEST(control, illegal_launches_say_why) {
  Bench b(header() + ".visible .entry k(.param .u32 n) .reqntid 64, 1, 1 { ret; }");
  auto reason = [&](Dim3 grid, Dim3 block, std::span<const std::byte> params, u32 shared = 0,
                    Dim3 cluster = {}) {
    try {
      b.run("k", grid, block, params, {}, shared, cluster);
    } catch (const ArgumentError& e) {
      return e.rule();
    }
    return std::string("accepted");
  };
  Params n;
  n.add(1);
  EXPECT_EQ(reason({1, 1, 1}, {64, 1, 1}, n), "accepted");
  EXPECT_NE(reason({1, 1, 1}, {32, 1, 1}, n).find(".reqntid"), std::string::npos);
  EXPECT_NE(reason({1, 1, 1}, {2048, 1, 1}, n).find("1024"), std::string::npos);
  EXPECT_NE(reason({1, 1, 1}, {64, 1, 1}, {}).find("parameter"), std::string::npos);
  EXPECT_NE(reason({1, 1, 1}, {64, 1, 1}, n, 300000).find("shared"), std::string::npos);
  EXPECT_NE(reason({3, 1, 1}, {64, 1, 1}, n, 0, {2, 1, 1}).find("multiple of the cluster"),
            std::string::npos);
  EXPECT_THROW(b.run("kk", {}, {64, 1, 1}, n), ArgumentError);
}

TEST(control, unknown_instructions_are_refused_by_name) {
  Bench b(header() + R"(
.global .texref t;
.visible .entry good() { ret; }
.visible .entry bad() { .reg .f32 %f<8>; .reg .b32 %r; mov.u32 %r, 0;
  tex.1d.v4.f32.s32 {%f0,%f1,%f2,%f3}, [t, {%r}];
  ret; }
)");
  EXPECT_TRUE(b.program->entry("good").unsupported.empty());
  const std::string why = b.program->entry("bad").unsupported;
  EXPECT_NE(why.find("tex.1d"), std::string::npos) << why;
  EXPECT_NE(why.find("PTX line 8"), std::string::npos) << why;
  EXPECT_THROW(b.run("bad", {}, {}, {}), Unsupported);
}

}  // namespace cgp::emu
