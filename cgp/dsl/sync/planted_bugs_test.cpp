// SPDX-License-Identifier: Apache-2.0
// Small kernels, each with one planted bug and without it. With the bug, the first finding of the emulator has the
// expected class and names the expected C++ line, or the kernel is refused at that line when it is recorded; without
// it there is no finding.
#include "cgp/dsl/core/on_emulator_test.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/mbarrier.h"
#include "cgp/dsl/pipeline/tma.h"
#include "cgp/dsl/sync/warp.h"

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
  const char* cls;  ///< "build": the kernel is refused when it is recorded
  void (*record)(Kernel& k, In<u32> a, Out<u32> c,
                 Plant& p);  ///< a: 256 elements, c: as many zeros; 64 threads
  std::uint32_t blocks = 1;
};

const Case
    kCases
        [] =
            {
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
                   cta.one_thread(
                       [&](Thread& t) { bulk_store(t, c, s, 256, L2Hint::none, p.here()).wait_read(t); });
                 }},
                {"a sum of the block that is no atomic", "race.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(1);
                   const auto t = k.tid();
                   s.st_if(t == 0, 0, 0);
                   k.sync();
                   const auto here = p.here();
                   if (p.bug)
                     s.st(0, s.ld(0, here) + a.ld(t), here);
                   else
                     red<op::add>(s, 0, a.ld(t));
                   k.sync();
                   c.st(t, s.ld(0));
                 }},
                {"a sum that nobody sets to zero", "uninit.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(1);
                   const auto t = k.tid();
                   if (!p.bug) s.st_if(t == 0, 0, 0);
                   k.sync();
                   red<op::add>(s, 0, a.ld(t), p.here());
                   k.sync();
                   c.st(t, s.ld(0));
                 }},
                {"lanes exchange values without a barrier of the warp", "race.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   s.st(t, a.ld(t));
                   if (!p.bug) k.warp().sync();
                   c.st(t, s.ld(t ^ 1, p.here()));
                 }},
                {"a tree of sums without its last barrier", "race.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   s.st(t, a.ld(t));
                   for (std::uint32_t n = kThreads / 2; n; n /= 2) {
                     if (!p.bug || n > 1) k.sync();
                     const auto here = p.here();
                     k.if_(t < n, [&] { s.st(t, s.ld(t, here) + s.ld(t + n, here), here); });
                   }
                   k.sync();
                   c.st(t, s.ld(0));
                 }},
                {"one buffer where a barrier a turn needs two", "race.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(2 * kThreads);
                   const auto t = k.tid();
                   for (std::uint32_t i = 0; i < 4; ++i) {
                     const std::uint32_t buffer = p.bug ? 0 : i % 2 * kThreads;
                     s.st(t + buffer, a.ld(t + i * kThreads), p.here());
                     k.sync();
                     c.st(t + i * kThreads, s.ld(buffer + (63 - t)));
                   }
                 }},
                {"rows and columns exchanged", "oob.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid(), row = t / 16, col = t % 16;
                   s.st(row * 16 + col, a.ld(t));
                   k.sync();
                   c.st(t, s.ld(p.bug ? col * 16 + row : col * 4 + row, p.here()));
                 }},
                {"an index below zero", "oob.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   c.st(t, a.ld(p.bug ? t - 1 : t, p.here()));
                 }},
                {"one turn of a loop too many", "oob.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto here = p.here();
                   k.loop(Val<u32>(p.bug ? 5 : 4),
                          [&](Val<u32> i) { c.st(t, a.ld(t + i * kThreads, here)); });
                 }},
                {"blocks begin half a tile apart", "race.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   c.st(t + k.ctaid() * (p.bug ? 32 : 64), a.ld(t) + t, p.here());
                 },
                 2},
                {"blocks add without atomics", "race.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto here = p.here();
                   if (p.bug)
                     c.st(t, c.ld(t, here) + a.ld(t), here);
                   else
                     red<op::add>(c, t, a.ld(t));
                 },
                 2},
                {"an atomic of the block's scope between blocks", "race.scope",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto here = p.here();
                   if (p.bug)
                     red<relaxed, cta, op::add>(c, t, a.ld(t), here);
                   else
                     red<relaxed, gpu, op::add>(c, t, a.ld(t));
                 },
                 2},
                {"a flag without release", "race.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto first = k.ctaid() == 0;
                   k.if_(first, [&] {
                     c.st(t, a.ld(t));
                     k.sync();
                     k.if_(t == 0, [&] { p.bug ? c.st<relaxed, gpu>(200, 1) : c.st<release, gpu>(200, 1); });
                   });
                   const auto here = p.here();
                   k.if_(!first, [&] {
                     (void)k.while_(
                         c.ld<acquire, gpu>(200), [](const Val<u32>& flag) { return flag == 0; },
                         [&](const Val<u32>&) { return c.ld<acquire, gpu>(200); });
                     c.st(t + kThreads, c.ld(t, here));
                   });
                 },
                 2},
                {"a flag read without acquire", "race.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto first = k.ctaid() == 0;
                   k.if_(first, [&] {
                     c.st(t, a.ld(t));
                     k.sync();
                     k.if_(t == 0, [&] { c.st<release, gpu>(200, 1); });
                   });
                   const auto flag = [&] {
                     return p.bug ? c.ld<relaxed, gpu>(200) : c.ld<acquire, gpu>(200);
                   };
                   const auto here = p.here();
                   k.if_(!first, [&] {
                     (void)k.while_(
                         flag(), [](const Val<u32>& f) { return f == 0; },
                         [&](const Val<u32>&) { return flag(); });
                     c.st(t + kThreads, c.ld(t, here));
                   });
                 },
                 2},
                {"lanes that a shuffle names stand aside", "build",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto here = p.here();
                   k.if_(assume_uniform(t % 32 < (p.bug ? 16 : 32), Uniform::warp), [&] {
                     Warp w = k.warp();
                     c.st(t, shfl<bfly>(w, a.ld(t), 16, 32, here));
                   });
                 }},
                {"half of a warp goes to the barrier of the block", "build",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   const auto here = p.here();
                   k.if_(assume_uniform(t % 32 < (p.bug ? 16 : 32), Uniform::cta), [&] {
                     c.st(t, a.ld(t));
                     k.sync(here);
                   });
                   k.sync();
                 }},
                {"a copy of 16 bytes from an odd element", "misaligned",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(kThreads, 16);
                   const auto t = k.tid();
                   k.if_(t < 16, [&] { cp_async<16>(s.at(4 * t), a.at(4 * t + (p.bug ? 1 : 0)), p.here()); });
                   cp_async_commit(k);
                   cp_async_wait(k, 0);
                   k.sync();
                   c.st(t, s.ld(t));
                 }},
                {"cp.async waits before its group is committed", "race.async",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   cp_async<4>(s.at(t), a.at(t));
                   if (!p.bug) cp_async_commit(k);
                   cp_async_wait(k, 0);
                   c.st(t, s.ld(t, p.here()));
                   if (p.bug) cp_async_commit(k);
                 }},
                {"another thread's cp.async without a barrier", "race.async",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   cp_async<4>(s.at(t), a.at(t));
                   cp_async_commit(k);
                   cp_async_wait(k, 0);
                   if (!p.bug) k.sync();
                   c.st(t, s.ld(63 - t, p.here()));
                 }},
                {"a barrier that counts one arrival too many", "deadlock",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   auto full = mbarrier<ByArrivals>(k).init(cta, p.bug ? kThreads + 1 : kThreads);
                   s.st(t, a.ld(t));
                   full.arrive();
                   full.wait(0, p.here());
                   c.st(t, s.ld(63 - t));
                 }},
                {"a bulk copy of half of the tile", "uninit.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads, 128);
                   auto full = mbarrier<ByBytes>(k).init(cta, 1);
                   const std::uint32_t bytes = p.bug ? 128 : 256;
                   cta.one_thread([&](Thread& t) {
                     full.arrive_expect(t, bytes);
                     bulk_load(t, s, a, bytes, full);
                   });
                   full.wait(0);
                   c.st(k.tid(), s.ld(k.tid(), p.here()));
                 }},
                {"a bulk copy beyond the end", "oob.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads, 128);
                   auto full = mbarrier<ByBytes>(k).init(cta, 1);
                   cta.one_thread([&](Thread& t) {
                     full.arrive_expect(t, 256);
                     bulk_load(t, s, a.at(p.bug ? 196 : 192), 256, full, L2Hint::none, p.here());
                   });
                   full.wait(0);
                   c.st(k.tid(), s.ld(k.tid()));
                 }},
                {"a bulk copy from an odd element", "build",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads, 128);
                   auto full = mbarrier<ByBytes>(k).init(cta, 1);
                   cta.one_thread([&](Thread& t) {
                     full.arrive_expect(t, 256);
                     bulk_load(t, s, a.at(p.bug ? 3 : 4), 256, full, L2Hint::none, p.here());
                   });
                   full.wait(0);
                   c.st(k.tid(), s.ld(k.tid()));
                 }},
                {"the barrier of another stage", "race.async",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(2 * kThreads, 128);
                   auto one = mbarrier<ByBytes>(k).init(cta, 1), two = mbarrier<ByBytes>(k).init(cta, 1);
                   cta.one_thread([&](Thread& t) {
                     one.arrive_expect(t, 256), two.arrive_expect(t, 256);
                     bulk_load(t, s, a, 256, one), bulk_load(t, s.at(kThreads), a, 256, two);
                   });
                   one.wait(0);
                   if (!p.bug) two.wait(0);
                   c.st(k.tid(), s.ld(k.tid() + kThreads, p.here()));
                   two.wait(0);
                 }},
                {"a stage filled again before all have read it", "race.async",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads, 128);
                   auto full = mbarrier<ByBytes>(k).init(cta, 1);
                   const auto here = p.here();
                   for (std::uint32_t i = 0; i < 2; ++i) {
                     cta.one_thread([&](Thread& t) {
                       full.arrive_expect(t, 256);
                       bulk_load(t, s, a, 256, full);
                     });
                     full.wait(i);
                     k.sync();
                     c.st(k.tid() + i * kThreads, s.ld(63 - k.tid(), here));
                     if (!p.bug) k.sync();
                   }
                 }},
                {"memory written while a bulk store reads it", "race.async",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads, 128);
                   s.st(k.tid(), a.ld(k.tid()));
                   fence_async_shared(k);
                   k.sync();
                   const auto here = p.here();
                   cta.one_thread([&](Thread& t) {
                     auto pending = bulk_store(t, c, s, 256);
                     if (p.bug) s.st(0, 7, here);
                     std::move(pending).wait_read(t);
                     if (!p.bug) s.st(0, 7);
                   });
                 }},
                {"a peer's memory before the barrier of the cluster", "race.shared",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   k.cluster(2);
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   s.st(t, a.ld(t));
                   if (!p.bug) cluster_sync(cta);
                   c.st(t + k.ctaid() * kThreads, mapa(s, k.cluster_ctarank() ^ 1).ld(t, p.here()));
                   cluster_sync(cta);
                 },
                 2},
                {"a block ends while its peer reads from it", "lifetime.dsmem",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   k.cluster(2);
                   Cta cta = k.cta();
                   auto s = k.shared<u32>(kThreads);
                   const auto t = k.tid();
                   s.st(t, a.ld(t));
                   cluster_sync(cta);
                   const auto here = p.here();
                   k.if_(k.cluster_ctarank() == 0, [&] { c.st(t, mapa(s, Val<u32>(1)).ld(t, here)); });
                   if (!p.bug) cluster_sync(cta);
                 },
                 2},
                {"a plain store beside atomics", "race.global",
                 [](Kernel& k, In<u32> a, Out<u32> c, Plant& p) {
                   const auto t = k.tid();
                   red<op::add>(c, 0, a.ld(t));
                   if (!p.bug) k.sync();
                   c.st_if(t == 63, 0, 7, p.here());
                 }},
};

std::vector<emu::Finding> findings(const Case& c, Plant& plant, const emu::Options& options) {
  const auto k = build("planted", "sm_90a", [&](Kernel& k, In<u32> a, Out<u32> out) {
    k.block(kThreads);
    c.record(k, a, out, plant);
  });
  emu::Machine machine("sm_90a");
  const auto instance = machine.load(emu::Program::load(k.ptx()));
  const std::uint64_t arguments[] = {machine.alloc(1024, "a"), machine.alloc(1024, "c")};
  machine.fill(arguments[0], 1, 1024), machine.fill(arguments[1], 0, 1024);
  emu::Launch launch;
  launch.entry = k.name;
  launch.block = {kThreads, 1, 1};
  launch.grid.x = c.blocks;
  if (k.cluster[0]) launch.cluster.x = std::uint32_t(k.cluster[0]);
  launch.dynamic_smem = std::uint32_t(k.dynamic_smem);
  launch.params = std::as_bytes(std::span(arguments));
  return machine.launch(instance, launch, options).findings;
}

void check(const emu::Options& options) {
  for (const Case& c : kCases) {
    Plant with{true}, without{false};
    for (const auto& f : findings(c, without, options))
      ADD_FAILURE() << c.name << ", mended: " << emu::describe(f);
    std::vector<emu::Finding> found;
    try {
      found = findings(c, with, options);
      EXPECT_FALSE(found.empty()) << c.name;
    } catch (const BuildError& e) {
      EXPECT_STREQ(c.cls, "build") << c.name << ": " << e.what();
      EXPECT_THAT(e.what(), testing::HasSubstr(text::cat("planted_bugs_test.cpp:", with.line, ":")))
          << c.name;
    }
    if (found.empty()) continue;
    const auto& f = found[0];
    EXPECT_EQ(f.cls, c.cls) << c.name << ": " << emu::describe(f);
    EXPECT_TRUE(f.line == with.line || (f.other && f.other->line == with.line))
        << c.name << ", line " << with.line << ": " << emu::describe(f);
  }
}
TEST(planted_bugs, are_named_by_class_and_line) { check({.workers = 1}); }
TEST(planted_bugs, are_named_under_other_schedules) {
  check({.workers = 1, .async = emu::AsyncPolicy::late, .schedule = emu::SchedulePolicy::adversarial});
}

}  // namespace
}  // namespace cgp::dsl
