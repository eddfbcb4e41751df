// SPDX-License-Identifier: Apache-2.0
// Adversarial time of asynchronous operations: a missing wait must show in the result under `late`,
// operations without an order complete last to first, sources are read as late as a wait allows. And misuse
// of mbarriers.
#include "cgp/emu/policy.h"
#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;

using u32 = std::uint32_t;
constexpr u32 kJunk = 0xa5a5a5a5u;

std::vector<u32> iota(std::size_t n) {
  std::vector<u32> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = u32(i + 1);
  return v;
}

// 32 threads; %s: 256 bytes of zeroed shared memory, %b an initialised mbarrier of count 1, %i and %o the
// buffers, %t the thread, %q thread 0. `body` leaves a value in %v, which is stored to out[t].
struct Outcome {
  Result result;
  std::vector<u32> out;
};
Outcome run(const std::string& body, const char* async, std::size_t n = 32) {
  Kit kit;
  parse_async(async).apply(kit.options);
  const auto in = kit.upload(iota(64), "in");
  const auto out = kit.upload(std::vector<u32>(n), "out");
  const std::string k = cat(R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
 .reg .u64 %i, %o, %x, %y; .reg .u32 %t, %s, %b, %v, %w, %z; .reg .pred %p, %q;
 .shared .align 128 .b8 buf[256]; .shared .align 8 .b64 bar;
 mov.u32 %t, %tid.x; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %z, 0; setp.eq.u32 %q, %t, 0;
 ld.param.u64 %i, [pi]; ld.param.u64 %o, [po];
 mad.lo.u32 %w, %t, 8, %s; st.shared.v2.u32 [%w], {%z, %z};
 @%q mbarrier.init.shared::cta.b64 [%b], 1;
 fence.proxy.async; bar.sync 0;
 mad.lo.u32 %w, %t, 4, %s; mad.wide.u32 %x, %t, 4, %i; mad.wide.u32 %y, %t, 4, %o;
)",
                            body, "\n st.global.u32 [%y], %v;\n ret;\n}");
  Outcome r;
  r.result = kit.launch(k, {}, {32, 1, 1}, Params().add(in).add(out));
  r.out = kit.download<u32>(out, n);
  return r;
}
const std::string kWait = "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;\n";

TEST(AsyncPolicy, CpAsyncWithoutAWaitReadsJunkWhenLate) {
  const std::string copy = " cp.async.ca.shared.global [%w], [%x], 4; cp.async.commit_group;\n";
  const std::string read = " ld.shared.u32 %v, [%w];";
  EXPECT_EQ(run(copy + read, "eager").out[5], 6u);
  EXPECT_EQ(run(copy + read, "late").out[5], kJunk);
  for (const char* async : {"eager", "late", "random:1", "random:2"})
    EXPECT_EQ(run(copy + " cp.async.wait_group 0;\n" + read, async).out[5], 6u) << async;
}

// The block's memory goes with it: a bulk store must have read it before, in the eyes of its own thread.
TEST(BulkStoreAtExit, NeedsAWaitOfItsThread) {
  const auto found = [](const std::string& end, const char* async) {
    const Outcome r =
        run(" @%q cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 128;\n" + end + " ret;", async);
    return r.result.findings.empty() ? "" : r.result.findings[0].cls + ": " + r.result.findings[0].message;
  };
  const std::string commit = " @%q cp.async.bulk.commit_group;\n", wait = " cp.async.bulk.wait_group";
  for (const char* async : {"eager", "late", "random:1", "random:2"}) {
    EXPECT_EQ(found(commit + wait + ".read 0;", async), "") << async;
    EXPECT_EQ(found(commit + wait + " 0;", async), "") << async;
    EXPECT_EQ(found(commit + commit + wait + ".read 1;", async), "") << async;  // the second group is empty
    EXPECT_THAT(found(commit, async), HasSubstr("lifetime.store: the block ends while")) << async;
    EXPECT_THAT(found(commit + wait + ".read 1;", async), HasSubstr("has not waited for its group")) << async;
    EXPECT_THAT(found(commit + " @!%q" + wait + " 0;", async), HasSubstr("has not waited")) << async;
    EXPECT_THAT(found(wait + " 0;", async), HasSubstr("neither committed it to a group nor waited")) << async;
  }
}

TEST(AsyncPolicy, SourcesAreReadLate) {
  // The source is overwritten before the wait: which value arrives is open, and late shows it.
  const std::string body =
      " cp.async.ca.shared.global [%w], [%x], 4; cp.async.commit_group;\n mov.u32 %v, 99; st.global.u32 "
      "[%x], %v;\n"
      " cp.async.wait_group 0;\n ld.shared.u32 %v, [%w];";
  EXPECT_EQ(run(body, "eager").out[3], 4u);
  EXPECT_EQ(run(body, "late").out[3], 99u);
}

TEST(AsyncPolicy, TwoCopiesOnOneBarrierCompleteLastToFirst) {
  // Both bring 64 bytes, the second to the same place: without an order either may win.
  const std::string body =
      cat(" @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 128;\n"
          " @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 64, [%b];\n"
          " add.u64 %i, %i, 128;\n"
          " @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 64, [%b];\n",
          kWait, " and.b32 %w, %t, 15; mad.lo.u32 %w, %w, 4, %s; ld.shared.u32 %v, [%w];");
  EXPECT_EQ(run(body, "eager").out[1], 34u);
  EXPECT_EQ(run(body, "late").out[1], 2u);
}

TEST(AsyncPolicy, WaitGroupReadCoversOnlyTheSource) {
  const std::string store =
      " mad.wide.u32 %x, %t, 4, %o; mov.u32 %v, 7; st.shared.u32 [%w], %v; fence.proxy.async; bar.sync 0;\n"
      " @%q cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 64;\n @%q cp.async.bulk.commit_group;\n";
  // The stage is free after .read: overwriting it changes nothing.
  const std::string reuse =
      " @%q cp.async.bulk.wait_group.read 0;\n bar.sync 0; mov.u32 %v, 8; st.shared.u32 [%w], %v;\n";
  const std::string wait = " @%q cp.async.bulk.wait_group 0;\n bar.sync 0; ld.global.u32 %v, [%x];";
  const std::string second = " and.b32 %z, %t, 15; mad.wide.u32 %x, %z, 4, %o;\n add.u64 %y, %y, 128;\n";
  for (const char* async : {"eager", "late", "random:1", "random:2", "random:3"})
    EXPECT_EQ(run(store + reuse + second + wait, async, 64).out[33], 7u) << async;
  // Without it the late read sees the new bytes.
  const std::string early = " mov.u32 %v, 8; st.shared.u32 [%w], %v; bar.sync 0;\n";
  EXPECT_EQ(run(store + early + second + wait, "late", 64).out[33], 8u);
  // .read alone does not make the result visible.
  const std::string read_only = " bar.sync 0; ld.global.u32 %v, [%x];";
  EXPECT_EQ(run(store + reuse + second + read_only, "late", 64).out[33], kJunk);
}

TEST(AsyncPolicy, StoresThatNobodyWaitsForStillArrive) {
  const std::string body =
      " mov.u32 %v, 7; st.shared.u32 [%w], %v; fence.proxy.async; bar.sync 0;\n add.u64 %o, %o, 128;\n"
      " @%q cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 128;\n @%q cp.async.bulk.commit_group;\n";
  for (const char* async : {"eager", "late", "random:4"}) {
    const Outcome r = run(body, async, 64);
    EXPECT_EQ(first_class(r.result), "lifetime.store");
    EXPECT_TRUE(r.result.clean());  // a warning: the store is made all the same
    EXPECT_EQ(r.out[40], 7u) << async;
  }
}

TEST(AsyncPolicy, ALoadInFlightWhenItsBlockExitsIsFound) {
  const std::string body =
      " @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 64;\n"
      " @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 64, [%b];\n "
      "mov.u32 %v, 1;";
  EXPECT_EQ(first_class(run(body, "late").result), "lifetime.dsmem");
  EXPECT_CLEAN(run(body + kWait, "late").result);
}

TEST(AsyncPolicy, TryWaitMayFailForNoReason) {
  // Counts how often try_wait is false although the phase is complete.
  const std::string body = R"(
 @%q mbarrier.arrive.shared::cta.b64 %i, [%b];
 bar.sync 0;
 mov.u32 %v, 0; mov.u32 %z, 0;
L: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
 @!%p add.u32 %v, %v, 1;
 add.u32 %z, %z, 1; setp.lt.u32 %p, %z, 64; @%p bra L;
)";
  EXPECT_EQ(run(body, "eager").out[0], 0u);
  EXPECT_EQ(run(body, "late").out[0], 0u);
  EXPECT_GT(run(body, "random:1").out[0], 4u);
  EXPECT_EQ(run(body, "random:9").out, run(body, "random:9").out);
}

// ---------------------------------------------------------------- mbarrier misuse
std::string misuse(const std::string& body, const char* async = "eager") {
  const Outcome r = run(body + " mov.u32 %v, 0;", async);
  return first_class(r.result);
}

TEST(MbarrierMisuse, BrokenAndCorrectTwins) {
  // the live object is opaque
  EXPECT_EQ(misuse(" ld.shared.b64 %i, [%b];"), "mbarrier.state");
  EXPECT_EQ(
      misuse(" @%q mbarrier.inval.shared::cta.b64 [%b]; bar.sync 0; st.shared.b64 [%b], %i; bar.sync 0; "
             "ld.shared.b64 %i, [%b];"),
      "");
  // overwritten, then used
  EXPECT_EQ(misuse(" @%q st.shared.b64 [%b], %i; @%q mbarrier.arrive.shared::cta.b64 %x, [%b];"),
            "mbarrier.state");
  // used after inval
  EXPECT_EQ(misuse(" @%q mbarrier.inval.shared::cta.b64 [%b]; @%q mbarrier.arrive.shared::cta.b64 %x, [%b];"),
            "mbarrier.state");
  // initialised again while live
  EXPECT_EQ(misuse(" @%q mbarrier.init.shared::cta.b64 [%b], 1;"), "mbarrier.state");
  EXPECT_EQ(misuse(" @%q mbarrier.inval.shared::cta.b64 [%b]; @%q mbarrier.init.shared::cta.b64 [%b], 1;"),
            "");
  // counts
  EXPECT_EQ(misuse(" @%q mbarrier.arrive.shared::cta.b64 %x, [%b], 2;"), "mbarrier.count");
  EXPECT_EQ(misuse(" @%q mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 1048575;"
                   " @%q mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 16;"),
            "mbarrier.tx");
}

TEST(MbarrierMisuse, AStateTwoPhasesBack) {
  const std::string arrive = " @%q mbarrier.arrive.shared::cta.b64 %x, [%b]; bar.sync 0;\n";
  const std::string wait = " @%q mbarrier.test_wait.shared::cta.b64 %p, [%b], %i;\n";
  const std::string first = " @%q mbarrier.arrive.shared::cta.b64 %i, [%b]; bar.sync 0;\n";
  EXPECT_EQ(misuse(first + wait), "");
  EXPECT_EQ(misuse(first + arrive + wait), "mbarrier.phase");
}

// Thread 0 of another warp completes phase after phase, with and without an answer of the waiter.
TEST(MbarrierMisuse, APhaseThatGoesOnWithoutItsWaiter) {
  const auto launch = [](const std::string& between) {
    Kit kit;
    return findings(kit.launch(cat(R"(
.visible .entry k() {
 .reg .u64 %x; .reg .u32 %t, %b, %c, %n; .reg .pred %p, %q; .shared .align 8 .b64 bars[2];
 mov.u32 %t, %tid.x; mov.u32 %b, bars; add.u32 %c, %b, 8; setp.eq.u32 %q, %t, 0;
 @%q mbarrier.init.shared::cta.b64 [%b], 1; @%q mbarrier.init.shared::cta.b64 [%c], 32;
 bar.sync 0;
 setp.ge.u32 %p, %t, 32; @%p bra WAITER;
 mov.u32 %n, 0;
L: add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 20000; @%p bra L;
 @%q mbarrier.arrive.shared::cta.b64 %x, [%b];
)",
                                   between, R"(
 @%q mbarrier.arrive.shared::cta.b64 %x, [%b];
 ret;
WAITER:
W0: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W0;
 mbarrier.arrive.shared::cta.b64 %x, [%c];
W1: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 1; @!%p bra W1;
 ret;
})"),
                               {}, {64, 1, 1}, Params()));
  };
  EXPECT_THAT(launch(""), HasSubstr("mbarrier.phase: waits for phase 0"));
  EXPECT_EQ(launch(" A: mbarrier.try_wait.parity.shared::cta.b64 %p, [%c], 0; @!%p bra A;\n"), "");
}

TEST(MbarrierMisuse, AParityThatNeverComes) {
  const Outcome r =
      run(" @%q mbarrier.arrive.shared::cta.b64 %i, [%b]; bar.sync 0;\n"
          "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 1; @!%p bra W; mov.u32 %v, 0;",
          "eager");
  ASSERT_EQ(first_class(r.result), "deadlock");
  EXPECT_THAT(findings(r.result), HasSubstr("waits for parity 1, done when phase 1 completes"));
  EXPECT_THAT(findings(r.result), HasSubstr("last changed by warp 0 of block (0,0,0) at PTX line"));
}

// Block 0 reads block 1's shared memory after a cluster barrier; then both end as `end` says. That block 0
// comes first is luck without an end that orders it.
TEST(DsmemLifetime, ABlockMustWaitForItsReaders) {
  const auto launch = [](const std::string& after_read, const std::string& end, const char* schedule) {
    Kit kit;
    parse_schedule(schedule).apply(kit.options);
    const auto out = kit.upload(std::vector<u32>(32), "out");
    return findings(kit.launch(
        cat(R"(
.visible .entry k(.param .u64 po) .reqnctapercluster 2, 1, 1 {
 .reg .u64 %o, %x; .reg .u32 %t, %s, %v, %r, %b; .reg .pred %p, %q; .shared .align 16 .b8 buf[128]; .shared .align 8 .b64 bar;
 ld.param.u64 %o, [po]; mov.u32 %t, %tid.x; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %r, %cluster_ctarank;
 setp.eq.u32 %q, %t, 0;
 @%q mbarrier.init.shared::cta.b64 [%b], 1;
 mad.lo.u32 %s, %t, 4, %s; st.shared.u32 [%s], %t;
 barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
 setp.ne.u32 %p, %r, 0; @%p bra OTHER;
 mapa.shared::cluster.u32 %s, %s, 1; mapa.shared::cluster.u32 %b, %b, 1;
 ld.shared::cluster.u32 %v, [%s];
)",
            after_read, R"(
 mad.wide.u32 %o, %t, 4, %o; st.global.u32 [%o], %v;
 bra END;
OTHER:
)",
            end == "wait" ? "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [%b], 0; "
                            "@!%p bra W;\n"
                          : "",
            "END:\n",
            end == "cluster" ? "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" : "",
            " ret;\n}"),
        {2, 1, 1}, {32, 1, 1}, Params().add(out), 0, {2, 1, 1}));
  };
  const std::string arrive =
      " bar.sync 0; @%q mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%b];\n";
  for (const char* schedule : {"fair", "adversarial", "random:1", "random:2"}) {
    EXPECT_THAT(launch("", "", schedule), HasSubstr("lifetime.dsmem")) << schedule;
    EXPECT_EQ(launch("", "cluster", schedule), "") << schedule;
    EXPECT_EQ(launch(arrive, "wait", schedule), "") << schedule;
  }
}

TEST(SetMaxNReg, WarpsOfAWarpgroupMustAgree) {
  const auto launch = [](const char* second) {
    Kit kit;
    return first_class(
        kit.launch(cat(".visible .entry k() .maxntid 256, 1, 1 {\n .reg .u32 %t; .reg .pred %p;\n mov.u32 "
                       "%t, %tid.x; setp.lt.u32 "
                       "%p, %t, 64; @%p bra A;\n setmaxnreg.dec.sync.aligned.u32 ",
                       second, "; bra E;\nA: setmaxnreg.dec.sync.aligned.u32 40;\nE: ret;\n}\n"),
                   {}, {128, 1, 1}, Params()));
  };
  EXPECT_EQ(launch("40"), "");
  EXPECT_EQ(launch("56"), "setmaxnreg");
}

}  // namespace
}  // namespace cgp::emu
