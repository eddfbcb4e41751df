// SPDX-License-Identifier: Apache-2.0
// Small kernels, each with one planted bug and without it. With the bug, the first finding of the emulator has the
// expected class and names the expected C++ line; without it there is no finding.
#include "cgp/dsl/core/on_emulator_test.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/dsl/pipeline/mbarrier.h"
#include "cgp/dsl/pipeline/tma.h"

namespace cgp::dsl {
namespace {

constexpr int kThreads = 64;

struct Plant {
  bool bug;
  int line = 0;  ///< that the first finding must name
  /// Marks the line of the call.
  Here here(Here at = Here::now()) {
    line = at.line;
    return at;
  }
};

struct Case {
  const char* name;
  const char* cls;
  void (*record)(Kernel& k, In<u32> a, Out<u32> c, Plant& p);  ///< a, c: 256 elements each; 64 threads
  std::uint32_t blocks = 1;
};

const Case kCases[] = {
    {"no barrier between store and load", "race.shared",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       auto s = k.shared<u32>(kThreads);
       const auto t = k.tid();
       s.st(t, a.ld(t));
       if (!p.bug) k.sync();
       c.st(t, s.ld(63 - t, p.here()));
     }},
    {"a tile is overwritten while others read it", "race.shared",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       auto s = k.shared<u32>(kThreads);
       const auto t = k.tid();
       s.st(t, a.ld(t));
       k.sync();
       c.st(t, s.ld(63 - t));
       if (!p.bug) k.sync();
       s.st(t, 0, p.here());
     }},
    {"an input index one too far", "oob.global",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       const auto t = k.tid();
       c.st(t, a.ld(t + (p.bug ? 193 : 192), p.here()));
     }},
    {"an output index one too far", "oob.global",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       const auto t = k.tid();
       c.st(t + (p.bug ? 193 : 192), a.ld(t), p.here());
     }},
    {"a shared tile that is too small", "oob.shared",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       auto s = k.shared<u32>(p.bug ? kThreads - 1 : kThreads);
       const auto t = k.tid();
       s.st(t, a.ld(t), p.here());
       c.st(t, t);
     }},
    {"all blocks write the first tile", "race.global",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       const auto i = k.tid() + k.ctaid() * kThreads;
       const auto x = a.ld(i) + i;
       c.st(p.bug ? k.tid() : i, x, p.here());
     },
     2},
    {"a halo that nobody fills", "uninit.shared",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       auto s = k.shared<u32>(kThreads + 1);
       const auto t = k.tid();
       s.st(t, a.ld(t));
       if (!p.bug) s.st_if(t == 0, kThreads, 0);
       k.sync();
       c.st(t, s.ld(t + 1), p.here());
     }},
    {"cp.async read before its wait", "race.async",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       auto s = k.shared<u32>(kThreads);
       const auto t = k.tid();
       cp_async<4>(s.at(t), a.at(t));
       cp_async_commit(k);
       if (!p.bug) cp_async_wait(k, 0);
       c.st(t, s.ld(t, p.here()));
     }},
    {"cp.async waits for one group too few", "race.async",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       auto s = k.shared<u32>(2 * kThreads);
       const auto t = k.tid();
       for (int stage = 0; stage < 2; ++stage) {
         cp_async<4>(s.at(t + stage * kThreads), a.at(t));
         cp_async_commit(k);
       }
       cp_async_wait(k, p.bug ? 1 : 0);
       c.st(t, s.ld(t + kThreads, p.here()));
     }},
    {"a wait for the phase that is always over", "race.async",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       Cta cta = k.cta();
       auto s = k.shared<u32>(kThreads, 128);
       auto full = mbarrier<ByBytes>(k).init(cta, 1);
       cta.one_thread([&](Thread& t) {
         full.arrive_expect(t, 256);
         bulk_load(t, s, a, 256, full);
       });
       full.wait(p.bug ? 1 : 0);
       c.st(k.tid(), s.ld(k.tid(), p.here()));
       full.wait(0);
     }},
    {"more bytes expected than copied", "deadlock",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       Cta cta = k.cta();
       auto s = k.shared<u32>(kThreads, 128);
       auto full = mbarrier<ByBytes>(k).init(cta, 1);
       cta.one_thread([&](Thread& t) {
         full.arrive_expect(t, p.bug ? 512 : 256);
         bulk_load(t, s, a, 256, full);
       });
       full.wait(0, p.here());
       c.st(k.tid(), s.ld(k.tid()));
     }},
    {"no proxy fence before a bulk store", "race.proxy",
     [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
       Cta cta = k.cta();
       auto s = k.shared<u32>(kThreads, 128);
       s.st(k.tid(), a.ld(k.tid()));
       if (!p.bug) fence_async_shared(k);
       k.sync();
       cta.one_thread([&](Thread& t) { bulk_store(t, c, s, 256, L2Hint::none, p.here()).wait_read(t); });
     }},
};

std::vector<emu::Finding> findings(const Case& c, Plant& plant) {
  const auto k = build("planted", "sm_90a", [&](Kernel& k, In<u32> a, Out<u32> out) {
    k.block(kThreads);
    c.record(k, a, out, plant);
  });
  emu::Machine machine("sm_90a");
  const auto instance = machine.load(emu::Program::load(k.ptx()));
  const std::uint64_t arguments[] = {machine.alloc(1024, "a"), machine.alloc(1024, "c")};
  machine.fill(arguments[0], 1, 1024);
  emu::Launch launch;
  launch.entry = k.name;
  launch.block = {kThreads, 1, 1};
  launch.grid.x = c.blocks;
  launch.dynamic_smem = std::uint32_t(k.dynamic_smem);
  launch.params = std::as_bytes(std::span(arguments));
  return machine.launch(instance, launch, {.workers = 1}).findings;
}

TEST(planted_bugs, are_named_by_class_and_line) {
  for (const Case& c : kCases) {
    Plant with{true}, without{false};
    for (const auto& f : findings(c, without)) ADD_FAILURE() << c.name << ", mended: " << emu::describe(f);
    const auto found = findings(c, with);
    ASSERT_FALSE(found.empty()) << c.name;
    const auto& f = found[0];
    EXPECT_EQ(f.cls, c.cls) << c.name << ": " << emu::describe(f);
    EXPECT_TRUE(f.line == with.line || (f.other && f.other->line == with.line))
        << c.name << ", line " << with.line << ": " << emu::describe(f);
  }
}

}  // namespace
}  // namespace cgp::dsl
