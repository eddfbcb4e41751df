// SPDX-License-Identifier: Apache-2.0
// Planted defects, run on the emulator: each is named, with the instruction at fault, and a clean kernel has
// none.
#include "cgp/profile/timeline/waste.h"

#include <gtest/gtest.h>

#include "cgp/base/text.h"
#include "cgp/profile/collect/probe_kernel.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;

namespace {

using Ran = ProbeRun;

/// Four blocks of `body`, which has %r1 = global thread id, %r2 = thread id, %rd1 = the buffer.
Ran run(const std::string& declarations, const std::string& body) {
  return run_probe(declarations + kProbeThreads + body, {4, 1, 1}, {128, 1, 1});
}

std::vector<Waste> waste_of(const Ran& r) { return emulator_waste(r.counters, *r.program, "k"); }

const Waste* find_waste(const std::vector<Waste>& all, const std::string& title) {
  for (const auto& w : all)
    if (w.title == title) return &w;
  return nullptr;
}

// 16 bytes per thread, neighbours beside each other.
const char* kClean =
    "mul.wide.u32 %rd2, %r1, 16;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd3];\n"
    "add.f32 %f1, %f1, %f2;\nst.global.v4.f32 [%rd3], {%f1,%f2,%f3,%f4};\n";
const char* kStrided =
    "mul.wide.u32 %rd2, %r1, 128;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.f32 %f1, [%rd3];\n"
    "mul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, %rd4;\nst.global.f32 [%rd5], %f1;\n";
// 32 lanes, 128 bytes apart: one bank.
const char* kConflict =
    "shl.b32 %r5, %r2, 7;\nand.b32 %r5, %r5, 4095;\nmov.u32 %r6, tile;\nadd.u32 %r6, %r6, %r5;\nmov.f32 %f1, "
    "0f3F800000;\n"
    "st.shared.f32 [%r6], %f1;\nld.shared.f32 %f2, [%r6];\nld.shared.f32 %f3, [%r6];\nadd.f32 %f2, %f2, "
    "%f3;\n"
    "mul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, %rd4;\nst.global.f32 [%rd5], %f2;\n";
// Odd lanes go their own way for a while.
const char* kDiverge =
    "and.b32 %r5, %r2, 1;\nsetp.eq.u32 %p1, %r5, 0;\nmov.f32 %f1, 0f3F800000;\n@%p1 bra EVEN;\n"
    "add.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 "
    "%f1, %f1, %f1;\nbra JOIN;\n"
    "EVEN:\nmul.f32 %f1, %f1, %f1;\nmul.f32 %f1, %f1, %f1;\nmul.f32 %f1, %f1, %f1;\nmul.f32 %f1, %f1, "
    "%f1;\nmul.f32 %f1, %f1, %f1;\n"
    "JOIN:\nmul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, %rd4;\nst.global.f32 [%rd5], %f1;\n";
const char* kSpill =
    "mov.u64 %rd6, stack;\nmov.f32 %f1, 0f3F800000;\nst.local.f32 [%rd6], %f1;\nst.local.f32 [%rd6+4], %f1;\n"
    "ld.local.f32 %f2, [%rd6];\nld.local.f32 %f3, [%rd6+4];\nadd.f32 %f2, %f2, %f3;\n"
    "mul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, %rd4;\nst.global.f32 [%rd5], %f2;\n";
// f32 in, f32 out, and a double between.
const char* kDetour =
    ".reg .f64 %d<4>;\nmul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, %rd4;\nld.global.f32 %f1, [%rd5];\n"
    "cvt.f64.f32 %d1, %f1;\nmul.f64 %d2, %d1, 0d3FB999999999999A;\ncvt.rn.f32.f64 %f2, %d2;\n"
    "st.global.f32 [%rd5], %f2;\n";
// Only the first 4 lanes of each warp have work.
const char* kIdle =
    "and.b32 %r5, %r2, 31;\nsetp.lt.u32 %p1, %r5, 4;\nmul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, "
    "%rd4;\nmov.f32 %f1, 0f3F800000;\n"
    "@%p1 add.f32 %f1, %f1, %f1;\n@%p1 add.f32 %f1, %f1, %f1;\n@%p1 add.f32 %f1, %f1, %f1;\n@%p1 add.f32 "
    "%f1, %f1, %f1;\n"
    "@%p1 add.f32 %f1, %f1, %f1;\n@%p1 add.f32 %f1, %f1, %f1;\n@%p1 add.f32 %f1, %f1, %f1;\n@%p1 add.f32 "
    "%f1, %f1, %f1;\n"
    "@%p1 st.global.f32 [%rd5], %f1;\n";

}  // namespace

TEST(waste, a_clean_kernel_has_none) {
  const Ran r = run("", kClean);
  EXPECT_TRUE(waste_of(r).empty()) << waste_of(r)[0].title;
  measure::MetricSet m;
  emulator_metrics(r.counters, m);
  EXPECT_EQ(m[Metric::global_load_efficiency_pct].number(), 100);
  EXPECT_EQ(m[Metric::warp_execution_efficiency_pct].number(), 100);
  EXPECT_EQ(m[Metric::shared_bank_conflicts].number(), 0);
  EXPECT_FALSE(m.has(Metric::shared_load_efficiency_pct))
      << "without shared memory there is no efficiency of it";
  EXPECT_FALSE(m.has(Metric::wall_clock_time_us));
}

TEST(waste, strided_loads_are_uncoalesced) {
  const Ran r = run("", kStrided);
  const auto all = waste_of(r);
  const Waste* w = find_waste(all, "uncoalesced access");
  ASSERT_TRUE(w);
  EXPECT_EQ(w->kind, "transport");
  EXPECT_NE(w->evidence.find("ld.global.f32"), std::string::npos) << w->evidence;
  measure::MetricSet m;
  emulator_metrics(r.counters, m);
  EXPECT_EQ(m[Metric::global_load_efficiency_pct].number(), 12.5) << "4 of 32 bytes";
  EXPECT_EQ(m[Metric::global_store_efficiency_pct].number(), 100);
}

TEST(waste, one_bank_for_all_lanes_is_a_conflict) {
  const Ran r = run(".shared .align 4 .b8 tile[4096];\n", kConflict);
  const auto all = waste_of(r);
  const Waste* w = find_waste(all, "bank conflicts");
  ASSERT_TRUE(w);
  EXPECT_NE(w->evidence.find(".shared.f32"), std::string::npos) << w->evidence;
  EXPECT_GT(w->percent, 50);
  measure::MetricSet m;
  emulator_metrics(r.counters, m);
  // 16 warps, one store and two loads each, 31 extra passes
  EXPECT_EQ(m[Metric::shared_bank_conflicts].number(), 16.0 * 3 * 31);
}

TEST(waste, branches_on_the_lane_are_divergence) {
  const Ran r = run("", kDiverge);
  const auto all = waste_of(r);
  const Waste* w = find_waste(all, "divergence");
  ASSERT_TRUE(w);
  EXPECT_EQ(w->kind, "motion");
  EXPECT_NE(w->evidence.find("bra EVEN"), std::string::npos) << w->evidence;
  EXPECT_FALSE(find_waste(all, "uncoalesced access"));
}

TEST(waste, local_memory_is_named) {
  const auto all = waste_of(run(".local .align 4 .b8 stack[8];\n", kSpill));
  const Waste* w = find_waste(all, "spills or local arrays");
  ASSERT_TRUE(w);
  EXPECT_NE(w->evidence.find("64 accesses"), std::string::npos) << w->evidence;
}

TEST(waste, one_block_with_most_of_the_work_is_imbalance) {
  const auto blocks = [](const char* condition) {
    return run_probe(std::string(kProbeThreads) +
                         "mov.u32 %r5, %ctaid.x;\nsetp.eq.u32 %p1, %r5, 0;\nmov.f32 %f1, 0f3F800000;\n"
                         "mov.u32 %r6, 40;\n" +
                         condition +
                         "LOOP:\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, "
                         "%f1;\nsub.u32 %r6, %r6, 1;\n"
                         "setp.ne.u32 %p2, %r6, 0;\n@%p2 bra LOOP;\nmul.wide.u32 %rd4, %r1, 4;\nadd.u64 "
                         "%rd5, %rd1, %rd4;\n"
                         "st.global.f32 [%rd5], %f1;\n",
                     {16, 1, 1}, {128, 1, 1});
  };
  const Ran uneven = blocks("@%p1 mov.u32 %r6, 2000;\n"), even = blocks("");
  EXPECT_EQ(uneven.counters.blocks, 16u);
  const auto all = waste_of(uneven);
  const auto* w = find_waste(all, "imbalance");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->kind, "overproduction");
  EXPECT_GT(w->percent, 70);
  EXPECT_EQ(find_waste(waste_of(even), "imbalance"), nullptr);
}

TEST(waste, counters_of_a_gpu_tell_imbalance_from_too_few_blocks) {
  KernelUse k;
  k.name = "k", k.grid = {1056, 1, 1};
  k.counters = {{"sm__cycles_active.avg", 3000}, {"sm__cycles_active.max", 10000}};
  auto all = counter_waste(k);
  ASSERT_NE(find_waste(all, "imbalance"), nullptr);
  EXPECT_NEAR(find_waste(all, "imbalance")->percent, 70, 1e-9);
  k.grid = {8, 1, 1};
  all = counter_waste(k);
  EXPECT_EQ(find_waste(all, "imbalance"), nullptr);
  EXPECT_NE(find_waste(all, "idle SMs"), nullptr);
  k.counters["sm__cycles_active.avg"] = 9000;
  EXPECT_TRUE(counter_waste(k).empty());
}

TEST(waste, floats_computed_as_doubles_are_overprocessing) {
  const auto all = waste_of(run("", kDetour));
  const Waste* w = find_waste(all, "f32 computed as f64");
  ASSERT_TRUE(w);
  EXPECT_EQ(w->kind, "overprocessing");
  EXPECT_NE(w->evidence.find("cvt.f64.f32"), std::string::npos) << w->evidence;
}

TEST(waste, what_warps_wait_for_is_named_by_counters) {
  KernelUse k;
  k.name = "k";
  const auto stalled = [&](const char* reason, double v) {
    k.counters[std::string("smsp__warps_issue_stalled_") + reason + ".sum"] = v;
  };
  stalled("barrier", 30), stalled("long_scoreboard", 60), stalled("wait", 10), stalled("selected", 1000);
  k.counters["smsp__issue_active.avg.pct_of_peak_sustained_active"] = 20;
  const auto all = counter_waste(k);
  ASSERT_TRUE(find_waste(all, "barriers"));
  EXPECT_NEAR(find_waste(all, "barriers")->percent, 24, 1e-9) << "30 of 100, in 80 % of the cycles";
  ASSERT_TRUE(find_waste(all, "memory latency"));
  EXPECT_NEAR(find_waste(all, "memory latency")->percent, 48, 1e-9);
  k.counters["smsp__issue_active.avg.pct_of_peak_sustained_active"] = 90;
  EXPECT_FALSE(find_waste(counter_waste(k), "memory latency")) << "who issues all the time waits for nothing";
  EXPECT_TRUE(counter_waste({}).empty());
}

TEST(waste, switched_off_lanes_are_overproduction) {
  const auto all = waste_of(run("", kIdle));
  const Waste* w = find_waste(all, "idle lanes");
  ASSERT_TRUE(w);
  EXPECT_EQ(w->kind, "overproduction");
}

TEST(waste, metrics_of_a_gpu_name_the_same_defects) {
  measure::MetricSet m;
  m.set(Metric::global_load_efficiency_pct, 12.5, measure::Source::counted, "CUPTI");
  m.set(Metric::register_spills, 700.0, measure::Source::counted, "ptxas");
  m.set(Metric::branch_efficiency_pct, 50.0, measure::Source::counted, "CUPTI");
  m.set(Metric::nan_count, 3.0, measure::Source::counted, "scan");
  m.set(Metric::heijunka_score, 0.53, measure::Source::measured, "threads");
  const auto all = metric_waste(m, "k");
  for (const char* title : {"uncoalesced access", "spills", "divergence", "NaN", "imbalance"}) {
    const Waste* w = find_waste(all, title);
    ASSERT_TRUE(w) << title;
    EXPECT_FALSE(w->advice.empty());
    EXPECT_GT(w->percent, 0);
    EXPECT_LE(w->percent, 100);
  }
  EXPECT_TRUE(metric_waste({}, "k").empty()) << "what is absent accuses nobody";
}

TEST(waste, the_largest_share_comes_first) {
  const std::string text = waste_text({{"motion", "small", "", "e", "a", 5, measure::Source::counted},
                                       {"waiting", "large", "", "e", "a", 60, measure::Source::counted}},
                                      80);
  EXPECT_LT(text.find("large"), text.find("small"));
  EXPECT_EQ(waste_text({}, 80), "");
}
