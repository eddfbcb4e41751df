// SPDX-License-Identifier: Apache-2.0
// Schedules and time: divergence in and around calls, lanes parted at activemask, clocks that end polling
// loops, reports of livelocks, and runs that repeat from their seed.
#include <gmock/gmock.h>

#include "cgp/emu/core/run_ptx_impl.h"
#include "cgp/emu/policy.h"

namespace cgp::emu {
namespace {
using namespace testing;
using ::testing::HasSubstr;
using text::cat;
using u32 = std::uint32_t;

const char* const kSchedules[] = {"fair", "diverge", "adversarial", "random:1", "random:2", "random:3"};

Options under(const char* schedule, const char* async = "eager") {
  Options o;
  parse_schedule(schedule).apply(o);
  parse_async(async).apply(o);
  return o;
}

void expect_clean(const Result& r, const std::string& what) {
  for (const Finding& f : r.findings)  // several threads store one value in some of these kernels: a note
    if (f.severity == Severity::error) ADD_FAILURE() << what << "\n" << describe(f);
}

// Lanes diverge before and inside a function that holds an aligned barrier and per-lane stack data; even and
// odd lanes reach the call at different times, but all through the same call site.
TEST(schedule, diverged_lanes_meet_again_inside_a_callee) {
  const std::string text = header() + R"(
.func (.reg .b32 %result) f(.reg .b32 %x)
{
  .reg .b32 %r<8>; .reg .b64 %a; .reg .pred %p; .local .align 4 .b8 mine[64];
  and.b32 %r0, %x, 3;
  mov.u32 %r1, 0;
L: add.u32 %r1, %r1, 1;
  add.u32 %r0, %r0, 4;
  setp.lt.u32 %p, %r0, %x;
  @%p bra L;
  mov.u64 %a, mine;
  st.local.u32 [%a+60], %r1;
  bar.sync 0;
  ld.local.u32 %r2, [%a+60];
  add.u32 %result, %r2, %x;
  ret;
}
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 1;
  setp.eq.u32 %p, %r1, 0;
  mov.u32 %r2, %r0;
  @%p bra EVEN;
  mul.lo.u32 %r2, %r0, 2;
EVEN:
  call (%r3), f, (%r2);
  call (%r4), f, (%r3);
  add.u32 %r3, %r3, %r4;
  ld.param.u64 %rd0, [pout];
  mad.wide.u32 %rd0, %r0, 4, %rd0;
  st.global.u32 [%rd0], %r3;
  ret;
}
)";
  const auto f = [](u32 x) {
    u32 r0 = x & 3, r1 = 0;
    do {
      ++r1;
      r0 += 4;
    } while (r0 < x);
    return r1 + x;
  };
  for (const char* schedule : kSchedules) {
    Bench b(text);
    const auto out = b.machine.alloc(64 * 4, "out");
    expect_clean(b.run("k", {}, {64, 1, 1}, Params().add(out), under(schedule)), schedule);
    const auto v = b.download<u32>(out, 64);
    for (u32 t = 0; t < 64; ++t) {
      const u32 x = t % 2 ? 2 * t : t, once = f(x);
      EXPECT_EQ(v[t], once + f(once)) << schedule << " thread " << t;
    }
  }
}

// Recursion to a depth that differs per lane, with per-lane stack allocations that other lanes must not
// disturb.
TEST(schedule, recursion_and_alloca_under_divergence) {
  const std::string text = header("sm_90a") + R"(
.func (.reg .b32 %result) depth(.reg .b32 %n)
{
  .reg .b32 %r<4>; .reg .b64 %a; .reg .b64 %bytes; .reg .pred %p;
  setp.eq.u32 %p, %n, 0;
  mov.u32 %result, 0;
  @%p ret;
  mul.wide.u32 %bytes, %n, 16;
  alloca.u64 %a, %bytes, 16;
  st.local.u32 [%a], %n;
  sub.u32 %r0, %n, 1;
  call (%r1), depth, (%r0);
  ld.local.u32 %r2, [%a];
  add.u32 %result, %r1, %r2;
  ret;
}
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<4>; .reg .b64 %rd<2>;
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 7;
  call (%r2), depth, (%r1);
  ld.param.u64 %rd0, [pout];
  mad.wide.u32 %rd0, %r0, 4, %rd0;
  st.global.u32 [%rd0], %r2;
  ret;
}
)";
  for (const char* schedule : kSchedules) {
    Bench b(text);
    const auto out = b.machine.alloc(32 * 4, "out");
    expect_clean(b.run("k", {}, {32, 1, 1}, Params().add(out), under(schedule)), schedule);
    const auto v = b.download<u32>(out, 32);
    for (u32 t = 0; t < 32; ++t) EXPECT_EQ(v[t], (t & 7) * ((t & 7) + 1) / 2) << schedule;
  }
}

TEST(schedule, adversarial_parts_lanes_at_activemask) {
  const std::string text = header() + R"(
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<4>; .reg .b64 %rd<2>;
  activemask.b32 %r1;
  mov.u32 %r0, %tid.x;
  ld.param.u64 %rd0, [pout];
  mad.wide.u32 %rd0, %r0, 4, %rd0;
  st.global.u32 [%rd0], %r1;
  ret;
}
)";
  const auto masks = [&](const char* schedule) {
    Bench b(text);
    const auto out = b.machine.alloc(32 * 4, "out");
    const Result r = b.run("k", {}, {32, 1, 1}, Params().add(out), under(schedule));
    expect_clean(r, schedule);
    EXPECT_EQ(r.counters.thread_instructions, 32u * 6) << schedule;
    return b.download<u32>(out, 32);
  };
  const auto fair = masks("fair"), adversarial = masks("adversarial");
  for (u32 t = 0; t < 32; ++t) {
    EXPECT_EQ(fair[t], 0xffffffffu);
    EXPECT_EQ(adversarial[t], 1u << t);
  }
}

// bar.warp.sync whose lanes name different masks: each group meets on its own, whatever fragment they are in.
TEST(schedule, warp_barriers_of_two_groups) {
  const std::string text = header() + R"(
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<8>; .reg .b64 %rd<2>; .reg .pred %p; .shared .align 4 .b8 s[128];
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 1;
  setp.eq.u32 %p, %r1, 0;
  selp.b32 %r2, 0x55555555, 0xaaaaaaaa, %p;
  mov.u32 %r3, s;
  mad.lo.u32 %r3, %r0, 4, %r3;
  st.shared.u32 [%r3], %r0;
  bar.warp.sync %r2;
  xor.b32 %r4, %r0, 2;
  mov.u32 %r3, s;
  mad.lo.u32 %r3, %r4, 4, %r3;
  ld.shared.u32 %r5, [%r3];
  ld.param.u64 %rd0, [pout];
  mad.wide.u32 %rd0, %r0, 4, %rd0;
  st.global.u32 [%rd0], %r5;
  ret;
}
)";
  for (const char* schedule : kSchedules) {
    Bench b(text);
    const auto out = b.machine.alloc(32 * 4, "out");
    expect_clean(b.run("k", {}, {32, 1, 1}, Params().add(out), under(schedule)), schedule);
    const auto v = b.download<u32>(out, 32);
    for (u32 t = 0; t < 32; ++t) EXPECT_EQ(v[t], t ^ 2) << schedule;
  }
}

// ---------------------------------------------------------------- time
std::string poll_kernel(const char* now, const char* limit) {
  return header() + cat(R"(
.visible .entry k(.param .u64 pflag, .param .u64 pout)
{
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p, %q;
  ld.param.u64 %rd0, [pflag];
  ld.param.u64 %rd1, [pout];
  mov.u64 %rd2, )",
                        now, R"(;
  mov.u32 %r2, 0;
L:
  ld.volatile.global.u32 %r1, [%rd0];
  setp.ne.u32 %p, %r1, 0;
  @%p bra DONE;
  mov.u64 %rd3, )",
                        now, R"(;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %q, %rd4, )",
                        limit, R"(;
  @%q bra L;
  mov.u32 %r2, 1;
DONE:
  st.volatile.global.u32 [%rd1], %r2;
  ret;
}
)");
}

TEST(schedule, a_polling_loop_with_a_time_out_ends) {
  for (const char* clock : {"%clock64", "%globaltimer"})
    for (const char* limit : {"1000", "1000000000", "100000000000"})
      for (int workers : {1, 2}) {
        Bench b(poll_kernel(clock, limit));
        const auto flag = b.upload(std::vector<u32>{0}, "flag");
        const auto out = b.upload(std::vector<u32>{7}, "out");
        Options o;
        o.workers = workers;
        expect_clean(b.run("k", {4, 1, 1}, {32, 1, 1}, Params().add(flag).add(out), o), clock);
        EXPECT_EQ(b.download<u32>(out, 1)[0], 1u) << clock << " " << limit;
      }
}

TEST(schedule, a_wait_of_an_mbarrier_with_a_time_out_ends) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p, %q; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [pout];
  mov.u32 %r0, bar;
  mbarrier.init.shared::cta.b64 [%r0], 2;
  mov.u64 %rd2, %globaltimer;
  mov.u32 %r2, 0;
L:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%r0], 0;
  @%p bra DONE;
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %q, %rd4, 2000000000;
  @%q bra L;
  mov.u32 %r2, 1;
DONE:
  st.global.u32 [%rd1], %r2;
  ret;
}
)");
  for (const char* async : {"eager", "late", "random:5"}) {
    const auto out = b.upload(std::vector<u32>{7}, "out");
    expect_clean(b.run("k", {}, {1, 1, 1}, Params().add(out), under("fair", async)), async);
    EXPECT_EQ(b.download<u32>(out, 1)[0], 1u);
  }
}

TEST(schedule, a_livelock_says_who_polls_what) {
  Bench b(poll_kernel("%globaltimer", "0xffffffffffffffff"));
  const auto flag = b.upload(std::vector<u32>(16), "flag");
  const auto out = b.upload(std::vector<u32>{7}, "out");
  const Result r = b.run("k", {}, {32, 1, 1}, Params().add(flag + 8).add(out));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].cls, "deadlock");
  EXPECT_THAT(r.findings[0].message, HasSubstr("polls 'flag' + 8"));
  EXPECT_THAT(r.findings[0].message, HasSubstr("ld.volatile.global.u32"));
  EXPECT_THAT(r.findings[0].message, HasSubstr("reads the clock, but no time ends it"));
}

TEST(schedule, a_deadlock_at_a_barrier_names_the_missing_warps) {
  Bench b(header() + R"(
.visible .entry k()
{
  .reg .b32 %r<4>; .reg .pred %p;
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p, %r0, 32;
  @%p bra A;
  setp.lt.u32 %p, %r0, 64;
  @%p bra B;
  ret;
A: bar.sync 1, 64;
  ret;
B: bar.sync 2, 64;
  ret;
}
)");
  const Result r = b.run("k", {}, {96, 1, 1}, {});
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].cls, "deadlock");
  EXPECT_THAT(r.findings[0].message, HasSubstr("wait for barrier 1: 32 of 64 threads have arrived; warps 1 "
                                               "have not arrived; warps 2 have exited"));
}

// A barrier of the grid in blocks that do not all fit: found although the polls are counted, so that no warp
// comes back to a state. With one block less all fit.
TEST(schedule, a_grid_barrier_of_too_many_blocks_is_a_deadlock) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 p, .param .u64 o)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
  ld.param.u64 %rd1, [o];
  mov.u32 %r0, %nctaid.x;
  mov.u32 %r2, 0;
  atom.add.acq_rel.gpu.global.u32 %r1, [%rd0], 1;
L:
  add.u32 %r2, %r2, 1;
  ld.acquire.gpu.global.u32 %r1, [%rd0];
  setp.lt.u32 %p, %r1, %r0;
  @%p bra L;
  min.u32 %r2, %r2, 1;
  mov.u32 %r3, %ctaid.x;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r2;
  ret;
}
)");
  const u32 fit = u32(b.machine.properties().sm_count);
  for (const char* schedule : {"fair", "adversarial"})
    for (const u32 blocks : {fit, fit + 1}) {
      const auto p = b.upload(std::vector<u32>{0}, "count"), out = b.upload(std::vector<u32>(blocks), "out");
      const Result r =
          b.run("k", {blocks, 1, 1}, {1, 1, 1}, Params().add(p).add(out), under(schedule), 120 << 10);
      if (blocks == fit) {
        expect_clean(r, schedule);
        continue;
      }
      ASSERT_EQ(r.findings.size(), 1u) << schedule;
      EXPECT_EQ(r.findings[0].cls, "deadlock");
      EXPECT_THAT(r.findings[0].message,
                  HasSubstr(cat("1 block of the grid cannot start before others end: at most ", fit,
                                " are resident at once")));
    }
}

// Block b waits until the counter is b: every schedule must let all blocks in and run each of them.
TEST(schedule, blocks_that_wait_for_each_other_make_progress) {
  const std::string text = header() + R"(
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<8>; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, %ctaid.x;
  WAY
L:
  ld.acquire.gpu.global.u32 %r1, [%rd0];
  setp.ne.u32 %p, %r1, %r0;
  @%p bra L;
  add.u32 %r1, %r1, 1;
  st.release.gpu.global.u32 [%rd0], %r1;
  ret;
}
)";
  for (const char* way : {"", "sub.u32 %r0, 23, %r0;"})
    for (const char* schedule : kSchedules)
      for (int workers : {1, 2}) {
        std::string t = text;
        t.replace(t.find("WAY"), 3, way);
        Bench b(t);
        const auto p = b.upload(std::vector<u32>{0}, "turn");
        Options o = under(schedule);
        o.workers = workers;
        expect_clean(b.run("k", {24, 1, 1}, {1, 1, 1}, Params().add(p), o), schedule);
        EXPECT_EQ(b.download<u32>(p, 1)[0], 24u) << schedule;
      }
}

// Every lane takes the same lock in turn, all through one loop.
// Two blocks on two host threads that take turns: what a block does between two looks at it, while the
// other's thread waits for a processor, must not make a deadlock of the two. (Timing decides: repeated.)
TEST(schedule, blocks_that_take_turns_are_no_deadlock) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 pturn)
{
  .reg .b32 %r<8>; .reg .b64 %rd; .reg .pred %p;
  ld.param.u64 %rd, [pturn];
  mov.u32 %r0, %ctaid.x;
L: ld.acquire.gpu.global.u32 %r1, [%rd];
  and.b32 %r2, %r1, 1;
  setp.ne.u32 %p, %r2, %r0; @%p bra L;
  add.u32 %r1, %r1, 1;
  st.release.gpu.global.u32 [%rd], %r1;
  setp.lt.u32 %p, %r1, 39; @%p bra L;
  ret;
}
)");
  Options o;
  o.workers = 2;
  for (int i = 0; i < 10; ++i) {
    const auto turn = b.upload(std::vector<u32>{0}, "turn");
    expect_clean(b.run("k", {2, 1, 1}, {1, 1, 1}, Params().add(turn), o), "turns");
    EXPECT_EQ(b.download<u32>(turn, 1)[0], 40u);
  }
}

TEST(schedule, a_lock_of_each_lane_is_released) {
  const std::string text = header() + R"(
.visible .entry k(.param .u64 plock, .param .u64 psum)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
  ld.param.u64 %rd0, [plock];
  ld.param.u64 %rd1, [psum];
L:
  atom.acquire.gpu.global.cas.b32 %r1, [%rd0], 0, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra L;
  ld.relaxed.gpu.global.u32 %r2, [%rd1];
  add.u32 %r2, %r2, 1;
  st.relaxed.gpu.global.u32 [%rd1], %r2;
  fence.acq_rel.gpu;
  atom.release.gpu.global.exch.b32 %r3, [%rd0], 0;
  ret;
}
)";
  for (const char* schedule : kSchedules) {
    Bench b(text);
    const auto lock = b.upload(std::vector<u32>{0}, "lock");
    const auto sum = b.upload(std::vector<u32>{0}, "sum");
    expect_clean(b.run("k", {3, 1, 1}, {64, 1, 1}, Params().add(lock).add(sum), under(schedule)), schedule);
    EXPECT_EQ(b.download<u32>(sum, 1)[0], 192u) << schedule;
  }
}

TEST(schedule, a_livelock_is_found_under_every_schedule) {
  Bench b(poll_kernel("%globaltimer", "0xffffffffffffffff"));
  const auto flag = b.upload(std::vector<u32>{0}, "flag");
  const auto out = b.upload(std::vector<u32>{7}, "out");
  for (const char* schedule : kSchedules) {
    const Result r = b.run("k", {6, 1, 1}, {64, 1, 1}, Params().add(flag).add(out), under(schedule));
    ASSERT_EQ(r.findings.size(), 1u) << schedule;
    EXPECT_EQ(r.findings[0].cls, "deadlock") << schedule;
    EXPECT_THAT(r.findings[0].message, HasSubstr("polls 'flag' + 0")) << schedule;
  }
}

// ---------------------------------------------------------------- seeds
// Every thread takes a ticket: the order is the schedule's.
TEST(schedule, a_run_repeats_from_its_seed) {
  const std::string text = header() + R"(
.visible .entry k(.param .u64 pcount, .param .u64 pout)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [pcount];
  ld.param.u64 %rd1, [pout];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r0, %r1, %r2, %r0;
  atom.global.add.u32 %r3, [%rd0], 1;
  mad.wide.u32 %rd1, %r0, 4, %rd1;
  st.global.u32 [%rd1], %r3;
  ret;
}
)";
  const auto tickets = [&](const char* schedule) {
    Bench b(text);
    const auto count = b.upload(std::vector<u32>{0}, "count");
    const auto out = b.machine.alloc(512 * 4, "out");
    expect_clean(b.run("k", {4, 1, 1}, {128, 1, 1}, Params().add(count).add(out), under(schedule)), schedule);
    return b.download<u32>(out, 512);
  };
  EXPECT_EQ(tickets("random:7"), tickets("random:7"));
  EXPECT_NE(tickets("random:7"), tickets("random:8"));
  EXPECT_EQ(tickets("adversarial"), tickets("adversarial"));
  EXPECT_NE(tickets("adversarial"), tickets("fair"));
}

}  // namespace
}  // namespace cgp::emu
