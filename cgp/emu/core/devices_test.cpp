// SPDX-License-Identifier: Apache-2.0
// Several devices in one launch: peer memory, scopes between devices, waits for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu::testing {
namespace {

using ::testing::HasSubstr;
using text::cat;

// Each device writes 64 words to the next one's inbox, sets the flag there, waits for its own flag and copies its own
// inbox out. `publish` and `poll` are the accesses to the flags, `%fence` etc. go around them.
std::string ring_kernel(const std::string& publish, const std::string& poll) {
  return header() + cat(R"(
.visible .entry ring(.param .u64 inbox, .param .u64 flag, .param .u64 next_inbox, .param .u64 next_flag,
                     .param .u64 out, .param .u32 rank)
{
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<3>;
  ld.param.u64 %rd0, [inbox]; ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [next_inbox];
  ld.param.u64 %rd3, [next_flag]; ld.param.u64 %rd4, [out]; ld.param.u32 %r0, [rank];
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4;
  add.u64 %rd0, %rd0, %rd5; add.u64 %rd2, %rd2, %rd5; add.u64 %rd4, %rd4, %rd5;
  mad.lo.u32 %r2, %r0, 1000, %r1;
  st.global.u32 [%rd2], %r2;
  bar.sync 0;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra WAITED;
  mov.u32 %r3, 1;
  )",
                        publish, R"( [%rd3], %r3;
POLL:
  )",
                        poll, R"( %r4, [%rd1];
  setp.eq.u32 %p1, %r4, 0;
  @%p1 bra POLL;
WAITED:
  bar.sync 0;
  ld.global.u32 %r5, [%rd0];
  st.global.u32 [%rd4], %r5;
  ret;
}
)");
}

struct Devices {
  Devices(int n, const std::string& text) : program(Program::load(text)) {
    for (int i = 0; i < n; ++i) {
      machine.push_back(std::make_unique<Machine>("sm_90a"));
      instance.push_back(machine.back()->load(program));
    }
  }
  void all_peers() {
    for (auto& a : machine)
      for (auto& b : machine)
        if (a != b) a->enable_peer(*b);
  }
  Result run(const std::string& entry, const std::vector<Params>& params, Options o = {},
             Dim3 grid = {1, 1, 1}) {
    std::vector<DeviceLaunch> all;
    for (std::size_t i = 0; i < machine.size(); ++i)
      all.push_back({machine[i].get(), instance[i], params[i]});
    Launch l;
    l.entry = entry;
    l.grid = grid;
    l.block = {64, 1, 1};
    return launch_together(all, l, o);
  }
  std::shared_ptr<const Program> program;
  std::vector<std::unique_ptr<Machine>> machine;
  std::vector<InstanceHandle> instance;
};

struct Ring : Devices {
  Ring(int n, const std::string& text) : Devices(n, text) {
    const auto make = [&](Machine& m, std::size_t bytes, const char* name) {
      const auto a = m.alloc(bytes, name);
      m.fill(a, 0, bytes);
      return a;
    };
    for (auto& m : machine) {
      inbox.push_back(make(*m, 256, "inbox"));
      flag.push_back(make(*m, 4, "flag"));
      out.push_back(make(*m, 256, "out"));
    }
  }
  Result run(Options o = {}) {
    std::vector<Params> params;
    const std::size_t n = machine.size();
    for (std::size_t i = 0; i < n; ++i)
      params.push_back(Params()
                           .add(inbox[i])
                           .add(flag[i])
                           .add(inbox[(i + 1) % n])
                           .add(flag[(i + 1) % n])
                           .add(out[i])
                           .add(std::uint32_t(i)));
    return Devices::run("ring", params, o);
  }
  std::vector<std::uint64_t> inbox, flag, out;
};

TEST(devices, exchange_data_through_flags_of_system_scope) {
  for (int n : {1, 2, 4, 8})
    for (SchedulePolicy schedule :
         {SchedulePolicy::fair, SchedulePolicy::random, SchedulePolicy::adversarial})
      for (int workers : {1, 3}) {
        Ring ring(n, ring_kernel("st.release.sys.global.u32", "ld.acquire.sys.global.u32"));
        ring.all_peers();
        Options o;
        o.schedule = schedule;
        o.workers = workers;
        const Result r = ring.run(o);
        for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
        EXPECT_EQ(r.counters.blocks, std::uint64_t(n));
        for (int i = 0; i < n; ++i) {
          std::vector<std::uint32_t> got(64);
          ring.machine[std::size_t(i)]->read(ring.out[std::size_t(i)],
                                             std::as_writable_bytes(std::span(got)));
          for (std::uint32_t t = 0; t < 64; ++t) EXPECT_EQ(got[t], std::uint32_t((i + n - 1) % n) * 1000 + t);
        }
      }
}

TEST(devices, the_scope_of_a_device_does_not_order_two) {
  const std::pair<std::string, std::string> cases[] = {
      {"st.release.gpu.global.u32", "ld.acquire.sys.global.u32"},
      {"st.release.sys.global.u32", "ld.acquire.gpu.global.u32"}};
  for (const auto& [publish, poll] : cases) {
    Ring ring(2, ring_kernel(publish, poll));
    ring.all_peers();
    const Result r = ring.run();
    ASSERT_FALSE(r.findings.empty()) << publish;
    const std::string all = describe(r.findings[0]);
    EXPECT_EQ(r.findings[0].cls, "race.scope") << all;
    EXPECT_THAT(all, HasSubstr("device 0, block (0,0,0)"));
    EXPECT_THAT(all, HasSubstr("device 1, block (0,0,0)"));
    EXPECT_THAT(all, HasSubstr(".sys scope"));
    Ring one(1, ring_kernel(publish, poll));  // on one device it does
    EXPECT_TRUE(one.run().clean());
  }
}

TEST(devices, a_plain_flag_is_a_race_between_devices) {
  Ring ring(2, ring_kernel("st.global.u32", "ld.acquire.sys.global.u32"));
  ring.all_peers();
  const Result r = ring.run();
  ASSERT_FALSE(r.findings.empty());
  EXPECT_EQ(r.findings[0].cls, "race.global");
  EXPECT_THAT(describe(r.findings[0]), HasSubstr("between the two devices"));
}

TEST(devices, a_flag_that_nobody_sets_is_a_deadlock) {
  for (int workers : {1, 2}) {
    Ring ring(2, ring_kernel("ld.relaxed.sys.global.u32 %r6, [%rd3]; st.relaxed.sys.global.u32",
                             "ld.acquire.sys.global.u32"));
    ring.all_peers();
    ring.flag[1] = ring.flag[0];  // both set and both wait for the flag of device 0: one is too late
    std::vector<Params> params;
    const auto lonely = ring.machine[1]->alloc(4, "lonely");
    ring.machine[1]->fill(lonely, 0, 4);
    for (std::size_t i = 0; i < 2; ++i)
      params.push_back(Params()
                           .add(ring.inbox[i])
                           .add(i ? lonely : ring.flag[0])
                           .add(ring.inbox[1 - i])
                           .add(ring.flag[0])
                           .add(ring.out[i])
                           .add(std::uint32_t(i)));
    Options o;
    o.workers = workers;
    o.checks = Check::deadlock;
    const Result r = ring.Devices::run("ring", params, o);
    ASSERT_EQ(r.findings.size(), 1u);
    EXPECT_EQ(r.findings[0].cls, "deadlock");
    EXPECT_EQ(r.findings[0].device, 1u);
    EXPECT_THAT(r.findings[0].message, HasSubstr("'lonely' of device 1 + 0"));
  }
}

TEST(devices, memory_of_a_device_that_is_no_peer_is_out_of_bounds) {
  Ring ring(2, ring_kernel("st.release.sys.global.u32", "ld.acquire.sys.global.u32"));
  ring.machine[0]->enable_peer(*ring.machine[1]);  // one direction only
  Options o;
  o.workers = 1;
  const Result r = ring.run(o);
  ASSERT_FALSE(r.findings.empty());
  bool named = false;
  for (const Finding& f : r.findings) {
    if (f.cls != "oob.global") continue;
    named = true;
    EXPECT_EQ(f.device, 1u);
    EXPECT_THAT(f.message, HasSubstr("is memory of a device that is no peer of this one"));
    EXPECT_THAT(f.hint, HasSubstr("enable_peer"));
  }
  EXPECT_TRUE(named);
}

TEST(devices, what_a_peer_has_freed_is_named) {
  Ring ring(2, ring_kernel("st.release.sys.global.u32", "ld.acquire.sys.global.u32"));
  ring.all_peers();
  ring.machine[1]->free(ring.inbox[1]);
  const Result r = ring.run();
  ASSERT_FALSE(r.findings.empty());
  EXPECT_EQ(r.findings[0].cls, "lifetime.global");
  ring.machine[1].reset();  // its memory goes with it
  EXPECT_FALSE(ring.machine[0]->owns(ring.out[1]));
}

TEST(devices, launches_that_cannot_run_together_are_refused) {
  const std::string text = ring_kernel("st.release.sys.global.u32", "ld.acquire.sys.global.u32");
  Ring ring(2, text);
  const auto refused = [&](std::vector<DeviceLaunch> all) -> std::string {
    Launch l;
    l.entry = "ring";
    l.block = {64, 1, 1};
    try {
      launch_together(all, l);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return {};
  };
  const Params p = Params()
                       .add(std::uint64_t(0))
                       .add(std::uint64_t(0))
                       .add(std::uint64_t(0))
                       .add(std::uint64_t(0))
                       .add(std::uint64_t(0))
                       .add(0u);
  const DeviceLaunch first{ring.machine[0].get(), ring.instance[0], p};
  EXPECT_THAT(refused({first, first}), HasSubstr("names each once"));
  Machine other("sm_80");
  EXPECT_THAT(refused({first, {&other, other.load(ring.program), p}}), HasSubstr("one architecture"));
  Machine same;
  EXPECT_THAT(refused({first, {&same, same.load(Program::load(text)), p}}), HasSubstr("one program"));
  EXPECT_THAT(refused({}), HasSubstr("needs a device"));
  EXPECT_THROW(ring.machine[0]->enable_peer(*ring.machine[0]), Unsupported);
}

}  // namespace
}  // namespace cgp::emu::testing
