// SPDX-License-Identifier: Apache-2.0
// Each rule of the race detector as a pair of small kernels: one that lacks the ordering, and its twin that
// has it and must be silent. Both run under every policy.
#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using text::cat;

/// `body` holds @@ where the ordering belongs; `bad` instead of `good` there must be found as `cls`.
struct Case {
  const char* name;
  std::uint32_t blocks, threads, cluster;
  const char* body;
  const char* good;
  const char* bad;
  const char* cls;
};

// %t thread, %b block, %q in warp 0, %p first thread; %s 8 KiB of shared memory, %a its word of the thread,
// %n the word of thread t^33 (the other warp; with one warp the neighbour); %i and %o buffers of zeros, %oa
// the thread's word of %o; %f a flag word beyond; %m, %e mbarriers.
std::string kernel(const Case& c, bool good) {
  std::string body = c.body;
  for (std::size_t at; (at = body.find("@@")) != body.npos;) body.replace(at, 2, good ? c.good : c.bad);
  return cat(
      ".visible .entry k(.param .u64 pi, .param .u64 po)",
      c.cluster > 1 ? cat(" .reqnctapercluster ", c.cluster, ", 1, 1") : std::string(), "\n{\n",
      " .reg .u64 %i, %o, %oa, %f, %x<4>; .reg .u32 %t, %b, %s, %a, %n, %m, %e, %r<8>, %v, %w; .reg .pred "
      "%p, "
      "%q, %g<4>;\n .reg .b64 %st;\n"
      " .shared .align 128 .b8 buf[8192]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;\n"
      " ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; add.u64 %f, %o, 8192;\n"
      " mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %s, buf; mov.u32 %m, full; mov.u32 %e, empty;\n"
      " mad.lo.u32 %a, %t, 4, %s; mov.u32 %r0, %ntid.x; setp.gt.u32 %p, %r0, 32; selp.u32 %r1, 33, 1, %p;\n"
      " xor.b32 %n, %t, %r1; mad.lo.u32 %n, %n, 4, %s; mad.lo.u32 %r0, %b, %r0, %t; mul.wide.u32 %oa, %r0, "
      "4;\n"
      " add.u64 %oa, %oa, %o; setp.lt.u32 %q, %t, 32; setp.eq.u32 %p, %t, 0; add.u32 %v, %r0, 1;\n",
      body, "\n ret;\n}\n");
}

struct Policy {
  const char* name;
  AsyncPolicy async;
  SchedulePolicy schedule;
  std::uint64_t seed;
};
constexpr Policy kPolicies[] = {{"eager fair", AsyncPolicy::eager, SchedulePolicy::fair, 0},
                                {"late fair", AsyncPolicy::late, SchedulePolicy::fair, 0},
                                {"random random", AsyncPolicy::random, SchedulePolicy::random, 1},
                                {"late diverge", AsyncPolicy::late, SchedulePolicy::diverge, 2},
                                {"eager adversarial", AsyncPolicy::eager, SchedulePolicy::adversarial, 3}};

Result run(const Case& c, bool good, const Policy& p, int workers = 0, std::string_view checks = "all") {
  Kit kit;
  if (workers) kit.options.workers = workers;
  kit.options.async = p.async;
  kit.options.schedule = p.schedule;
  kit.options.seed = kit.options.schedule_seed = p.seed;
  // A test of order alone: whether a racing read meets written memory depends on the policy.
  kit.options.checks = parse_checks(checks) - Check::uninit;
  const std::uint64_t in = kit.upload(std::vector<std::uint32_t>(2048, 3), "in");
  const std::uint64_t out = kit.upload(std::vector<std::uint32_t>(2112), "out");
  return kit.launch(kernel(c, good), {c.blocks, 1, 1}, {c.threads, 1, 1}, Params().add(in).add(out), 0,
                    {c.cluster, 1, 1});
}

const Case kCases[] = {
    // ------------------------------------------------ one instruction, several lanes
    {"stmatrix_rows_of_one_address", 1, 32, 1, "@@ stmatrix.sync.aligned.m8n8.x1.shared.b16 [%s], {%r2};",
     "mov.u32 %r2, 9;", "mov.u32 %r2, %t;", "race.shared"},
    {"bulk_store_of_a_whole_warp", 1, 32, 1,
     "st.shared.u32 [%a], %v; fence.proxy.async; bar.sync 0; @@ cp.async.bulk.global.shared::cta.bulk_group "
     "[%x0], [%s], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
     "mov.u64 %x0, %o;", "mul.wide.u32 %x0, %t, 16; add.u64 %x0, %x0, %o;", "race.async"},
    // ------------------------------------------------ generic accesses to shared memory by name
    {"generic_access_by_name", 1, 64, 1, "@%p st.u32 [buf], 7; @@ ld.u32 %w, [buf]; st.global.u32 [%oa], %w;",
     "bar.sync 0;", "", "race.shared"},
    // ------------------------------------------------ initialisation of mbarriers
    {"mbarrier_init_in_the_block", 1, 64, 1,
     "@%p mbarrier.init.shared.b64 [%m], 64; @@ mbarrier.arrive.shared.b64 %st, [%m];", "bar.sync 0;", "",
     "race.shared"},
    {"mbarrier_init_in_the_cluster", 2, 32, 2,
     "@%p mbarrier.init.shared.b64 [%m], 1; fence.mbarrier_init.release.cluster; @@\n"
     "mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r3, %m, %r2;\n"
     "@%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];\n"
     "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
     "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", "bar.sync 0;", "race.shared"},
    // ------------------------------------------------ one block
    {"missing_barrier", 1, 64, 1,
     "st.shared.u32 [%a], %v; @@ ld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w;", "bar.sync 0;", "",
     "race.shared"},
    {"missing_syncwarp", 1, 32, 1,
     "st.shared.u32 [%a], %v; @@ ld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w;", "bar.warp.sync -1;", "",
     "race.shared"},
    {"syncwarp_of_too_few", 1, 32, 1,
     "st.shared.u32 [%a], %v; and.b32 %r2, %t, 16; setp.eq.u32 %g0, %r2, 0;\n@!%g0 bra L;\nbar.warp.sync "
     "0xffff; bra "
     "E;\nL: bar.warp.sync 0xffff0000;\nE: @@ xor.b32 %r3, %t, 16; mad.lo.u32 %r3, %r3, 4, %s; ld.shared.u32 "
     "%w, "
     "[%r3]; st.global.u32 [%oa], %w;",
     "bar.warp.sync -1;", "", "race.shared"},
    {"halves_of_a_warp_meet", 1, 32, 1,
     "st.shared.u32 [%a], %v; setp.lt.u32 %g0, %t, 16;\n@%g0 bra L;\nbar.warp.sync 0xffff0000; bra E;\nL: "
     "bar.warp.sync 0xffff;\nE: @@ ld.shared.u32 %w, [%r3]; st.global.u32 [%oa], %w;",
     "xor.b32 %r3, %t, 1; mad.lo.u32 %r3, %r3, 4, %s;", "xor.b32 %r3, %t, 16; mad.lo.u32 %r3, %r3, 4, %s;",
     "race.shared"},
    {"write_after_read", 1, 64, 1,
     "st.shared.u32 [%a], %v; bar.sync 0; ld.shared.u32 %w, [%n]; @@ st.shared.u32 [%a], %w;", "bar.sync 0;",
     "", "race.shared"},
    {"reader_hidden_by_readers", 1, 128, 1,
     // All warps read word 0; the last to write it is a warp that read it itself.
     "@%p st.shared.u32 [%s], %v; bar.sync 0; ld.shared.u32 %w, [%s]; @@ setp.eq.u32 %g0, %t, 127; @%g0 "
     "st.shared.u32 [%s], %t;",
     "bar.sync 0;", "", "race.shared"},
    {"write_write", 1, 64, 1,
     "and.b32 %r2, %t, 31; mad.lo.u32 %r2, %r2, 4, %s; @%q st.shared.u32 [%r2], %v; @@ @!%q st.shared.u32 "
     "[%r2], %v;",
     "bar.sync 0;", "", "race.shared"},
    {"bytes_of_a_word", 1, 64, 1, "add.u32 %r2, %s, %t; @@ st.shared.u8 [%r2], %v;", "",
     "and.b32 %r2, %r2, -2;", "race.shared"},
    {"named_barriers", 1, 64, 1,
     "@!%q bra L;\nst.shared.u32 [%a], %v; bar.arrive 1, 64; bra E;\nL: @@ ld.shared.u32 %w, [%n]; "
     "st.global.u32 "
     "[%oa], %w;\nE:",
     "bar.sync 1, 64;", "bar.sync 2, 32;", "race.shared"},
    {"arrive_learns_nothing", 1, 64, 1,
     "@!%q bra L;\n@@ ld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w; bra E;\nL: st.shared.u32 [%a], %v; "
     "bar.sync 1, "
     "64;\nE:",
     "bar.sync 1, 64;", "bar.arrive 1, 64;", "race.shared"},
    {"barrier_with_reduction", 1, 64, 1,
     "st.shared.u32 [%a], %v; @@ ld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w;",
     "bar.red.popc.u32 %r2, 0, %q;", "", "race.shared"},
    {"atomic_then_plain", 1, 64, 1,
     "@%p st.shared.u32 [%s], 0; bar.sync 0; atom.shared.add.u32 %r2, [%s], 1; @@ ld.shared.u32 %w, [%s]; "
     "st.global.u32 [%oa], %w;",
     "bar.sync 0;", "", "race.shared"},
    {"volatile_is_relaxed", 1, 64, 1, "@@ st.global.u32 [%oa], %w;",
     "st.volatile.shared.u32 [%a], %v; ld.volatile.shared.u32 %w, [%n];",
     "st.volatile.shared.u32 [%a], %v; ld.shared.u32 %w, [%n];", "race.shared"},
    {"elected_lane_waits", 1, 32, 1,
     // Only lane 0 waits on the mbarrier; the others need a rendezvous with it.
     "@%p mbarrier.init.shared.b64 [%m], 1; bar.sync 0;\n@%p mbarrier.arrive.expect_tx.shared.b64 %st, [%m], "
     "128;\n@%p "
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 128, [%m];\nW: @!%p bra "
     "D;\n"
     "mbarrier.try_wait.parity.shared.b64 %g0, [%m], 0; @!%g0 bra W;\nD: @@ ld.shared.u32 %w, [%a]; "
     "st.global.u32 "
     "[%oa], %w;",
     "bar.warp.sync -1;", "", "race.async"},
    // ------------------------------------------------ blocks and global memory
    {"two_blocks_one_word", 2, 32, 1, "@@ @%p st.global.u32 [%x0], %v;", "mov.u64 %x0, %oa;",
     "mov.u64 %x0, %o;", "race.global"},
    {"neighbours_in_place", 1, 64, 1, "ld.global.u32 %w, [%oa+4]; @@ st.global.u32 [%oa], %w;", "bar.sync 0;",
     "", "race.global"},
    {"plain_and_atomic", 2, 32, 1, "@@", "atom.global.add.u32 %w, [%f], 1; red.global.add.u32 [%f], 1;",
     "ld.global.u32 %w, [%f]; red.global.add.u32 [%f], 1;", "race.global"},
    {"scope_of_an_atomic", 2, 32, 1, "@@", "red.relaxed.gpu.global.add.u32 [%f], 1;",
     "red.relaxed.cta.global.add.u32 [%f], 1;", "race.scope"},
    {"spin_lock", 2, 32, 1,
     "@!%p bra E;\nL: atom.global.cas.b32 %r2, [%f], 0, 1; setp.ne.u32 %g0, %r2, 0; @%g0 bra L;\n@@ "
     "ld.global.u32 %w, "
     "[%o]; add.u32 %w, %w, 1; st.global.u32 [%o], %w; @@ atom.global.exch.b32 %r2, [%f], 0;\nE:",
     "membar.gl;", "", "race.global"},
    // ------------------------------------------------ clusters
    {"cluster_barrier", 2, 32, 2,
     "st.shared.u32 [%a], %v; barrier.cluster.arrive@@.aligned; barrier.cluster.wait.aligned; xor.b32 %r2, "
     "%b, 1; "
     "mapa.shared::cluster.u32 %r3, %n, %r2; ld.shared::cluster.u32 %w, [%r3]; st.global.u32 [%oa], %w; "
     "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
     ".release", ".relaxed", "race.shared"},
    {"remote_arrival", 2, 32, 2,
     "@%p mbarrier.init.shared.b64 [%m], 32; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; "
     "setp.eq.u32 "
     "%g1, %b, 1; @%g1 bra C;\nmapa.shared::cluster.u32 %r3, %a, 1; st.shared::cluster.u32 [%r3], %v; "
     "mapa.shared::cluster.u32 %r4, %m, 1;\nmbarrier.arrive@@.cluster.shared::cluster.b64 _, [%r4]; bra "
     "E;\nC:\nW: "
     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %g0, [%m], 0; @!%g0 bra W;\nld.shared.u32 %w, "
     "[%n]; "
     "st.global.u32 [%oa], %w;\nE: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
     ".release", ".relaxed", "race.shared"},
    // ------------------------------------------------ cp.async
    {"wait_count", 1, 32, 1,
     "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; cp.async.ca.shared.global [%a], [%x0], 4; "
     "cp.async.commit_group; cp.async.ca.shared.global [%a+1024], [%x0], 4; cp.async.commit_group; "
     "cp.async.wait_group @@; ld.shared.u32 %w, [%a+1024]; st.global.u32 [%oa], %w;",
     "0", "1", "race.async"},
    {"wait_count_of_the_older", 1, 32, 1,
     "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; cp.async.ca.shared.global [%a], [%x0], 4; "
     "cp.async.commit_group; cp.async.ca.shared.global [%a+1024], [%x0], 4; cp.async.commit_group; "
     "cp.async.wait_group @@; ld.shared.u32 %w, [%a]; st.global.u32 [%oa], %w;",
     "1", "2", "race.async"},
    {"copies_of_others", 1, 64, 1,
     "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; cp.async.ca.shared.global [%a], [%x0], 4; "
     "cp.async.wait_all; @@ "
     "ld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w;",
     "bar.sync 0;", "", "race.async"},
    {"barrier_before_the_wait", 1, 64, 1,
     "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; cp.async.ca.shared.global [%a], [%x0], 4; @@ "
     "ld.shared.u32 %w, "
     "[%n]; st.global.u32 [%oa], %w;",
     "cp.async.wait_all; bar.sync 0;", "bar.sync 0; cp.async.wait_all;", "race.async"},
    {"refill_of_a_stage", 1, 64, 1,
     "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; st.shared.u32 [%a], %v; bar.sync 0; ld.shared.u32 %w, "
     "[%n]; @@ "
     "cp.async.ca.shared.global [%a], [%x0], 4; cp.async.wait_all; st.global.u32 [%oa], %w;",
     "bar.sync 0;", "", "race.async"},
    {"copies_arrive_on_an_mbarrier", 1, 64, 1,
     "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; @%p mbarrier.init.shared.b64 [%m], 64; bar.sync 0; "
     "cp.async.ca.shared.global [%a], [%x0], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%m];\n@@ "
     "ld.shared.u32 %w, "
     "[%n]; st.global.u32 [%oa], %w;",
     "W: mbarrier.try_wait.parity.shared.b64 %g0, [%m], 0; @!%g0 bra W;\n", "", "race.async"},
    // ------------------------------------------------ the read-only path
    {"read_only_path_to_the_own_store", 1, 32, 1,
     "st.global.u32 [%oa], %v; ld.global@@.u32 %w, [%oa]; st.global.u32 [%oa], %w;", "", ".nc", "race.proxy"},
    {"read_only_path_behind_a_barrier", 1, 64, 1,
     "st.global.u32 [%oa], %v; bar.sync 0; xor.b32 %r2, %t, 40; mul.wide.u32 %x0, %r2, 4; add.u64 %x0, %x0, "
     "%o;"
     "\nld.global@@.u32 %w, [%x0]; bar.sync 0; st.global.u32 [%oa], %w;",
     "", ".nc", "race.proxy"},
    {"read_only_path_to_a_narrow_store", 1, 32, 1,
     "cvt.u64.u32 %x0, %t; add.u64 %x0, %x0, %o; st.global.u8 [%x0], %v; bar.sync 0;\n@%p ld.global@@.u32 "
     "%w, [%o];",
     "", ".nc", "race.proxy"},
    // ------------------------------------------------ bulk copies
    {"bulk_load_read_early", 1, 64, 1,
     "@%p mbarrier.init.shared.b64 [%m], 1; bar.sync 0;\n@%p mbarrier.arrive.expect_tx.shared.b64 %st, [%m], "
     "256;\n@%p "
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 256, [%m];\n@@ "
     "ld.shared.u32 %w, "
     "[%a]; st.global.u32 [%oa], %w;",
     "W: mbarrier.try_wait.parity.shared.b64 %g0, [%m], 0; @!%g0 bra W;\n",
     "mbarrier.test_wait.parity.shared.b64 %g0, [%m], 1;", "race.async"},
    {"relaxed_wait", 1, 64, 1,
     "@%p mbarrier.init.shared.b64 [%m], 32; bar.sync 0;\n@!%q bra C;\nst.shared.u32 [%a], %v; "
     "mbarrier.arrive.release.cta.shared.b64 %st, [%m]; bra E;\nC: mbarrier.try_wait.parity@@.cta.shared.b64 "
     "%g0, [%m], "
     "0; @!%g0 bra C;\nld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w;\nE:",
     ".acquire", ".relaxed", "race.shared"},
    {"bulk_store_without_fence", 1, 64, 1,
     "st.shared.u32 [%a], %v; @@ @!%p bra E;\ncp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 256; "
     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nE:",
     "fence.proxy.async; bar.sync 0;", "bar.sync 0;", "race.proxy"},
    {"fence_by_the_issuer", 1, 64, 1,
     "st.shared.u32 [%a], %v; @@ @!%p bra E;\ncp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 256; "
     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nE:",
     "bar.sync 0; fence.proxy.async.shared::cta;", "fence.proxy.alias; bar.sync 0;", "race.proxy"},
    {"bulk_store_reuse", 1, 32, 1,
     "st.shared.u32 [%a], %v; fence.proxy.async; bar.sync 0;\n@!%p bra "
     "E;\ncp.async.bulk.global.shared::cta.bulk_group "
     "[%o], [%s], 128; cp.async.bulk.commit_group; @@\nst.shared.u32 [%s], 7; cp.async.bulk.wait_group "
     "0;\nE:",
     "cp.async.bulk.wait_group.read 0;", "", "race.async"},
    {"bulk_store_read_back", 1, 32, 1,
     "st.shared.u32 [%a], %v; fence.proxy.async; bar.sync 0;\n@!%p bra "
     "E;\ncp.async.bulk.global.shared::cta.bulk_group "
     "[%o], [%s], 128; cp.async.bulk.commit_group; @@ ld.global.u32 %w, [%o]; st.global.u32 [%f], %w; "
     "cp.async.bulk.wait_group 0;\nE:",
     "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", "race.async"},
    {"bulk_store_handed_to_another_block", 2, 32, 1,
     "st.shared.u32 [%a], %v; fence.proxy.async; bar.sync 0;\n@!%p bra E; setp.eq.u32 %g1, %b, 1; @%g1 bra "
     "W;\ncp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 128; cp.async.bulk.commit_group; @@\n"
     "fence.proxy.async.global; fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%f], 1; "
     "cp.async.bulk.wait_group 0; bra E;\nW: ld.acquire.gpu.global.u32 %r2, [%f]; setp.ne.u32 %g0, %r2, 1; "
     "@%g0 bra W;\nfence.proxy.async.global; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "
     "[%o], [%s], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nE:",
     "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", "race.async"},
    {"bulk_store_released_to_another_block", 2, 32, 1,
     "st.shared.u32 [%a], %v; fence.proxy.async; bar.sync 0;\n@!%p bra E; setp.eq.u32 %g1, %b, 1; @%g1 bra "
     "W;\ncp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 128; cp.async.bulk.commit_group; @@\n"
     "st.release.gpu.global.u32 [%f], 1; cp.async.bulk.wait_group 0; bra E;\nW: ld.acquire.gpu.global.u32 "
     "%r2, [%f]; setp.ne.u32 %g0, %r2, 1; @%g0 bra W;\nld.global.u32 %w, [%o]; st.global.u32 [%f+64], "
     "%w;\nE:",
     "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", "race.async"},
    {"ring_without_empty", 1, 64, 1,
     "@%p mbarrier.init.shared.b64 [%m], 1; @%p mbarrier.init.shared.b64 [%e], 32; bar.sync 0; mov.u32 %r2, "
     "0;\n@%q bra "
     "C;\nsetp.ne.u32 %g1, %t, 32; @%g1 bra E;\nP: @@ mbarrier.arrive.expect_tx.shared.b64 %st, [%m], 128;\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 128, [%m];\n"
     "add.u32 %r2, %r2, 1; setp.lt.u32 %g1, %r2, 3; @!%g1 bra E;\nD: and.b32 %r3, %r2, 1; xor.b32 %r3, %r3, "
     "1; "
     "mbarrier.try_wait.parity.shared.b64 %g0, [%m], %r3; @!%g0 bra D; bra P;\n"
     "C: and.b32 %r3, %r2, 1;\nW: mbarrier.try_wait.parity.shared.b64 %g0, [%m], %r3; @!%g0 bra W;\n"
     "ld.shared.u32 %w, [%a]; mbarrier.arrive.shared.b64 %st, [%e]; st.global.u32 [%oa], %w; bar.warp.sync "
     "-1;\n"
     "add.u32 %r2, %r2, 1; setp.lt.u32 %g1, %r2, 1; @%g1 bra C;\nE:",
     "setp.gt.u32 %g2, %r2, 0; @%g2 bra E;", "", "race.async"},
    {"remote_store", 2, 32, 2,
     "@%p mbarrier.init.shared.b64 [%m], 1; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; "
     "xor.b32 %r2, %b, 1; mapa.shared::cluster.u32 %r3, %a, %r2; mapa.shared::cluster.u32 %r4, %m, %r2;\n@%p "
     "mbarrier.arrive.expect_tx.shared.b64 %st, [%m], "
     "128;\nst.async.shared::cluster.mbarrier::complete_tx::bytes.u32 "
     "[%r3], %v, [%r4];\n@@ ld.shared.u32 %w, [%n]; st.global.u32 [%oa], "
     "%w;\nbarrier.cluster.arrive.aligned; "
     "barrier.cluster.wait.aligned;",
     "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %g0, [%m], 0; @!%g0 bra W;\n", "",
     "race.async"},
};

/// Whether the fault shows depends on the policy: a refill that comes before the reader looks overtakes
/// nothing.
bool needs_luck(const Case& c) { return std::string_view(c.name) == "ring_without_empty"; }
// A use before the initialisation is another finding.
bool needs_its_order(const Case& c) { return std::string_view(c.name).starts_with("mbarrier_init"); }

class Races : public ::testing::TestWithParam<Case> {};

TEST_P(Races, AreFoundAndTheirTwinsAreSilent) {
  const Case& c = GetParam();
  bool ever = false;
  for (const Policy& p : kPolicies) {
    SCOPED_TRACE(p.name);
    EXPECT_CLEAN(run(c, true, p));
    const Result r = run(c, false, p);
    bool found = false;
    for (const Finding& f : r.findings) {
      if (f.cls != c.cls) continue;
      found = true;
      EXPECT_TRUE(f.other && f.other->ptx_line > 0 && f.ptx_line > 0) << describe(f);
      EXPECT_FALSE(f.missing_edge.empty() || f.hint.empty() || f.buffer.empty()) << describe(f);
    }
    ever = ever || found;
    const bool too_soon = needs_its_order(c) && first_class(r) == "mbarrier.state";
    EXPECT_TRUE(found || too_soon || needs_luck(c)) << "wanted " << c.cls << ", got\n" << findings(r);
  }
  EXPECT_TRUE(ever);
}
INSTANTIATE_TEST_SUITE_P(Emu, Races, ::testing::ValuesIn(kCases), [](const auto& i) { return i.param.name; });

// ---------------------------------------------------------------- messages
/// Block 0 (or thread 0 of one block) writes data and sets a flag; thread 0 of the other polls it and reads.
struct Message {
  const char* name;
  std::uint32_t cluster;
  const char *before_set, *set, *poll, *after_poll;
  const char* cls;  ///< "": ordered
};
const Message kMessages[] = {
    {"fences", 1, "membar.gl;", "st.volatile.global.u32", "ld.volatile.global.u32", "membar.gl;", ""},
    {"fences_sc", 1, "fence.sc.gpu;", "st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32",
     "fence.sc.gpu;", ""},
    {"fences_of_the_system", 1, "fence.acq_rel.sys;", "st.relaxed.sys.global.u32",
     "ld.relaxed.gpu.global.u32", "fence.acq_rel.gpu;", ""},
    {"release_acquire", 1, "", "st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", "", ""},
    {"release_then_fence", 1, "", "st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32",
     "fence.acq_rel.gpu;", ""},
    {"fence_then_acquire", 1, "fence.acq_rel.gpu;", "st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32",
     "", ""},
    {"atomics", 1, "membar.gl;", "red.global.add.u32", "ld.volatile.global.u32", "membar.gl;", ""},
    {"past_the_cache", 1, "membar.gl;", "st.global.cg.u32", "ld.global.cg.u32", "membar.gl;", ""},
    {"no_fence_at_all", 1, "", "st.volatile.global.u32", "ld.volatile.global.u32", "", "race.global"},
    {"no_fence_of_the_writer", 1, "", "st.volatile.global.u32", "ld.volatile.global.u32", "membar.gl;",
     "race.global"},
    {"no_fence_of_the_reader", 1, "membar.gl;", "st.volatile.global.u32", "ld.volatile.global.u32", "",
     "race.global"},
    {"plain_flag", 1, "membar.gl;", "st.global.u32", "ld.volatile.global.u32", "membar.gl;", "race.global"},
    {"fence_of_the_block", 1, "membar.cta;", "st.volatile.global.u32", "ld.volatile.global.u32", "membar.gl;",
     "race.scope"},
    {"fence_of_the_readers_block", 1, "membar.gl;", "st.volatile.global.u32", "ld.volatile.global.u32",
     "membar.cta;", "race.scope"},
    {"release_in_the_block", 1, "", "st.release.cta.global.u32", "ld.acquire.gpu.global.u32", "",
     "race.scope"},
    {"acquire_in_the_block", 1, "", "st.release.gpu.global.u32", "ld.acquire.cta.global.u32", "",
     "race.scope"},
    {"release_in_the_cluster", 2, "", "st.release.cluster.global.u32", "ld.acquire.cluster.global.u32", "",
     ""},
    {"cluster_scope_outside", 1, "", "st.release.cluster.global.u32", "ld.acquire.cluster.global.u32", "",
     "race.scope"},
    {"block_scope_in_the_cluster", 2, "", "st.release.cta.global.u32", "ld.acquire.cta.global.u32", "",
     "race.scope"},
};

class Messages : public ::testing::TestWithParam<Message> {};

TEST_P(Messages, AreOrderedByTheRules) {
  const Message& m = GetParam();
  const std::string body =
      cat("setp.eq.u32 %g1, %b, 1; @%g1 bra R;\n st.global.u32 [%oa], %v; bar.sync 0; @!%p bra E;\n ",
          m.before_set, " ", m.set, " [%f], 1; bra E;\nR: @!%p bra J;\nW: ", m.poll,
          " %r2, [%f]; setp.eq.u32 %g0, %r2, 0; @%g0 bra W;\n ", m.after_poll,
          // The warp's other lanes and the other warps learn from thread 0 by the barrier; a relaxed poll
          // without a fence is read by thread 0 itself.
          " ld.global.u32 %w, [%o]; st.global.u32 [%f+64], %w;\nJ: bar.sync 0; ld.global.u32 %w, [%oa+-256]; "
          "st.global.u32 "
          "[%oa], %w;\nE:");
  const Case c{m.name, 2, 64, m.cluster, body.c_str(), "", "", m.cls};
  for (const Policy& p : kPolicies) {
    SCOPED_TRACE(p.name);
    const Result r = run(c, true, p);
    if (!*m.cls) {
      EXPECT_CLEAN(r);
      continue;
    }
    bool found = false;
    for (const Finding& f : r.findings) {
      found = found || f.cls == m.cls;
      EXPECT_EQ(f.cls.substr(0, 5), "race.") << describe(f);
    }
    EXPECT_TRUE(found) << findings(r);
  }
}
INSTANTIATE_TEST_SUITE_P(Emu, Messages, ::testing::ValuesIn(kMessages),
                         [](const auto& i) { return i.param.name; });

// The thread that observed a flag resets it with a plain store: it is ordered behind the write of the flag too.
TEST(RaceMessages, WhoObservedAFlagMayResetIt) {
  const Message rows[] = {
      {"fence_red", 1, "fence.acq_rel.gpu;", "red.relaxed.gpu.global.add.u32", "ld.acquire.gpu.global.u32",
       "", ""},
      {"fence_sc_red", 1, "fence.sc.gpu;", "red.relaxed.gpu.global.add.u32", "ld.volatile.global.u32",
       "fence.sc.gpu;", ""},
      {"fence_store", 1, "fence.acq_rel.gpu;", "st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32", "",
       ""},
      {"fence_volatile", 1, "membar.gl;", "st.volatile.global.u32", "ld.acquire.gpu.global.u32", "", ""},
      {"release", 1, "", "st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", "", ""},
      {"no_fences", 1, "", "red.relaxed.gpu.global.add.u32", "ld.relaxed.gpu.global.u32", "", "race.global"},
      {"no_fence_of_the_writer", 1, "", "st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32", "",
       "race.global"},
      {"no_fence_of_the_reader", 1, "membar.gl;", "st.volatile.global.u32", "ld.volatile.global.u32", "", ""},
      {"relaxed_reader", 1, "fence.acq_rel.gpu;", "red.relaxed.gpu.global.add.u32",
       "ld.relaxed.gpu.global.u32", "", ""}};
  for (const Message& m : rows)
    for (const Policy& p : kPolicies) {
      SCOPED_TRACE(cat(m.name, ", ", p.name));
      const std::string body =
          cat("@!%p bra E; setp.eq.u32 %g1, %b, 1; @%g1 bra R;\n ", m.before_set, " ", m.set,
              " [%f], 1; bra E;\nR: ", m.poll, " %r2, [%f]; setp.eq.u32 %g0, %r2, 0; @%g0 bra R;\n ",
              m.after_poll, " st.global.u32 [%f], 0;\nE:");
      const Case c{m.name, 2, 32, 1, body.c_str(), "", "", m.cls};
      EXPECT_EQ(first_class(run(c, true, p)), m.cls);
    }
}

// A fence publishes what stands before it: other writes behind it stay unordered.
// Accesses through .cg alone are no race; data that only such a flag orders is a warning, an error when strict.
TEST(RaceMessages, AFlagWithoutFencesIsAWarning) {
  const auto message = [](const char* released, const char* acquired, const char* data,
                          const char* checks = "all") {
    const std::string body =
        cat("@!%p bra E; setp.eq.u32 %g1, %b, 1; @%g1 bra R;\n st.global.cg.u32 [%o], 5; ", released,
            " st.global.cg.u32 [%f], 1; bra E;\nR: ld.global.cg.u32 %r2, [%f]; setp.eq.u32 %g0, %r2, 0; @%g0 "
            "bra R;\n",
            acquired, data, " st.global.u32 [%f+64], %r2;\nE:");
    const Case c{"flag", 2, 32, 1, body.c_str(), "", "", ""};
    return run(c, true, kPolicies[0], 0, checks);
  };
  const char *fence = "membar.gl;", *data = "ld.global.cg.u32 %r2, [%o];";
  EXPECT_CLEAN(message(fence, fence, data));
  EXPECT_CLEAN(message("", "", ""));
  for (const Result& r : {message("", "", data), message(fence, "", data), message("", fence, data)}) {
    ASSERT_EQ(r.findings.size(), 1u) << findings(r);
    EXPECT_EQ(r.findings[0].cls, "race.flag");
    EXPECT_EQ(r.findings[0].severity, Severity::warning);
    EXPECT_TRUE(r.clean());
  }
  EXPECT_CLEAN(message(fence, fence, data, "strict"));
  const Result strict = message("", "", data, "strict");
  ASSERT_EQ(strict.findings.size(), 1u);
  EXPECT_EQ(strict.findings[0].severity, Severity::error);
  EXPECT_FALSE(strict.clean());
}

TEST(RaceMessages, AFlagDoesNotOrderOtherAtomicsBehindItsFence) {
  const Case c{
      "late_data",
      2,
      32,
      1,
      "@!%p bra E; setp.eq.u32 %g1, %b, 1; @%g1 bra R;\n membar.gl; @@ bra E;\n"
      "R: ld.acquire.gpu.global.u32 %r2, [%f]; setp.eq.u32 %g0, %r2, 0; @%g0 bra R;\n"
      " ld.global.u32 %w, [%f+64]; st.global.u32 [%f+128], %w;\nE:",
      "red.relaxed.gpu.global.add.u32 [%f+64], 1; membar.gl; red.relaxed.gpu.global.add.u32 [%f], 1;",
      "red.relaxed.gpu.global.add.u32 [%f+64], 1; red.relaxed.gpu.global.add.u32 [%f], 1;",
      "race.global"};
  for (const Policy& p : kPolicies) {
    EXPECT_CLEAN(run(c, true, p));
    EXPECT_EQ(first_class(run(c, false, p)), "race.global") << p.name;
  }
}

// A copy into shared memory that nobody waits for may land in the next block's memory.
TEST(RaceExit, CopiesIntoSharedMemoryAreWaitedFor) {
  const Case c{
      "copy_in_flight",
      1,
      32,
      1,
      "@%p mbarrier.init.shared.b64 [%m], 1; bar.sync 0;\n@%p mbarrier.arrive.expect_tx.shared.b64 %st, "
      "[%m], 128; @%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 128, "
      "[%m];\n@@",
      "W: mbarrier.try_wait.parity.shared.b64 %g0, [%m], 0; @!%g0 bra W;",
      "",
      "lifetime.shared"};
  for (const Policy& p : kPolicies) {
    EXPECT_CLEAN(run(c, true, p));
    const Result r = run(c, false, p);
    EXPECT_TRUE(
        std::any_of(r.findings.begin(), r.findings.end(), [&](const Finding& f) { return f.cls == c.cls; }))
        << p.name << "\n"
        << findings(r);
  }
}

// Several read a buffer, somebody writes it later: each reader counts, not only the last ones. Readers are
// blocks 0 to 3, block 4 writes; all but block `silent` tell it before.
Result readers(const char* before_read, const char* read, const char* write, int silent, const Policy& p) {
  const std::string body = cat(
      "mul.wide.u32 %x0, %t, 4; add.u64 %x0, %x0, %i; setp.eq.u32 %g1, %b, 4; @%g1 bra W;\n", before_read,
      // The order of the reads is that of the blocks.
      "\nO: ld.relaxed.gpu.global.u32 %r2, [%f+128]; setp.lt.u32 %g0, %r2, %b; @%g0 bra O;\n", read,
      " bar.sync 0; @!%p bra E; red.relaxed.gpu.global.add.u32 [%f+128], 1;\n setp.eq.u32 %g0, %b, ", silent,
      "; @%g0 bra E; fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%f], 1; bra E;\n"
      "W: ld.relaxed.gpu.global.u32 %r2, [%f+128]; setp.lt.u32 %g0, %r2, 4; @%g0 bra W;\n"
      "V: ld.acquire.gpu.global.u32 %r2, [%f]; setp.lt.u32 %g0, %r2, ",
      silent < 0 ? 4 : 3, "; @%g0 bra V;\n", write, "\nE:");
  const Case c{"readers", 5, 64, 1, body.c_str(), "", "", ""};
  return run(c, true, p);
}

TEST(RaceReaders, EveryReaderOfGlobalMemoryCounts) {
  struct Form {
    const char *before, *read, *write;
  };
  const Form forms[] = {
      {"", "ld.global.u32 %w, [%x0];", "st.global.u32 [%x0], %v;"},
      {"", "ld.global.u32 %w, [%x0];", "@%p st.global.u32 [%x0+200], %v;"},  // one word of a row
      {"", "setp.ne.u32 %g2, %t, 7; @%g2 ld.global.u32 %w, [%x0];",
       "st.global.u32 [%x0], %v;"},  // rows with holes
      {"xor.b32 %r3, %t, 1; mul.wide.u32 %x0, %r3, 12; add.u64 %x0, %x0, %i;", "ld.global.u32 %w, [%x0];",
       "mul.wide.u32 %x0, %t, 12; add.u64 %x0, %x0, %i; st.global.u32 [%x0], %v;"},  // strided, another order
      {"mul.wide.u32 %x0, %t, 16; add.u64 %x0, %x0, %i;", "ld.global.v4.u32 {%w, %r3, %r4, %r5}, [%x0];",
       "st.global.u32 [%x0], %v;"},
      {"", "ld.global.u32 %w, [%i+4];", "@%p st.global.u32 [%i+4], %v;"},  // all lanes one word
      {"sub.u64 %x0, %x0, %i; shr.u64 %x0, %x0, 2; add.u64 %x0, %x0, %i;", "ld.global.u8 %w, [%x0];",
       "st.global.u8 [%x0], %v;"},
      {"", "ld.global.u32 %w, [%x0];", "@%p st.global.u8 [%x0+45], %v;"},  // words, then a byte of one
  };
  for (const Form& f : forms)
    for (const Policy& p : kPolicies) {
      SCOPED_TRACE(cat(f.read, " ", f.write, " ", p.name));
      EXPECT_CLEAN(readers(f.before, f.read, f.write, -1, p));
      for (int silent = 0; silent < 4; ++silent) {
        const Result r = readers(f.before, f.read, f.write, silent, p);
        ASSERT_EQ(first_class(r), "race.global") << silent;
        ASSERT_TRUE(r.findings[0].other);
        EXPECT_EQ(r.findings[0].other->block.x, std::uint32_t(silent));
      }
    }
}

// The same with the warps of one block, and reads that diverge.
TEST(RaceReaders, EveryWarpOfABlockCounts) {
  for (int silent = 0; silent < 4; ++silent)
    for (const Policy& p : kPolicies) {
      const std::string bad_setting = cat("mov.u32 %r6, 3; mov.u32 %r7, ", silent, ";");
      const std::string body = cat(
          "@@ and.b32 %r2, %t, 31; mul.wide.u32 %x0, %r2, 4; add.u64 %x0, %x0, %i; shr.u32 %r3, %t, 5;\n"
          "setp.eq.u32 %g1, %r3, 4; @%g1 bra W; and.b32 %r4, %t, 1; setp.eq.u32 %g2, %r4, 0; @%g2 bra A;\n"
          "ld.global.u32 %w, [%x0]; bra B;\nA: ld.global.u32 %w, [%x0];\nB: bar.warp.sync -1;\n"
          "setp.ne.u32 %g2, %r2, 0; @%g2 bra E; red.relaxed.gpu.global.add.u32 [%f+128], 1;\n"
          "setp.eq.u32 %g0, %r3, %r7; @%g0 bra E; fence.acq_rel.cta; red.relaxed.cta.global.add.u32 [%f], 1;"
          " bra E;\nW: ld.relaxed.gpu.global.u32 %r5, [%f+128]; setp.lt.u32 %g0, %r5, 4; @%g0 bra W;\n"
          "V: ld.acquire.cta.global.u32 %r5, [%f]; setp.lt.u32 %g0, %r5, %r6; @%g0 bra V;\n"
          "st.global.u32 [%x0], %v;\nE:");
      const Case c{"warps", 1, 160, 1, body.c_str(), "mov.u32 %r6, 4; mov.u32 %r7, 9;", bad_setting.c_str(),
                   ""};
      SCOPED_TRACE(p.name);
      EXPECT_CLEAN(run(c, true, p));
      const Result bad = run(c, false, p);
      ASSERT_EQ(first_class(bad), "race.global") << silent;
      ASSERT_TRUE(bad.findings[0].other);
      EXPECT_EQ(bad.findings[0].other->thread.x / 32, std::uint32_t(silent));
    }
}

// A block's writer behind a barrier: what thread 0 publishes includes what the barrier brought it.
TEST(RaceChains, AnAtomicContinuesARelease) {
  const auto chain = [](const char* second) {
    const std::string body =
        cat("setp.eq.u32 %g1, %b, 0; @%g1 bra A; setp.eq.u32 %g1, %b, 1; @%g1 bra B;\n"
            "C: @!%p bra E;\nV: ld.acquire.gpu.global.u32 %r2, [%f]; setp.ne.u32 %g0, %r2, 2; @%g0 bra V;\n "
            "ld.global.u32 "
            "%w, [%o]; st.global.u32 [%f+64], %w; bra E;\n"
            "A: @!%p bra E;\n st.global.u32 [%o], 5; st.release.gpu.global.u32 [%f], 1; bra E;\n"
            "B: @!%p bra E;\nW: ld.relaxed.gpu.global.u32 %r2, [%f]; setp.ne.u32 %g0, %r2, 1; @%g0 bra W;\n ",
            second, "\nE:");
    const Case c{"chain", 3, 32, 1, body.c_str(), "", "", ""};
    return run(c, true, kPolicies[0]);
  };
  EXPECT_CLEAN(chain("red.relaxed.gpu.global.add.u32 [%f], 1;"));
  EXPECT_EQ(first_class(chain("st.relaxed.gpu.global.u32 [%f], 2;")), "race.global");
}

TEST(RaceNotes, StoresOfOneValueAreANote) {
  const Case c{"same",       1, 64, 1, "@@ st.shared.u32 [%s], %r2;", "mov.u32 %r2, 9;", "mov.u32 %r2, %t;",
               "race.shared"};
  const Result r = run(c, true, kPolicies[0]);
  ASSERT_EQ(r.findings.size(), 1u) << findings(r);
  EXPECT_EQ(r.findings[0].cls, "race.same_value");
  EXPECT_EQ(r.findings[0].severity, Severity::note);
  EXPECT_TRUE(r.clean());
  EXPECT_EQ(first_class(run(c, false, kPolicies[0])), "race.shared");
}

// Several host threads: the stamp of the other block's store is there before its value. Two blocks store to
// the same words in opposite directions, and meet somewhere.
TEST(RaceNotes, StoresOfOneValueAreANoteForSeveralHostThreads) {
  const Case c{"same",
               2,
               32,
               1,
               "@@ and.b32 %r3, %b, 1; setp.eq.u32 %g0, %r3, 0; mov.u32 %r4, 0;\nL: sub.u32 %r5, 2047, %r4;\n"
               "selp.u32 %r5, %r4, %r5, %g0; mul.wide.u32 %x0, %r5, 4; add.u64 %x0, %x0, %o;\n"
               "st.global.u32 [%x0], %r2; add.u32 %r4, %r4, 1; setp.lt.u32 %g1, %r4, 2048; @%g1 bra L;\n",
               "mov.u32 %r2, 9;",
               "mov.u32 %r2, %b;",
               ""};
  for (int round = 0; round < 60; ++round) {
    const Result r = run(c, true, kPolicies[0], 2);
    ASSERT_TRUE(r.clean()) << findings(r);
  }
  EXPECT_EQ(first_class(run(c, false, kPolicies[0], 2)), "race.global");
}

TEST(RaceReports, NameBothSides) {
  const Case c{
      "report", 1,  64, 1, "st.shared.u32 [%a], %v;\n ld.shared.u32 %w, [%n]; st.global.u32 [%oa], %w;",
      "",       "", ""};
  const Result r = run(c, true, kPolicies[0]);
  ASSERT_EQ(r.findings.size(), 1u) << findings(r);
  const Finding& f = r.findings[0];
  // Warp 0 runs first and reads the words of warp 1, which writes them later; thread 1 has that of thread 32.
  EXPECT_EQ(f.buffer, "buf");
  EXPECT_EQ(f.byte_offset, 128);
  EXPECT_EQ(f.thread.x, 32u);
  EXPECT_EQ(f.access, "writes 4 bytes");
  ASSERT_TRUE(f.other);
  EXPECT_EQ(f.other->thread.x, 1u);
  EXPECT_EQ(f.other->access, "reads 4 bytes");
  EXPECT_EQ(f.other->instruction, "ld.shared.u32 %w, [%n];");
  EXPECT_EQ(f.other->ptx_line, f.ptx_line + 1);
  EXPECT_EQ(f.count, 64u);  // and 32 the other way round: warp 1 reads what warp 0 wrote
  EXPECT_NE(f.missing_edge.find("barrier"), std::string::npos);
}

TEST(RaceSwitch, OffFindsNothing) {
  Kit kit;
  kit.options.checks = CheckSet::all() - Check::race - Check::uninit;
  const Case& c = kCases[0];
  const std::uint64_t in = kit.upload(std::vector<std::uint32_t>(2048)),
                      out = kit.upload(std::vector<std::uint32_t>(2112));
  EXPECT_CLEAN(kit.launch(kernel(c, false), {1, 1, 1}, {64, 1, 1}, Params().add(in).add(out)));
}

}  // namespace
}  // namespace cgp::emu
