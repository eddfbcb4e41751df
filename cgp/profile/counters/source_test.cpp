// SPDX-License-Identifier: Apache-2.0
// Each collector gives a plausible value on this machine, or an absent metric with a reason.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "cgp/base/error.h"
#include "cgp/profile/counters/perf_events.h"
#include "cgp/profile/measure/count.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/measure/system.h"

using namespace cgp;
using namespace cgp::measure;

namespace {

void expect_value_or_reason(const MetricSet& m, Metric metric, double low, double high) {
  if (m.has(metric)) {
    EXPECT_GE(m[metric].number(), low) << info(metric).name;
    EXPECT_LE(m[metric].number(), high) << info(metric).name;
    EXPECT_FALSE(m[metric].from.empty());
  } else {
    EXPECT_NE(m[metric].why_absent, Reading().why_absent) << info(metric).name << " has no reason of its own";
  }
}

InstructionMix one(std::vector<std::uint8_t> code) {
  code.resize(16, 0x90);
  InstructionMix m;
  classify(code.data(), m);
  return m;
}

__attribute__((noinline)) float dot(const float* a, const float* b, int n) {
  float s = 0;
  for (int i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}

}  // namespace

TEST(system, a_process_is_described) {
  MetricSet m;
  read_process(0, m);
  expect_value_or_reason(m, Metric::rss_mb, 0.5, 1e5);
  expect_value_or_reason(m, Metric::vms_mb, 1, 1e9);
  expect_value_or_reason(m, Metric::file_descriptors_open, 3, 1e5);
  expect_value_or_reason(m, Metric::numa_node, 0, 1024);
  expect_value_or_reason(m, Metric::disk_read_bytes, 0, 1e15);
  ASSERT_TRUE(m.has(Metric::rss_mb));
  EXPECT_GE(m[Metric::rss_peak_mb].number(), m[Metric::rss_mb].number() * 0.9);
}

TEST(system, a_process_that_is_gone_has_reasons_not_zeros) {
  MetricSet m;
  read_process(0x3fffffff, m);
  EXPECT_FALSE(m.has(Metric::rss_mb));
  EXPECT_NE(m[Metric::rss_mb].why_absent.find("cannot be read"), std::string::npos);
}

TEST(system, the_machine_is_described) {
  const MachineFacts f = machine_facts();
  EXPECT_FALSE(f.cpu.empty());
  EXPECT_FALSE(f.kernel.empty());
  EXPECT_GE(f.cores, 1u);
  EXPECT_GT(f.memory_bytes, 1u << 28);
  EXPECT_EQ(f.key(), machine_facts().key()) << "nothing measured goes into the key";
}

TEST(system, a_clock_that_cannot_be_is_refused) {
  EXPECT_EQ(implausible_clock(3200, 2100), "");
  EXPECT_NE(implausible_clock(15459, 2100), "") << "additions that a core folded";
  EXPECT_NE(implausible_clock(19133, 3900), "");
  EXPECT_NE(implausible_clock(6900, 1000), "");
  EXPECT_NE(implausible_clock(150, 2100), "");
#if defined(__x86_64__)
  MetricSet m;
  read_processor(m);
  ASSERT_TRUE(m.has(Metric::cpu_frequency_mhz)) << m[Metric::cpu_frequency_mhz].why_absent;
  EXPECT_LT(m[Metric::cpu_frequency_mhz].number(), 7000);
#endif
}

TEST(system, changes_of_the_machine_come_from_two_readings) {
  const SystemCounters before = read_system();
  run_process({"sh", "-c", "sleep 0.05"});
  const SystemCounters after = read_system();
  MetricSet m;
  add_system_change(before, after, m);
  expect_value_or_reason(m, Metric::io_wait_pct, 0, 100);
  expect_value_or_reason(m, Metric::disk_read_iops, 0, 1e7);
  SystemCounters earlier = before, later = before;
  earlier.net_rx = 5'000'000'000, later.net_rx = 5'000'000'700, later.time += 1;
  add_system_change(earlier, later, m);
  EXPECT_EQ(m[Metric::net_rx_bytes].number(), 700) << "what came before the program is not its own";
  if (const auto steal = steal_share(before, after)) {
    EXPECT_GE(*steal, 0);
    EXPECT_LE(*steal, 1);
  }
}

TEST(perf_events, a_child_is_counted_or_the_kernel_says_why_not) {
  PerfCounters counters;
  const ProcessResult r = run_process({"sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"});
  ASSERT_TRUE(r.ok());
  MetricSet m;
  counters.read(m);
  expect_value_or_reason(m, Metric::instructions, 1e5, 1e10);
  expect_value_or_reason(m, Metric::cycles, 1e5, 1e10);
  expect_value_or_reason(m, Metric::page_faults_minor, 10, 1e6);
  for (const PerfEvent& e : probe_perf_events()) {
    EXPECT_TRUE(e.why_absent.empty() || !m.has(e.metric)) << e.name;
  }
}

TEST(count, vector_instructions_are_told_apart) {
  EXPECT_EQ(one({0xF3, 0x0F, 0x58, 0xC1}).scalar.single, 1u);            // addss xmm0, xmm1
  EXPECT_EQ(one({0xF2, 0x0F, 0x59, 0xC1}).scalar.real64, 1u);            // mulsd
  EXPECT_EQ(one({0x0F, 0x59, 0xC1}).v128.single, 1u);                    // mulps
  EXPECT_EQ(one({0x66, 0x0F, 0x5C, 0xC1}).v128.real64, 1u);              // subpd
  EXPECT_EQ(one({0xC5, 0xF4, 0x58, 0xC2}).v256.single, 1u);              // vaddps ymm0, ymm1, ymm2
  EXPECT_EQ(one({0xC4, 0xE2, 0x75, 0xB8, 0xC2}).v256.single, 2u);        // vfmadd231ps ymm0, ymm1, ymm2
  EXPECT_EQ(one({0xC4, 0xE2, 0x71, 0xB9, 0xC2}).scalar.single, 2u);      // vfmadd231ss xmm0, xmm1, xmm2
  EXPECT_EQ(one({0x62, 0xF2, 0x75, 0x48, 0xB8, 0xC2}).v512.single, 2u);  // vfmadd231ps zmm0, zmm1, zmm2
  EXPECT_EQ(one({0x62, 0xF1, 0xF5, 0x48, 0x58, 0xC2}).v512.real64, 1u);  // vaddpd zmm0, zmm1, zmm2
  EXPECT_EQ(one({0x0F, 0x28, 0xC1}).vector_other, 1u);                   // movaps
  EXPECT_EQ(one({0x0F, 0x84, 0, 0, 0, 0}).branches, 1u);                 // je
  EXPECT_EQ(one({0x75, 0x02}).branches, 1u);                             // jne
  EXPECT_EQ(one({0x48, 0x01, 0xC8}).floating(), 0u);                     // add rax, rcx
  EXPECT_EQ(one({0x0F, 0xB6, 0xC0}).vector_other, 0u);                   // movzx eax, al
}

TEST(count, single_steps_count_a_loop_exactly) {
  std::vector<float> a(4096, 1), b(4096, 2);
  volatile float sink = 0;
  InstructionMix half, full;
  try {
    half = step_function([&] { sink = dot(a.data(), b.data(), 500); });
    full = step_function([&] { sink = dot(a.data(), b.data(), 1000); });
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  (void)sink;
  // 500 multiplications and 500 additions more, whether the compiler takes vectors for some of them or not;
  // the frame around the loop cancels in the difference.
  const auto lanes = [](const InstructionMix& m) { return m.scalar.single + 4 * m.v128.single; };
  EXPECT_EQ(lanes(full) - lanes(half), 1000u);
  EXPECT_GE(full.instructions - half.instructions, 800u);
  if (!CGP_SANITIZED) {  // instrumented: twenty for one
    EXPECT_LE(full.instructions - half.instructions, 4000u);
  }
  EXPECT_FALSE(full.truncated);
  EXPECT_EQ(step_function([&] { sink = dot(a.data(), b.data(), 500); }).instructions, half.instructions);
  // A stop from outside neither ends the count nor adds to it (0 sends nothing).
  const auto with = [&](int signal) {
    return step_function([&, signal] {
             ::kill(::getpid(), signal);
             sink = dot(a.data(), b.data(), 500);
           })
        .instructions;
  };
  const std::uint64_t undisturbed = with(0);
  EXPECT_GT(undisturbed, half.instructions);
  EXPECT_EQ(with(SIGSTOP), undisturbed);
  EXPECT_EQ(with(SIGCONT), undisturbed);
}

TEST(count, the_limit_ends_a_long_program) {
  try {
    const InstructionMix m = step_program({"true"}, 1000);
    EXPECT_TRUE(m.truncated);
    EXPECT_EQ(m.instructions, 1000u);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(count, callgrind_counts_and_says_what_it_could_not_run) {
  if (find_program("valgrind").empty()) GTEST_SKIP() << "no valgrind";
  const CallgrindCounts c = callgrind({"true"}, true);
  EXPECT_GT(c.instructions, 10000u);
  EXPECT_LT(c.instructions, 10000000u);
  MetricSet m;
  add_callgrind(c, m);
  EXPECT_EQ(m[Metric::instructions].source, Source::counted);
  EXPECT_EQ(m[Metric::cache_misses].source, Source::simulated) << "a model is never called a count";
  EXPECT_FALSE(m.has(Metric::cycles));
  EXPECT_THROW(callgrind({"/no/such/program"}), Error);
}
