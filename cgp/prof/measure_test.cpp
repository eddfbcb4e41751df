// SPDX-License-Identifier: Apache-2.0
#include "cgp/prof/measure.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "cgp/base/error.h"
#include "cgp/prof/process.h"

using namespace cgp;
using namespace cgp::prof;

namespace {

void spin(int n) {
  double x = 1;
  for (int i = 0; i < n; ++i) x = x * 1.0000001 + 1e-9;
  keep(x);
}

}  // namespace

TEST(measure, samples_are_batches_long_enough_for_the_clock) {
  MeasureOptions o;
  o.max_seconds = 0.5;
  const Measurement m = measure([] { spin(100); }, o);
  EXPECT_GE(m.seconds.size(), 3u);
  EXPECT_GT(m.calls, 10u);
  EXPECT_GT(m.summary.median * double(m.calls), 20e-6);
  EXPECT_LE(m.interval.low, m.summary.median);
  EXPECT_GE(m.interval.high, m.summary.median);
}

TEST(measure, time_is_that_of_the_work) {
  const Measurement m = measure([] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); },
                                {.max_seconds = 0.3, .min_samples = 5});
  EXPECT_GE(m.summary.median, 0.003);
  EXPECT_LT(m.summary.min, 0.02);
  EXPECT_EQ(m.calls, 1u);
}

TEST(measure, cold_samples_are_single_calls_that_pay_for_memory) {
  std::vector<std::uint64_t> data(1 << 15, 1);  // 256 KiB
  const auto walk = [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < data.size(); i += 8) sum += data[i];
    keep(sum);
  };
  MeasureOptions hot, cold;
  hot.max_seconds = cold.max_seconds = 0.4;
  cold.cold = true;
  const Measurement h = measure(walk, hot), c = measure(walk, cold);
  EXPECT_EQ(c.calls, 1u);
  EXPECT_GT(c.summary.p25, h.summary.min) << "the walk is faster when its data is in a cache";
}

TEST(measure, the_first_slow_calls_are_warm_up) {
  int call = 0;
  const Measurement m = measure([&] { spin(++call < 15 ? 400000 : 60000); },
                                {.precision = 1e-9, .max_seconds = 3, .min_samples = 80, .max_samples = 80});
  EXPECT_EQ(m.stop, Stop::samples);
  if (m.steadiness == Steadiness::warmup) {
    EXPECT_GE(m.warmup.size(), 8u);
    EXPECT_EQ(m.warmup.size() + m.seconds.size(), 80u);
  }
}

TEST(measure, impossible_options_are_refused) {
  EXPECT_THROW(measure([] {}, {.precision = 0}), ArgumentError);
  EXPECT_THROW(measure([] {}, {.min_samples = 50, .max_samples = 10}), ArgumentError);
  LockstepOptions o;
  o.samples = 0;
  EXPECT_THROW(compare_functions([] {}, [] {}, o), ArgumentError);
}

TEST(measure, half_as_much_work_again_is_a_regression_and_the_other_way_an_improvement) {
  const auto small = [] { spin(20000); };
  const auto large = [] { spin(30000); };
  const PairedResult up = compare_functions(small, large);
  EXPECT_EQ(up.verdict, Verdict::regression) << up.why;
  EXPECT_NEAR(up.change, 0.5, 0.15);
  EXPECT_LT(up.p, 0.01);
  EXPECT_EQ(compare_functions(large, small).verdict, Verdict::improved);
}

TEST(process, reports_exit_code_output_and_use) {
  const ProcessResult r = run_process({"sh", "-c", "echo hello; echo bad >&2; exit 3"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.out, "hello\n");
  EXPECT_EQ(r.err, "bad\n");
  EXPECT_EQ(r.describe(), "exit code 3");
  EXPECT_GT(r.peak_rss_bytes, 100000u);
  EXPECT_GT(r.minor_faults, 10u);
}

TEST(process, a_signal_is_named_and_output_before_it_is_kept) {
  const ProcessResult r = run_process({"sh", "-c", "echo before; kill -SEGV $$"});
  EXPECT_EQ(r.signal, SIGSEGV);
  EXPECT_EQ(r.describe(), "SIGSEGV");
  EXPECT_EQ(r.out, "before\n");
}

TEST(process, a_time_out_ends_it) {
  ProcessOptions o;
  o.timeout_seconds = 0.2;
  const ProcessResult r = run_process({"sleep", "30"}, o);
  EXPECT_TRUE(r.timed_out);
  EXPECT_LT(r.wall_seconds, 5);
}

TEST(process, a_grandchild_that_keeps_the_pipe_is_not_waited_for) {
  const double start = now();
  const ProcessResult r = run_process({"sh", "-c", "sleep 8 & echo done"});
  EXPECT_EQ(r.out, "done\n");
  EXPECT_LT(now() - start, 5);
}

TEST(process, folder_and_environment_are_set) {
  ProcessOptions o;
  o.folder = "/";
  o.environment = {{"CGP_TEST_WORD", "x y"}, {"HOME", ""}};
  EXPECT_EQ(run_process({"sh", "-c", "pwd; echo $CGP_TEST_WORD; echo ${HOME-unset}"}, o).out,
            "/\nx y\nunset\n");
}

TEST(process, what_cannot_be_started_says_why) {
  EXPECT_THROW(run_process({}), ArgumentError);
  try {
    run_process({"no-such-program-xyz"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("No such file"), std::string::npos);
  }
}

TEST(process, long_output_loses_its_middle) {
  ProcessOptions o;
  o.keep_bytes = 1000;
  const ProcessResult r = run_process({"sh", "-c", "echo first; yes | head -c 100000; echo last"}, o);
  EXPECT_EQ(r.out.substr(0, 6), "first\n");
  EXPECT_EQ(r.out.substr(r.out.size() - 5), "last\n");
  EXPECT_NE(r.out.find("left out"), std::string::npos);
  EXPECT_LT(r.out.size(), 3000u);
}

TEST(process, commands_split_and_join) {
  EXPECT_EQ(split_command("a 'b c' \"d \\\"e\\\"\" f\\ g ''"),
            (std::vector<std::string>{"a", "b c", "d \"e\"", "f g", ""}));
  EXPECT_THROW(split_command("a 'b"), ArgumentError);
  const std::vector<std::string> words{"sh", "-c", "echo 'it''s' $x", ""};
  EXPECT_EQ(split_command(join_command(words)), words);
}
