// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/measure.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/profile/measure/process.h"

using namespace cgp;
using namespace cgp::measure;

namespace {

/// A machine on which work takes as long as it says, and reading the clock takes 20 ns.
class VirtualMachine {
 public:
  std::function<double()> clock() {
    return [this] { return seconds_ += 20e-9; };
  }
  void work(double seconds) { seconds_ += seconds; }

 private:
  double seconds_ = 0;
};

PairedResult compared(double a, double b) {
  VirtualMachine machine;
  LockstepOptions o;
  o.clock = machine.clock();
  return compare_functions([&] { machine.work(a); }, [&] { machine.work(b); }, o);
}

}  // namespace

TEST(measure, samples_are_batches_long_enough_for_the_clock) {
  VirtualMachine machine;
  MeasureOptions o;
  o.clock = machine.clock();
  const Measurement m = cgp::measure::measure([&] { machine.work(100e-9); }, o);
  EXPECT_GE(m.calls, 440u) << "a sample takes 50 us, or a tenth less";
  EXPECT_LE(m.calls, 560u);
  EXPECT_NEAR(m.summary.median, 100e-9, 20e-9 / 440 * 1.01) << "reading the clock is shared by all calls";
  EXPECT_LE(m.interval.low, m.summary.median);
  EXPECT_GE(m.interval.high, m.summary.median);
  EXPECT_EQ(m.stop, Stop::precision);
  EXPECT_NEAR(double(m.seconds.size()) * double(m.calls) * 100e-9, 0.05, 0.015)
      << "the least time to measure";
}

TEST(measure, time_is_that_of_the_work) {
  const Measurement m =
      cgp::measure::measure([] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); },
                            {.max_seconds = 0.3, .min_samples = 5});
  EXPECT_GE(m.summary.min, 0.003) << "of the clock of this machine: never less than it slept";
  EXPECT_EQ(m.calls, 1u);
}

TEST(measure, it_ends_by_precision_time_or_samples) {
  VirtualMachine machine;
  SplitMix64 random(1);
  const auto noisy = [&] { machine.work(random.uniform(1e-3, 2e-3)); };
  MeasureOptions o;
  o.clock = machine.clock();
  o.precision = 1e-9;
  EXPECT_EQ(cgp::measure::measure(noisy, o).stop, Stop::time);
  const double start = o.clock();
  (void)cgp::measure::measure(noisy, o);
  EXPECT_NEAR(o.clock() - start, o.max_seconds, 0.01);
  o.max_samples = 100;
  EXPECT_EQ(cgp::measure::measure(noisy, o).stop, Stop::samples);
  EXPECT_EQ(cgp::measure::measure(noisy, o).seconds.size(), 100u);
  o.precision = 0.5;
  EXPECT_EQ(cgp::measure::measure(noisy, o).stop, Stop::precision);
  EXPECT_NEAR(cgp::measure::measure([&] { machine.work(2e-3); }, o).summary.median, 2e-3, 1e-6);
}

TEST(measure, cold_samples_are_single_calls_that_pay_for_memory) {
  std::vector<std::uint64_t> data(1 << 15, 1);  // 256 KiB
  const auto walk = [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < data.size(); i += 8) sum += data[i];
    keep(sum);
  };
  MeasureOptions cold;
  cold.max_seconds = 0.4;
  cold.cold = true;
  const Measurement c = cgp::measure::measure(walk, cold);
  EXPECT_EQ(c.calls, 1u);
  EXPECT_GE(c.seconds.size() + c.warmup.size(), 3u);
  EXPECT_GT(c.summary.min, 0);
  // The flush itself is not timed: on a machine where only calls take time, a cold call takes what a hot one
  // does.
  VirtualMachine machine;
  cold.clock = machine.clock();
  EXPECT_NEAR(cgp::measure::measure([&] { machine.work(1e-3); }, cold).summary.max, 1e-3, 1e-7);
}

TEST(measure, the_first_slow_calls_are_warm_up) {
  VirtualMachine machine;
  int call = 0;
  const Measurement m = cgp::measure::measure(
      [&] { machine.work(++call < 15 ? 400e-6 : 60e-6 + 1e-7 * (call % 5)); },
      {.precision = 1e-9, .max_seconds = 3, .min_samples = 80, .max_samples = 80, .clock = machine.clock()});
  EXPECT_EQ(m.stop, Stop::samples);
  EXPECT_EQ(m.steadiness, Steadiness::warmup);
  EXPECT_EQ(m.warmup.size(), 12u)
      << "14 slow calls: one before the measurement, one to find how many make a sample";
  EXPECT_EQ(m.warmup.size() + m.seconds.size(), 80u);
  EXPECT_LT(m.summary.max, 61e-6);
}

TEST(measure, impossible_options_are_refused) {
  EXPECT_THROW(cgp::measure::measure([] {}, {.precision = 0}), ArgumentError);
  EXPECT_THROW(cgp::measure::measure([] {}, {.min_samples = 50, .max_samples = 10}), ArgumentError);
  LockstepOptions o;
  o.samples = 0;
  EXPECT_THROW(compare_functions([] {}, [] {}, o), ArgumentError);
}

TEST(measure, half_as_much_work_again_is_a_regression_and_the_other_way_an_improvement) {
  const PairedResult up = compared(40e-6, 60e-6);
  EXPECT_EQ(up.verdict, Verdict::regression) << up.why;
  EXPECT_NEAR(up.change, 0.5, 1e-3);
  EXPECT_LT(up.p, 0.01);
  EXPECT_EQ(compared(60e-6, 40e-6).verdict, Verdict::improved);
  EXPECT_EQ(compared(40e-6, 40e-6).verdict, Verdict::no_change);
}

TEST(measure, functions_are_timed_in_turns_with_the_clock_of_this_machine) {
  std::string order;
  LockstepOptions o;
  o.samples = 1, o.sample_seconds = 1e-9;
  const auto takes = [&](char who) {
    order += who;
    std::this_thread::sleep_for(std::chrono::microseconds(1));
  };
  const PairedResult r = compare_functions([&] { takes('a'); }, [&] { takes('b'); }, o);
  EXPECT_GE(r.pairs.size(), 12u);
  for (const Pair& p : r.pairs) {
    EXPECT_GE(p.a, 1e-6);
    EXPECT_GT(p.b, 0);
  }
  EXPECT_NE(order.find("aab"), std::string::npos);
  EXPECT_NE(order.find("bba"), std::string::npos);
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
  const ProcessResult r = run_process({"sleep", "1000"}, o);
  EXPECT_TRUE(r.timed_out);
  EXPECT_TRUE(r.signal == SIGTERM || r.signal == SIGKILL) << r.signal << ": SIGKILL comes a second later";
  EXPECT_GE(r.wall_seconds, 0.2);
  EXPECT_LT(r.wall_seconds, 900) << "it was not ended";
}

// Looking every few milliseconds would round times up, and wake some hundred times here.
TEST(process, its_end_is_waited_for_not_looked_for) {
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  run_process({"sleep", "0.5"});
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 20);
}

// What looks at a program holds it up: reading /proc/PID/numa_maps every 20 ms took a third of a core.
TEST(process, who_watches_takes_a_hundredth_of_the_time) {
  ProcessOptions o;
  int looks = 0;
  double spent = 0;
  o.watch = [&](pid_t) {
    const double start = now();
    while (now() - start < 0.01) continue;
    ++looks, spent += now() - start;
  };
  const ProcessResult r = run_process({"sleep", "0.3"}, o);
  EXPECT_GE(looks, 1);
  EXPECT_LE(double(looks - 1), r.wall_seconds / (100 * 0.01)) << spent;
}

TEST(process, an_interruption_is_passed_on_and_what_was_there_is_kept) {
  // In short steps: a shell that is told while it starts a command (dash) ends after that command.
  const ProcessResult r =
      run_process({"sh", "-c", "echo before; kill -INT $PPID; while :; do sleep 0.1; done"});
  EXPECT_TRUE(r.interrupted);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.describe(), "interrupted");
  EXPECT_EQ(r.out, "before\n");
  EXPECT_FALSE(run_process({"true"}).interrupted) << "the next one is on its own";
  EXPECT_TRUE(
      run_process({"sh", "-c", "kill -TERM $PPID; kill -STOP $$; while :; do sleep 0.1; done"}).interrupted)
      << "a program that stopped itself is woken to be told";
}

TEST(process, a_grandchild_that_keeps_the_pipe_is_not_waited_for) {
  const double start = now();
  const ProcessResult r = run_process({"sh", "-c", "sleep 1000 & echo $!"});
  const pid_t sleeper = pid_t(std::stol(r.out));
  ASSERT_GT(sleeper, 1);
  EXPECT_EQ(kill(sleeper, SIGKILL), 0) << "it was waited for, or ended";
  EXPECT_LT(now() - start, 900);
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
