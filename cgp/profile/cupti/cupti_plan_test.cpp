// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/cupti/cupti_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/profile/measure/process.h"

using namespace cgp;
using namespace cgp::measure;

namespace {

bool no_cupti() {
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
namespace {

/// The events of a process that does `then` after the recorder came, with a libcupti that refuses `fails`.
std::string events_where(const std::string& fails, const std::string& then, const std::string& window = "") {
  const std::string out = testing::TempDir() + "cgp_inject_refused_" + std::to_string(getpid());
  ProcessOptions o;
  o.environment = {{"CGP_INJECT_OUT", out},
                   {"CGP_CUPTI", CGP_FAKE_CUPTI_LIBRARY},
                   {"CGP_FAKE_CUPTI", fails},
                   {"CGP_INJECT_WINDOW", window}};
  const ProcessResult r = run_process(
      {"python3", "-c",
       std::string("import ctypes,os,time\nl=ctypes.CDLL('") + CGP_INJECT_LIBRARY +
           "')\nf=ctypes.CDLL('" CGP_FAKE_CUPTI_LIBRARY "')\nl.InitializeInjection()\nprint(os.getpid())\n" +
           "events='" + out + ".'+str(os.getpid())\n" + then},
      o);
  EXPECT_TRUE(r.ok()) << "the program goes on: " << r.err;
  const std::string file = out + "." + r.out.substr(0, r.out.find('\n')), events = read_file(file);
  std::filesystem::remove(file);
  return events;
}

}  // namespace

TEST(inject, what_cupti_refuses_is_written_once_and_the_recording_has_its_end) {
  struct Case {
    const char *fails, *said;
  };
  for (const Case& c : {Case{"cuptiSubscribe=39", "\"cuptiSubscribe\",\"code\":39"},
                        Case{"cuptiActivityEnable=1", "\"records of kernels\",\"code\":1"},
                        Case{"cuptiActivityEnableDriverApi=7,cuptiActivityFlushAll=3",
                             "\"records of the driver's calls\",\"code\":7"}}) {
    const std::string events = events_where(c.fails, "");
    const auto at = events.find(c.said);
    EXPECT_NE(at, std::string::npos) << c.fails << ": " << events;
    EXPECT_EQ(events.find(c.said, at + 1), std::string::npos) << events;
    EXPECT_NE(events.find("\"end\""), std::string::npos) << events;
  }
}

TEST(inject, a_recorder_that_cannot_come_back_after_its_first_part_says_so) {
  const std::string events = events_where("cuptiSubscribe:2=39",
                                          "while '\"error\"' not in open(events).read():\n"
                                          "  f.fake_cupti_launch(); time.sleep(.002)\n",
                                          "2,4");
  EXPECT_NE(events.find("\"begins\":false"), std::string::npos) << events;
  EXPECT_NE(events.find("\"cuptiSubscribe\",\"code\":39"), std::string::npos) << events;
}

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
