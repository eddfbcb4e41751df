// SPDX-License-Identifier: Apache-2.0
// Cluster launch control: a persistent kernel that steals the blocks of its grid, alone and in clusters.
#include "cgp/emu/tensor/tcgen05_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;
using u32 = std::uint32_t;

// Every tile (x, y) of the grid counts itself in out[y * nx + x]; started[] counts the blocks that ran.
std::string persistent(bool cluster, const std::string& extra = "") {
  const std::string s = cluster ? ".multicast::cluster::all" : "";
  return cat(
      ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 po, .param .u64 ps)",
      cluster ? " .reqnctapercluster 2, 1, 1" : "",
      " {\n .reg .u64 %o, %x, %s; .reg .u32 %b, %rs, %t, %cx, %cy, %nx, %v, %phase, %rank; .reg .pred %p, "
      "%q; .reg "
      ".b128 %resp;\n .shared .align 16 .b8 response[16]; .shared .align 8 .b64 bar;\n"
      " mov.u32 %t, %tid.x; mov.u32 %b, bar; mov.u32 %rs, response; mov.u32 %cx, %ctaid.x; mov.u32 %cy, "
      "%ctaid.y; "
      "mov.u32 %nx, %nctaid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %phase, 0;\n"
      " ld.param.u64 %o, [po]; ld.param.u64 %s, [ps];\n setp.ne.u32 %q, %t, 0; @%q bra READY;\n"
      " mbarrier.init.shared::cta.b64 [%b], 1; fence.mbarrier_init.release.cluster; red.global.add.u32 [%s], "
      "1;\n"
      "READY: ",
      cluster ? "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" : "bar.sync 0;",
      "\nLOOP: @%q bra ASKED;\n mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 16;\nASKED:\n",
      cluster ? " barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n setp.ne.u32 %p, %rank, 0; "
                "@%p bra "
                "WORK;\n"
              : "",
      " @%q bra WORK;\n clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes", s,
      ".b128 [%rs], [%b];\nWORK:\n @%q bra DONE;\n mad.lo.u32 %v, %cy, %nx, %cx; mad.wide.u32 %x, %v, 4, %o; "
      "red.global.add.u32 [%x], 1;\nDONE:\n"
      "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], %phase; @!%p bra WAIT;\n"
      " ld.shared.b128 %resp, [%rs]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %resp;\n",
      extra, " fence.proxy.async.shared::cta; ",
      cluster ? "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" : "bar.sync 0;",
      "\n @!%p bra END;\n clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%cx, %cy, %v, _}, "
      "%resp;\n"
      " add.u32 %cx, %cx, %rank; xor.b32 %phase, %phase, 1; bra LOOP;\nEND: ret;\n}\n");
}

struct Outcome {
  Result result;
  std::vector<u32> tiles;
  u32 started = 0;
};
Outcome run(const std::string& ptx, Dim3 grid, bool cluster, AsyncPolicy policy, int workers) {
  Machine machine("sm_100a");
  auto program = Program::load(ptx);
  EXPECT_EQ(program->entry("k").unsupported, "");
  const auto instance = machine.load(program);
  const std::size_t n = grid.x * grid.y;
  const std::uint64_t out = machine.alloc(n * 4), started = machine.alloc(4);
  machine.fill(out, 0, n * 4);
  machine.fill(started, 0, 4);
  Params p;
  p.add(out).add(started);
  Launch l;
  l.entry = "k";
  l.grid = grid;
  l.block = {32, 1, 1};
  if (cluster) l.cluster = {2, 1, 1};
  l.params = p.span();
  Options o;
  o.async = policy;
  o.workers = workers;
  o.seed = 5;
  Outcome r;
  r.result = machine.launch(instance, l, o);
  r.tiles.resize(n);
  machine.read(out, std::as_writable_bytes(std::span(r.tiles)));
  machine.read(started, std::as_writable_bytes(std::span(&r.started, 1)));
  return r;
}

TEST(LaunchControl, PersistentBlocksDoEveryTileOnce) {
  for (bool cluster : {false, true}) {
    const std::string ptx = persistent(cluster);
    expect_assembles(ptx);
    for (AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random})
      for (int workers : {1, 2}) {
        SCOPED_TRACE(cat("cluster ", cluster, " policy ", int(policy), " workers ", workers));
        const Outcome r = run(ptx, {10, 7, 1}, cluster, policy, workers);
        EXPECT_CLEAN(r.result);
        for (u32 v : r.tiles) EXPECT_EQ(v, 1u);
        EXPECT_GE(r.started, 1u);
        EXPECT_LT(r.started, 70u);  // cancelled blocks never start
      }
  }
}

TEST(LaunchControl, Misuse) {
  const auto cls = [](const std::string& extra) {
    const Outcome r = run(persistent(false, extra), {2, 1, 1}, false, AsyncPolicy::eager, 1);
    return r.result.findings.empty() ? std::string()
                                     : r.result.findings[0].cls + ": " + r.result.findings[0].message;
  };
  EXPECT_THAT(cls(" clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %v, %resp;\n"),
              HasSubstr("launchcontrol: query_cancel.get_first_ctaid of a request that cancelled nothing"));
  EXPECT_THAT(cls(" @%p bra OK; @%q bra OK; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 16;\n"
                  " clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
                  "[%rs], [%b];\n"
                  "OK:\n"),
              HasSubstr("after a failed request was seen"));
}

}  // namespace
}  // namespace cgp::emu
