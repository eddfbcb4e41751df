// SPDX-License-Identifier: Apache-2.0
// Programs that break tcgen05's rules, and what is said about them; allocation between warps and CTAs.
#include "cgp/emu/tensor/tcgen05_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;
using u32 = std::uint32_t;

// 128 threads; %w warp, %th thread, %t the address of the 64 columns that warp 0 allocates, %b an mbarrier of
// count 1 (phase 0), %s 16 KiB of zeros; warp 0 frees at FREE.
std::string program(const std::string& body, const std::string& end = "", const std::string& entry = "") {
  return cat(
      ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 po)", entry,
      " {\n .reg .u64 %o, %x; .reg .b64 %rd<8>; .reg .b32 %t, %v, %r<16>; .reg .u32 %th, %w, %s, %b, %a; "
      ".reg .pred "
      "%p, %q, %yes, %no; .reg .b32 %d<32>; .reg .b16 %h;\n"
      " .shared .align 1024 .b8 buf[16384]; .shared .align 8 .b64 bar; .shared .align 4 .b32 slot[4];\n"
      " mov.u32 %th, %tid.x; shr.u32 %w, %th, 5; mov.u32 %s, buf; mov.u32 %b, bar; ld.param.u64 %o, [po]; "
      "setp.eq.u32 %yes, %th, %th; setp.ne.u32 %no, %th, %th;\n mov.u32 %a, %th;\n"
      "FILL: mad.lo.u32 %v, %a, 4, %s; st.shared.u32 [%v], 0; add.u32 %a, %a, 128; setp.lt.u32 %p, %a, 4096; "
      "@%p bra "
      "FILL;\n setp.ne.u32 %p, %th, 0; @%p bra I; mbarrier.init.shared::cta.b64 [%b], 1; "
      "fence.mbarrier_init.release.cluster;\n"
      "I: setp.ne.u32 %p, %w, 0; @%p bra J; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], "
      "64;\n"
      "J: fence.proxy.async.shared::cta; tcgen05.fence::before_thread_sync; bar.sync 0; "
      "tcgen05.fence::after_thread_sync; ld.shared.b32 %t, [slot];\n"
      " shr.u32 %v, %s, 4; cvt.u64.u32 %rd0, %v; or.b64 %rd0, %rd0, 0x4000404000010000; mov.b64 %rd1, %rd0; "
      "mov.b32 "
      "%r0, 0x8100490;\n",
      body, "\n tcgen05.fence::before_thread_sync; bar.sync 0;\n",
      end.empty() ? " setp.ne.u32 %p, %w, 0; @%p bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, "
                    "64;\nEND:\n"
                  : end,
      " ret;\n}\n");
}

// M = 128, N = 64, K = 16, all zeros, by thread 0.
const std::string kMultiply =
    " setp.ne.u32 %q, %th, 0; @%q bra MULTIPLIED;\n tcgen05.mma.cta_group::1.kind::f16 [%t], %rd0, %rd1, "
    "%r0, %no;\n";
const std::string kCommit = " tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%b];\n";
const std::string kWaitAlone =
    "MULTIPLIED:\n bar.warp.sync -1;\nW: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; "
    "@!%p bra W;\n";
const std::string kWait = kWaitAlone + " tcgen05.fence::after_thread_sync;\n";
const std::string kLoad =
    " shl.b32 %v, %w, 21; add.u32 %v, %v, %t; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%v]; "
    "tcgen05.wait::ld.sync.aligned; mad.wide.u32 %x, %th, 4, %o; st.global.b32 [%x], %d0;\n";

Result run(const std::string& ptx, AsyncPolicy policy = AsyncPolicy::eager, std::uint32_t cluster = 1) {
  Machine machine("sm_100a");
  auto p = Program::load(ptx);
  EXPECT_EQ(p->entry("k").unsupported, "");
  const auto instance = machine.load(p);
  Params params;
  params.add(machine.alloc(4096, "out"));
  Launch l;
  l.entry = "k";
  l.grid = l.cluster = {cluster, 1, 1};
  l.block = {128, 1, 1};
  l.params = params.span();
  Options o;
  o.async = policy;
  o.workers = 1;
  return machine.launch(instance, l, o);
}
std::string said(const Result& r) {
  std::string s;
  for (const Finding& f : r.findings) s += f.cls + ": " + f.message + "\n";
  return s;
}
std::string said(const std::string& ptx, AsyncPolicy policy = AsyncPolicy::eager) {
  return said(run(ptx, policy));
}

TEST(TensorMisuse, TheSoundProgramIsSilent) {
  const std::string ptx = program(kMultiply + kCommit + kWait + kLoad);
  expect_assembles(ptx);
  for (AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random})
    EXPECT_CLEAN(run(ptx, policy));
}

TEST(TensorMisuse, MissingCommitOrWait) {
  // Without the commit nobody ever arrives; without the wait the result is not there yet.
  EXPECT_THAT(said(program(kMultiply + kWait + kLoad), AsyncPolicy::late), HasSubstr("deadlock"));
  const std::string late =
      said(program(kMultiply + kCommit + "MULTIPLIED: bar.warp.sync -1;\n" + kLoad), AsyncPolicy::late);
  EXPECT_THAT(late, HasSubstr("uninit.tensor"));
  // A commit by a thread that issued nothing covers nothing.
  const std::string stranger =
      said(program(kMultiply + "MULTIPLIED: bar.sync 0; setp.ne.u32 %q, %th, 33; @%q bra X;\n" + kCommit +
                   "X: bar.warp.sync "
                   "-1;\nW: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;\n" +
                   kLoad),
           AsyncPolicy::late);
  EXPECT_THAT(stranger, HasSubstr("uninit.tensor"));
}

// The threads are ordered, but a tcgen05.fence is missing on either side.
TEST(TensorRaces, FencesAtThreadSynchronisation) {
  const auto lacks = [](const std::string& ptx) {
    std::string s;
    for (const Finding& f : run(ptx).findings) s += f.cls + ": " + f.missing_edge + "\n";
    return s;
  };
  const std::string own = " shl.b32 %v, %w, 21; add.u32 %v, %v, %t; ";
  const std::string load = own +
                           "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%v];\n "
                           "tcgen05.wait::ld.sync.aligned;\n",
                    store = own +
                            "mov.b32 %d1, 7; tcgen05.st.sync.aligned.32x32b.x1.b32 [%v], {%d1};\n "
                            "tcgen05.wait::st.sync.aligned;\n";
  const std::string before = " tcgen05.fence::before_thread_sync;\n",
                    after = " tcgen05.fence::after_thread_sync;\n", barrier = " bar.sync 0;\n",
                    multiply = kMultiply + kCommit;
  const std::string no_after = "race.tensor_fence: no tcgen05.fence::after_thread_sync",
                    no_before = "race.tensor_fence: no tcgen05.fence::before_thread_sync";
  EXPECT_THAT(lacks(program(multiply + kWaitAlone + load)), HasSubstr(no_after));
  EXPECT_THAT(lacks(program(multiply + after + kWaitAlone + load)), HasSubstr(no_after));
  for (const std::string& transfer : {load, store}) {
    const std::string rest = multiply + kWait;
    const std::string first = transfer == load ? store + transfer : transfer;
    EXPECT_EQ(lacks(program(first + before + barrier + after + rest)), "");
    EXPECT_THAT(lacks(program(first + barrier + after + rest)), HasSubstr(no_before));
    EXPECT_THAT(lacks(program(first + before + barrier + rest)), HasSubstr(no_after));
    // A fence ahead of the operation, or behind the barrier, is none.
    EXPECT_THAT(lacks(program(before + first + barrier + before + after + rest)), HasSubstr(no_before));
    EXPECT_THAT(lacks(program(first + before + after + barrier + rest)), HasSubstr(no_after));
  }
}

// Races are found whatever the policy: here everything completes at issue.
TEST(TensorRaces, OnTensorMemory) {
  const std::string sync =
      " tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n";
  const std::string own = " shl.b32 %v, %w, 21; add.u32 %v, %v, %t; ";
  const std::string load = own + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%v];\n",
                    store = own + "mov.b32 %d1, 7; tcgen05.st.sync.aligned.32x32b.x1.b32 [%v], {%d1};\n";
  const std::string wait_ld = " tcgen05.wait::ld.sync.aligned;\n",
                    wait_st = " tcgen05.wait::st.sync.aligned;\n";
  const std::string multiply = kMultiply + kCommit;
  // A multiplication, then a load that did not wait for it.
  EXPECT_THAT(said(program(multiply + "MULTIPLIED: bar.warp.sync -1;" + sync + load + wait_ld)),
              HasSubstr("race.async: the asynchronous tcgen05.ld reads"));
  EXPECT_EQ(said(program(multiply + kWait + load + wait_ld)), "");
  // A store, then a multiplication by another thread.
  EXPECT_THAT(said(program(store + sync + multiply + kWait)),
              HasSubstr("that the asynchronous tcgen05.st (PTX line"));
  EXPECT_THAT(said(program(store + wait_st + multiply + kWait)), HasSubstr("race.async"));
  EXPECT_EQ(said(program(store + wait_st + sync + multiply + kWait)), "");
  // A store and a load of one warp without the wait between them.
  EXPECT_THAT(said(program(store + load + wait_st + wait_ld)),
              HasSubstr("race.async: the asynchronous tcgen05.ld reads"));
  EXPECT_EQ(said(program(store + wait_st + load + wait_ld)), "");
  // A load, then a multiplication over it.
  const std::string full = store + wait_st + sync;
  EXPECT_THAT(said(program(full + load + sync + multiply + kWait + wait_ld)),
              HasSubstr("race.async: the asynchronous tcgen05.mma writes"));
  EXPECT_EQ(said(program(full + load + wait_ld + sync + multiply + kWait)), "");
  // Freed while other warps may still read.
  const std::string free_now =
      " setp.ne.u32 %p, %w, 0; @%p bra F; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 64;\nF:\n";
  EXPECT_THAT(said(program(full + " setp.eq.u32 %p, %w, 0; @%p bra G;" + load + wait_ld +
                               "G: bar.warp.sync -1;\n" + free_now,
                           " mov.u32 %a, 0;\n")),
              HasSubstr("race.async"));
}

TEST(TensorRaces, OnSharedOperands) {
  const std::string refill = " st.shared.u32 [%s], 0;\n";
  EXPECT_THAT(said(program(kMultiply + kCommit + refill + kWait)),
              HasSubstr("race.async: this thread writes 4 bytes"));
  EXPECT_EQ(said(program(kMultiply + kCommit + kWait + " bar.sync 0;\n" +
                         " setp.ne.u32 %q, %th, 0; @!%q st.shared.u32 [%s], "
                         "0;\n")),
            "");
  // A store to the operand that no proxy fence covers.
  EXPECT_THAT(said(program(" setp.ne.u32 %q, %th, 5; @!%q st.shared.u32 [%s], 0; bar.sync 0;\n" + kMultiply +
                           kCommit + kWait)),
              HasSubstr("race.proxy"));
  EXPECT_EQ(said(program(" setp.ne.u32 %q, %th, 5; @!%q st.shared.u32 [%s], 0; "
                         "fence.proxy.async.shared::cta; bar.sync 0;\n" +
                         kMultiply + kCommit + kWait)),
            "");
}

TEST(TensorMisuse, RegistersBeforeTheWait) {
  const std::string body =
      kMultiply + kCommit + kWait +
      " shl.b32 %v, %w, 21; add.u32 %v, %v, %t; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%v]; ";
  const std::string wait = " tcgen05.wait::ld.sync.aligned;", use = " add.u32 %a, %d0, 1;",
                    set = " mov.b32 %d0, 1;";
  EXPECT_EQ(said(program(body + wait + use + set)), "");
  EXPECT_THAT(
      said(program(body + use + wait)),
      HasSubstr(
          "async.tensor_load: reads %d0, which the asynchronous 'tcgen05.ld.sync.aligned.32x32b.x1.b32'"));
  EXPECT_THAT(said(program(body + set + wait)), HasSubstr("async.tensor_load: overwrites %d0"));
  // A warning: whoever touches the register gets what was loaded, however late.
  const std::string depends = " setp.ne.u32 %p, %d0, 0; @%p trap;";
  for (AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random}) {
    const Result r = run(program(body + depends + wait), policy);
    ASSERT_EQ(r.findings.size(), 1u) << said(r);
    EXPECT_EQ(r.findings[0].cls, "async.tensor_load");
    EXPECT_TRUE(r.clean());
  }
  const std::string store =
      " tcgen05.st.sync.aligned.32x32b.x1.b32 [%v], {%d0}; mov.b32 %d0, 2; "
      "tcgen05.wait::st.sync.aligned;";
  EXPECT_EQ(said(program(body + wait + store)), "");
}

TEST(TensorMisuse, Addresses) {
  const std::string sound = kMultiply + kCommit + kWait;
  const auto load = [&](const std::string& address) {
    return said(program(sound + address +
                        " tcgen05.ld.sync.aligned.32x32b.x4.b32 {%d0,%d1,%d2,%d3}, [%v]; "
                        "tcgen05.wait::ld.sync.aligned;\n"));
  };
  EXPECT_THAT(load(" mov.b32 %v, %t;"),
              HasSubstr("oob.tensor: tcgen05.ld reads lanes 0 to 31; warp 1 reaches lanes 32 "
                        "to 63 of Tensor Memory"));
  const std::string own = " shl.b32 %v, %w, 21; add.u32 %v, %v, %t; ";
  EXPECT_THAT(load(own + "add.u32 %v, %v, 62;"), HasSubstr("column 64 is not allocated"));
  EXPECT_THAT(load(own + "add.u32 %v, %v, 510;"), HasSubstr("it has 512 columns"));
  EXPECT_THAT(load(own + "add.u32 %v, %v, %th;"),
              HasSubstr("barrier.divergence: the address operand of tcgen05.ld"));
  EXPECT_THAT(said(program(" mov.b32 %r0, 0x8210490;" + sound)), HasSubstr("tcgen05"));
  EXPECT_THAT(said(program(" add.u32 %t, %t, 2097152;" + sound)), HasSubstr("it must start at lane 0"));
  EXPECT_THAT(said(program(" add.u32 %t, %t, 32;" + sound)),
              HasSubstr("oob.tensor: tcgen05.mma writes lanes 0 to 127, "
                        "columns 32 to 95"));
}

TEST(TensorMisuse, Descriptors) {
  const auto with = [&](const std::string& change) {
    return said(program(change + kMultiply + kCommit + kWait));
  };
  EXPECT_THAT(with(" mov.b32 %r0, 0x8100890;"),
              HasSubstr("bits 10-12 (type of B) are 2; .kind::f16 takes 0 (f16) and 1 "
                        "(bf16)"));
  EXPECT_THAT(with(" mov.b32 %r0, 0x8100410;"), HasSubstr("takes A and B of the same type"));
  EXPECT_THAT(with(" mov.b32 %r0, 0x81004a0;"), HasSubstr("bits 4-5 (type of D) are 2; bf16 takes 1 (f32)"));
  EXPECT_THAT(with(" mov.b32 %r0, 0x2100490;"), HasSubstr("bits 24-28: M is 32; legal are 64 and 128"));
  EXPECT_THAT(with(" mov.b32 %r0, 0x8000490;"), HasSubstr("bits 17-22: N is 0"));
  EXPECT_THAT(with(" mov.b32 %r0, 0x8100498;"), HasSubstr("bit 3 (saturate)"));
  EXPECT_THAT(with(" mov.b32 %r0, 0x8100494;"),
              HasSubstr("bit 2 (sparsity) is true, but the instruction is not .sp"));
  EXPECT_THAT(with(" and.b64 %rd0, %rd0, 0xffff3fffffffffff;"),
              HasSubstr("tcgen05.descriptor: the descriptor of A"));
  EXPECT_THAT(with(" and.b64 %rd0, %rd0, 0xffff3fffffffffff;"),
              HasSubstr("bits 46-48 are 0; sm_100 needs the constant 1"));
  // It says nothing about where the elements are: the multiplication goes on, and the commit arrives.
  EXPECT_THAT(with(" and.b64 %rd0, %rd0, 0xffff3fffffffffff;"), Not(HasSubstr("deadlock")));
  EXPECT_THAT(with(" or.b64 %rd1, %rd1, 0x6000000000000000;"), HasSubstr("the layout (bits 61-63) is 3"));
  EXPECT_THAT(with(" add.u64 %rd1, %rd1, 1024;"),
              HasSubstr("oob.shared: operand B of tcgen05.mma reads shared memory at"));
}

TEST(TensorMisuse, CommitTakesASharedAddressWithoutItsSpace) {
  const std::string commit =
      " cvt.u64.u32 %x, %b; tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%x];\n";
  EXPECT_EQ(said(program(kMultiply + commit + kWait + kLoad)),
            said(program(kMultiply + kCommit + kWait + kLoad)));
}

TEST(TensorMisuse, Uninitialised) {
  EXPECT_THAT(said(program(kLoad)),
              HasSubstr("uninit.tensor: reads bytes of Tensor Memory that were never written"));
  const std::string adds =
      " setp.ne.u32 %q, %th, 0; @%q bra MULTIPLIED;\n tcgen05.mma.cta_group::1.kind::f16 [%t], "
      "%rd0, %rd1, %r0, %yes;\n";
  EXPECT_THAT(said(program(adds + kCommit + kWait)),
              HasSubstr("uninit.tensor: tcgen05.mma adds to D at lane 0"));
}

// ---------------------------------------------------------------- allocation
TEST(TensorMisuse, Allocation) {
  const auto ends = [](const std::string& end) { return said(program(" mov.u32 %a, 0;", end)); };
  EXPECT_THAT(ends(" mov.u32 %a, 1;\n"),
              HasSubstr("lifetime.tensor: the block exits with columns 0 to 63 of Tensor "
                        "Memory still allocated"));
  const auto by_warp = [&](int warp, const std::string& what) {
    return ends(cat(" setp.ne.u32 %p, %w, ", warp, "; @%p bra END; ", what, "\nEND:\n"));
  };
  const std::string free64 = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 64;";
  EXPECT_THAT(by_warp(0, free64 + free64), HasSubstr("freed before at PTX line"));
  EXPECT_THAT(by_warp(1, free64), HasSubstr("tcgen05.dealloc by warp 1; warp 0 allocated"));
  EXPECT_THAT(by_warp(0, "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32;"),
              HasSubstr("tcgen05.dealloc of 32 columns at 0x0; 64 were allocated"));
  EXPECT_THAT(
      by_warp(
          0, free64 + " mov.b32 %v, 48; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], %v;"),
      HasSubstr("tcgen05.alloc: 48 columns"));
  EXPECT_THAT(
      by_warp(0, free64 + " tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; "
                          "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32; "
                          "ld.shared.b32 %v, [slot]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %v, 32;"),
      HasSubstr("tcgen05.alloc after tcgen05.relinquish_alloc_permit"));
  EXPECT_THAT(by_warp(0, free64 + " tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%t];"),
              HasSubstr("column 0 was freed by tcgen05.dealloc at PTX line"));
}

TEST(TensorMisuse, FullMemoryBlocksUntilItIsFreed) {
  // Warp 1 asks for 512 columns while warp 0 holds 64: it goes on when they are free, or never.
  const std::string ask =
      " setp.ne.u32 %p, %w, 1; @%p bra N; "
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot+4], 512; ld.shared.b32 %v, "
      "[slot+4]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %v, 512;\nN:\n";
  const std::string free =
      " setp.ne.u32 %p, %w, 0; @%p bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 64;\n"
      "END:\n";
  const std::string good = program(" mov.u32 %a, 0;", free + ask), bad = program(ask, free);
  expect_assembles(good);
  EXPECT_CLEAN(run(good));
  const Result r = run(bad);
  EXPECT_EQ(first_class(r), "deadlock");
  EXPECT_THAT(findings(r),
              HasSubstr("tcgen05.alloc of 512 columns: 448 of 512 are free; 64 are held since PTX line"));
}

// Each CTA of the pair allocates and frees; `once` makes rank 1 leave out its part.
std::string pair(const std::string& rank1) {
  return cat(
      ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 po) {\n .reg .b32 %t, "
      "%v; "
      ".reg .u32 %th, %w, %r; .reg .pred %p;\n .shared .align 4 .b32 slot;\n mov.u32 %th, %tid.x; shr.u32 "
      "%w, %th, "
      "5; mov.u32 %r, %cluster_ctarank; setp.ne.u32 %p, %w, 0; @%p bra END;\n setp.eq.u32 %p, %r, 1; @%p bra "
      "ONE;\n tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 128; ld.shared.b32 %t, [slot]; "
      "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned; "
      "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %t, 128; bra END;\nONE:\n",
      rank1, "\nEND: ret;\n}\n");
}

TEST(TensorMisuse, Pairs) {
  const std::string same =
      " tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 128; ld.shared.b32 %t, "
      "[slot]; tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned; "
      "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %t, 128;";
  expect_assembles(pair(same));
  EXPECT_CLEAN(run(pair(same), AsyncPolicy::eager, 2));
  EXPECT_CLEAN(run(pair(same), AsyncPolicy::late, 4));
  EXPECT_THAT(said(run(pair(same), AsyncPolicy::eager, 1)),
              HasSubstr("tcgen05.pair: .cta_group::2 needs a pair of CTAs"));
  const Result absent = run(pair(" mov.u32 %v, 0;"), AsyncPolicy::eager, 2);
  EXPECT_EQ(first_class(absent), "deadlock");
  EXPECT_THAT(findings(absent), HasSubstr("no warp of the peer CTA, rank 1, has executed its part"));
  EXPECT_THAT(said(run(pair(" tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 64;"),
                       AsyncPolicy::eager, 2)),
              HasSubstr("tcgen05.pair: the CTAs of a pair execute different operations on Tensor Memory"));
}

TEST(TensorDevice, Properties) {
  for (const char* arch : {"sm_100", "sm_100a", "sm_100f", "sm_103a"}) {
    const DeviceProperties p = device_properties(arch);
    EXPECT_EQ(p.shared_per_block_optin, 227u * 1024);
    EXPECT_EQ(p.sm_count, 148);
    EXPECT_EQ(p.max_cluster, 16u);
  }
  EXPECT_EQ(device_properties("sm_120a").shared_per_block_optin, 99u * 1024);
  EXPECT_EQ(device_properties("sm_121f").max_warps_per_sm, 48);
}

TEST(TensorDevice, TargetsAndDevices) {
  const auto refusal = [](const std::string& target) {
    return Program::load(
               ".version 8.8\n.target " + target +
               "\n.address_size 64\n.visible .entry k() { tcgen05.fence::before_thread_sync; ret; }")
        ->entry("k")
        .unsupported;
  };
  for (const char* good : {"sm_100a", "sm_100f", "sm_103a", "sm_103f"}) EXPECT_EQ(refusal(good), "");
  for (const char* bad : {"sm_100", "sm_90a", "sm_120a"})
    EXPECT_THAT(refusal(bad), HasSubstr("has no Tensor Memory; it needs sm_100a, sm_100f or sm_103a"));
  Machine machine("sm_90a");
  const auto instance = machine.load(Program::load(program("")));
  Params params;
  params.add(machine.alloc(4096));
  Launch l;
  l.entry = "k";
  l.block = {128, 1, 1};
  l.params = params.span();
  EXPECT_THROW(machine.launch(instance, l), Unsupported);
}

}  // namespace
}  // namespace cgp::emu
