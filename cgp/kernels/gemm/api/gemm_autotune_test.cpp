// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/api/gemm_autotune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/file.h"

namespace cgp::kernels {
namespace {

using ::testing::HasSubstr;

runtime::DeviceInfo hopper() {
  runtime::DeviceInfo d;
  d.name = "NVIDIA H200", d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132, d.driver_version = 13000;
  d.kind = runtime::DeviceKind::cuda;
  return d;
}
constexpr GemmTuning kFull{TuneMode::full, 10};

// A clock on which compiling takes an eighth of a second and everything else nothing.
struct FakeTimer {
  std::function<double(const GemmChoice&)> cost;
  std::map<std::string, int> runs = {};
  double now = 0;
  GemmTimer timer() {
    return {[this](const GemmChoice& c) {
              if (runs[c.variant.name]++ == 0) now += 0.125;
              return cost(c);
            },
            [this] { return now; }};
  }
};

class GemmAutotune : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder);
    ::setenv("CGP_CACHE_DIR", folder.c_str(), 1);
  }
  void TearDown() override { ::setenv("CGP_CACHE_DIR", "off", 1); }
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "cgp_gemm_autotune_test";
  const GemmProblem p = parse_gemm_key("bf16/nt/520x1000x2056");
  const std::vector<GemmChoice> all = gemm_candidates(p, {}, hopper());
  runtime::Device emulator = runtime::Device::open("emu:sm_90a");
};

TEST_F(GemmAutotune, TakesTheFastestAndTheModelsOwnWhereNothingIsOnePercentFaster) {
  ASSERT_GT(all.size(), 4u);
  FakeTimer f{[&](const GemmChoice& c) { return c.variant.name == all[3].variant.name ? 50 : 60; }};
  const auto best = fastest_gemm(all, f.timer(), 100);
  EXPECT_EQ(best->config, all[3].variant.config);
  EXPECT_EQ(best->microseconds, 50);
  EXPECT_GT(f.runs[all[0].variant.name], 10) << "the model's own is among those compared at the end";
  FakeTimer close{[&](const GemmChoice& c) { return c.variant.name == all[0].variant.name ? 60 : 59.5; }};
  EXPECT_EQ(fastest_gemm(all, close.timer(), 100)->config, all[0].variant.config);
}

TEST_F(GemmAutotune, KeepsToItsBudgetAndLeavesOutWhatDoesNotRun) {
  FakeTimer f{[&](const GemmChoice& c) -> double {
    if (c.variant.name == all[0].variant.name) throw Unsupported("not here");
    return 10;
  }};
  const auto best = fastest_gemm(all, f.timer(), 0.8);
  EXPECT_NE(best->config, all[0].variant.config);
  EXPECT_EQ(f.runs.size(), 4u) << "after 60 % of 0.8 seconds no further candidate begins";
  FakeTimer none{[](const GemmChoice&) -> double { throw Unsupported("nowhere"); }};
  EXPECT_FALSE(fastest_gemm(all, none.timer(), 100));
  EXPECT_FALSE(fastest_gemm({}, none.timer(), 100));
}

TEST_F(GemmAutotune, MeasuresOnceAndKeepsTheWinnerForOtherProcesses) {
  FakeTimer f{[&](const GemmChoice& c) { return c.variant.name == all[2].variant.name ? 50 : 60; }};
  GemmPlanner planner(hopper(), {}, kFull), other(hopper(), {}, kFull);
  ASSERT_TRUE(planner.may_tune(p, {}));
  EXPECT_EQ(planner.choose(p, {})->variant.config, all[0].variant.config);
  tune_gemm(emulator.stream(), planner, p, {}, f.timer());
  EXPECT_FALSE(planner.may_tune(p, {}));
  EXPECT_EQ(planner.choose(p, {})->variant.config, all[2].variant.config);
  EXPECT_EQ(load_gemm_table(hopper()).find(p)->config, all[2].variant.config);
  // A planner that was made before the file had the row, as another process's.
  FakeTimer unused{[](const GemmChoice&) -> double { return 1; }};
  tune_gemm(emulator.stream(), other, p, {}, unused.timer());
  EXPECT_TRUE(unused.runs.empty());
  EXPECT_EQ(other.choose(p, {})->variant.config, all[2].variant.config);
}

TEST_F(GemmAutotune, MeasuresNothingDuringACaptureOrWhileAnotherThreadDoes) {
  FakeTimer f{[](const GemmChoice&) { return 1; }};
  GemmPlanner planner(hopper(), {}, kFull);
  (void)emulator.stream().capture([&](runtime::Stream& s) { tune_gemm(s, planner, p, {}, f.timer()); });
  {
    const auto measuring = planner.begin_tuning();
    ASSERT_TRUE(measuring);
    std::thread([&] { tune_gemm(emulator.stream(), planner, p, {}, f.timer()); }).join();
  }
  EXPECT_TRUE(f.runs.empty());
  EXPECT_TRUE(planner.may_tune(p, {})) << "a later call measures";
}

TEST_F(GemmAutotune, LeavesAloneWhatATableKnowsOrCannotSpeakOf) {
  FakeTimer f{[](const GemmChoice&) { return 1; }};
  GemmTable table;
  table.set(gemm_key(p), {all[1].variant.config, 7});
  GemmPlanner knows(hopper(), table, kFull);
  tune_gemm(emulator.stream(), knows, p, {}, f.timer());
  GemmPlanner planner(hopper(), {}, kFull);
  auto wide = p, old = p;
  wide.lda += 8, old.beta = 1;
  tune_gemm(emulator.stream(), planner, wide, {}, f.timer());
  tune_gemm(emulator.stream(), planner, old, {}, f.timer());
  tune_gemm(emulator.stream(), planner, p, {2, 0, 0}, f.timer());
  EXPECT_TRUE(f.runs.empty());
  EXPECT_FALSE(planner.may_tune(wide, {}));
  for (auto mode : {TuneMode::off, TuneMode::cached})
    EXPECT_FALSE(GemmPlanner(hopper(), {}, {mode, 1}).may_tune(p, {}));
  auto emulated = hopper();
  emulated.kind = runtime::DeviceKind::emulator;
  EXPECT_FALSE(GemmPlanner(emulated, {}, kFull).may_tune(p, {})) << "it has no clock";
}

TEST_F(GemmAutotune, WithoutAFolderTheWinnerIsTheProcesssOwn) {
  ::setenv("CGP_CACHE_DIR", "off", 1);
  FakeTimer f{[&](const GemmChoice& c) { return c.variant.name == all[2].variant.name ? 50 : 60; }};
  GemmPlanner planner(hopper(), {}, kFull);
  tune_gemm(emulator.stream(), planner, p, {}, f.timer());
  EXPECT_EQ(planner.choose(p, {})->variant.config, all[2].variant.config);
}

TEST_F(GemmAutotune, ProcessesThatWriteAtOnceLoseNothing) {
  const auto config = parse_gemm_config("gemm_bf16_nt_simt");
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (int i = 0; i < 20; ++i) {
        GemmTable t;
        t.set("bf16/nt/8x8x" + std::to_string(100 * child + i + 100), {config, 1});
        t.set("bf16/nt/8x8x8", {config, 10.0 + child});
        (void)update_gemm_table(t, hopper(), false);
      }
      if (child == 3) std::abort();  // a process that ends in the middle leaves no lock behind
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
  const auto all_rows = load_gemm_table(hopper());
  EXPECT_EQ(all_rows.size(), 81u);
  const double first = all_rows.find(parse_gemm_key("bf16/nt/8x8x8"))->microseconds;
  GemmTable late;
  late.set("bf16/nt/8x8x8", {config, 99});
  EXPECT_EQ(update_gemm_table(late, hopper(), false).find(parse_gemm_key("bf16/nt/8x8x8"))->microseconds,
            first);
  EXPECT_EQ(update_gemm_table(late, hopper(), true).find(parse_gemm_key("bf16/nt/8x8x8"))->microseconds, 99);
}

TEST(TuneEnvironment, NamesTheWordThatIsNone) {
  ::unsetenv("CGP_TUNE");
  EXPECT_EQ(tuning_from_environment().mode, TuneMode::cached);
  ::setenv("CGP_TUNE", "off", 1);
  EXPECT_EQ(tuning_from_environment().mode, TuneMode::off);
  ::setenv("CGP_TUNE", "full", 1), ::setenv("CGP_TUNE_SECONDS", "0.5", 1);
  EXPECT_EQ(tuning_from_environment().mode, TuneMode::full);
  EXPECT_EQ(tuning_from_environment().seconds, 0.5);
  ::setenv("CGP_TUNE_SECONDS", "-1", 1);
  EXPECT_THROW(tuning_from_environment(), ArgumentError);
  ::unsetenv("CGP_TUNE_SECONDS"), ::setenv("CGP_TUNE", "on", 1);
  try {
    tuning_from_environment();
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_THAT(e.what(), HasSubstr("\"on\""));
  }
  ::unsetenv("CGP_TUNE");
}

}  // namespace
}  // namespace cgp::kernels
