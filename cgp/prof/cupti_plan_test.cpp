// SPDX-License-Identifier: Apache-2.0
#include "cgp/prof/cupti_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/prof/process.h"

using namespace cgp;
using namespace cgp::prof;

namespace {

bool no_cupti() {
  if (CGP_SANITIZED)
    return true;  // it opens libnvperf_host with RTLD_DEEPBIND, which AddressSanitizer refuses
  bool there = false;
  describe_cupti(there);
  return !there;
}

}  // namespace

TEST(cupti_plan, the_basic_set_is_one_pass_on_a_gh100) {
  if (no_cupti()) GTEST_SKIP() << "no libcupti";
  const CounterPlan plan = plan_counters("GH100", counters_of(CounterSet::basic));
  EXPECT_TRUE(plan.missing.empty()) << plan.missing[0];
  EXPECT_EQ(plan.passes, 1);
}

TEST(cupti_plan, larger_sets_cost_more_and_every_name_exists) {
  if (no_cupti()) GTEST_SKIP() << "no libcupti";
  int before = 0;
  for (CounterSet set : {CounterSet::basic, CounterSet::roofline, CounterSet::memory, CounterSet::stalls}) {
    const CounterPlan plan = plan_counters("GH100", counters_of(set));
    EXPECT_TRUE(plan.missing.empty()) << plan.missing[0];
    EXPECT_GT(plan.passes, 0);
    EXPECT_LT(plan.passes, 12);
    EXPECT_GE(plan.passes, before == 1 ? 1 : 0);
    before = plan.passes;
  }
}

TEST(cupti_plan, names_that_a_chip_lacks_are_named) {
  if (no_cupti()) GTEST_SKIP() << "no libcupti";
  const CounterPlan plan = plan_counters(
      "GH100", {"smsp__sass_thread_inst_executed_op_hfma2_pred_on.sum", "sm__cycles_elapsed.max"});
  EXPECT_EQ(plan.metrics, std::vector<std::string>{"sm__cycles_elapsed.max"});
  EXPECT_EQ(plan.missing.size(), 1u);
  EXPECT_FALSE(counter_info("GH100", "no__such_metric.sum").exists);
  EXPECT_TRUE(counter_info("GH100", "dram__bytes_read.sum").exists);
  try {
    plan_counters("XY123", {"sm__cycles_elapsed.max"});
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_NE(std::string(e.what()).find("GH100"), std::string::npos);
  }
}

TEST(cupti_plan, architectures_have_chips) {
  EXPECT_EQ(chip_of("sm_90a"), "GH100");
  EXPECT_EQ(chip_of("sm_10"), "");
}

#ifdef CGP_INJECT_LIBRARY
TEST(inject, without_a_driver_it_says_so_and_leaves_the_program_alone) {
  const std::string out = testing::TempDir() + "cgp_inject_test";
  ProcessOptions o;
  o.environment = {{"CGP_INJECT_OUT", out}};
  const std::string load = std::string("import ctypes,os\nl=ctypes.CDLL('") + CGP_INJECT_LIBRARY +
                           "')\nprint(l.InitializeInjection(), os.getpid())\n";
  const ProcessResult r = run_process({"python3", "-c", load}, o);
  ASSERT_TRUE(r.ok()) << r.err;
  EXPECT_EQ(r.out.substr(0, 2), "1 ") << "the program goes on";
  const std::string pid = r.out.substr(2, r.out.find('\n') - 2);
  const std::string events = read_file(out + "." + pid);
  EXPECT_TRUE(events.find("\"hello\"") != std::string::npos ||
              events.find("\"libcupti\"") != std::string::npos)
      << events;
  std::filesystem::remove(out + "." + pid);
}
#endif
