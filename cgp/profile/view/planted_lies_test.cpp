// SPDX-License-Identifier: Apache-2.0
// Planted lies: wrong units, swapped counters, folded loops, truncated traces, crashed programs, throttled clocks, copies
// called kernels. Each is put where a user's file, program or machine would put it, and must be refused or named.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/contract/contract.h"
#include "cgp/profile/counters/nvml.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/import/ncu_report.h"
#include "cgp/profile/import/nsys_report.h"
#include "cgp/profile/measure/plausible.h"
#include "cgp/profile/measure/series.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/sampling/cpu_profile.h"
#include "cgp/profile/timeline/phases.h"
#include "cgp/profile/view/document.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using measure::Source;
using nlohmann::ordered_json;
using text::cat;

namespace {

/// A lie, and what must be said to it.
struct Lie {
  const char* what;
  std::function<std::string()> answer;
  const char* expected;
};

/// A profile of 6 runs of 100 us with nothing wrong in it.
ordered_json honest() {
  Document d = new_document("bench", "work");
  d.samples.push_back({"time", "us", {99, 100, 100, 100, 100, 101}});
  d.metrics.set(Metric::wall_clock_time_us, 100.0, Source::measured, "clock");
  return to_json(d);
}

/// What is said of a profile: the refusal, or its notes.
std::string answer_to(const ordered_json& j) {
  try {
    return text::join(from_json(j, "file").notes, "\n");
  } catch (const ParseError& e) {
    return e.what();
  }
}

/// A file that gives these values. The notes alone count: a value that is taken without a word is a lie believed.
std::function<std::string()> file_says(std::vector<std::pair<const char*, ordered_json>> values) {
  return [values] {
    auto j = honest();
    for (const auto& [name, v] : values) {
      j["metrics"][name]["value"] = v;
      j["metrics"][name]["source"] = "counted", j["metrics"][name]["from"] = "a file";
    }
    return answer_to(j);
  };
}

std::function<std::string()> edited(const std::function<void(ordered_json&)>& edit) {
  return [edit] {
    auto j = honest();
    edit(j);
    return answer_to(j);
  };
}

std::function<std::string()> recorded(const std::string& events) {
  return [events] {
    Timeline t;
    read_events(
        "{\"ev\":\"name\",\"id\":0,\"name\":\"k\"}\n{\"ev\":\"name\",\"id\":1,\"name\":\"[CUDA memcpy "
        "HtoD]\"}\n" +
            events,
        t);
    return text::join(notes_of(t), "\n");
  };
}
std::string kernel(int name, std::uint64_t t0, std::uint64_t t1, const char* grid = "[1,1,1]",
                   const char* block = "[32,1,1]") {
  return cat("{\"ev\":\"kernel\",\"n\":", name, ",\"t0\":", t0, ",\"t1\":", t1, ",\"grid\":", grid,
             ",\"block\":", block, "}\n");
}
const std::string kEnd = "{\"ev\":\"end\"}\n";

/// Counters of a kernel as CUPTI names them: why this metric is absent.
std::function<std::string()> counted(Metric m, std::map<std::string, double> counters) {
  return [m, counters] {
    measure::MetricSet set;
    counters_to_metrics(counters, set, "counters");
    return set.has(m) ? "believed" : set[m].why_absent;
  };
}

std::string took(const char* word) {
  const auto rule = timing_rule({"wall", "took (\\S+)", "us", 0});
  return time_once({"p", {"echo", "took", word}, {}}, rule, 0).failure;
}

Document runs(double us, int n, const char* unit = "us") {
  Document d = new_document("bench", "work");
  Samples s{"time", unit, {}};
  for (int i = 0; i < n; ++i) s.values.push_back(us * (1 + 0.001 * (i * 7 % 11 - 5)));
  d.samples.push_back(s);
  return d;
}
std::string compared(const Document& a, const Document& b) {
  const auto rows = diff_documents(a, b, 0.12, 0.03);
  return rows.empty() ? "nothing is compared" : rows.back().verdict + " " + rows.back().why;
}

Document of_softmax() {
  Document d = new_document("kernel", "softmax", {"rows=8"});
  d.machine["device"] = {{"spec", "cuda:0"}, {"name", "NVIDIA H200"}, {"arch", "sm_90a"}};
  d.metrics.set(Metric::wall_clock_time_us, 40.0, Source::measured, "events");
  return d;
}
std::function<std::string()> promised(const std::string& yaml) {
  return [yaml] {
    std::string out;
    for (const auto& c : check(parse_contract(yaml, "c.yaml"), of_softmax()))
      out += cat(name(c.outcome), " ", c.why);
    return out;
  };
}

template <class F>
std::function<std::string()> refused(F f) {
  return [f]() -> std::string {
    try {
      f();
    } catch (const std::exception& e) {
      return e.what();
    }
    return "believed";
  };
}

std::string steadiness(double first, double then) {
  std::vector<double> v;
  for (int i = 0; i < 60; ++i) v.push_back((i < 20 ? first : then) * (1 + 0.001 * (i * 7 % 11 - 5)));
  return std::string(measure::name(measure::steady_state(v).kind));
}

const std::vector<Lie>& lies() {
  static const std::vector<Lie> all{
      // wrong units
      {"a time in ms under the name of us",
       edited([](auto& j) { j["metrics"]["wall_clock_time_us"]["unit"] = "ms"; }), "gives it in \"ms\""},
      {"a time in ms that says us", file_says({{"wall_clock_time_us", 0.1}}), "outside its samples"},
      {"a time in ns that says us", file_says({{"wall_clock_time_us", 100000}}), "outside its samples"},
      {"a clock in Hz that says MHz", file_says({{"cpu_frequency_mhz", 3.2e9}}), "cannot be"},
      {"a GPU clock in kHz that says MHz", file_says({{"gpu_clock_mhz", 1980000}}), "cannot be"},
      {"power in mW that says W", file_says({{"gpu_power_watts", 285000}}), "cannot be"},
      {"a rate in bytes that says GB", file_says({{"bandwidth_gbps", 4.3e12}}), "cannot be"},
      {"a copy in MB/s that says GB/s", file_says({{"h2d_bandwidth_gbps", 25000}}), "cannot be"},
      {"GFLOP/s that says TFLOP/s", file_says({{"tflops", 845000}}), "cannot be"},
      {"memory in bytes that says MB", file_says({{"vram_total_mb", 1.5e11}}), "cannot be"},
      {"degrees Kelvin that say Celsius", file_says({{"gpu_temperature_celsius", 338}}), "cannot be"},
      {"samples of another unit", [] { return compared(runs(100, 30), runs(100, 30, "GB/s")); },
       "INCOMPARABLE"},
      // numbers that cannot be
      {"a hit rate above 100 %", file_says({{"l1_hit_rate_pct", 140}}), "share of 100 %"},
      {"an efficiency of 248 %", file_says({{"efficiency_pct", 248}}), "share of 100 %"},
      {"an occupancy below 0", file_says({{"achieved_occupancy_pct", -3}}), "share of 100 %"},
      {"a time of 0", file_says({{"wall_clock_time_us", 0}}), "cannot be"},
      {"a negative count", file_says({{"instructions", -1}}), "never negative"},
      {"a p-value of 2", file_says({{"p_value", 2}}), "probability"},
      {"11 instructions a cycle of an SM", file_says({{"ipc", 11}}), "schedulers"},
      {"a PCIe link of 64 lanes", file_says({{"pcie_width", 64}}), "lanes"},
      {"a thread of 300 registers", file_says({{"register_usage_per_thread", 300}}), "256 registers"},
      {"32 threads that are 600 times faster", file_says({{"parallel_speedup", 600}, {"num_threads", 32}}),
       "contradict each other"},
      {"grid and block exchanged",
       file_says({{"block_dimensions", {16384, 1, 1}}, {"grid_dimensions", {256, 1, 1}}}),
       "1 to 1024 threads"},
      // swapped counters
      {"branches and their misses exchanged", file_says({{"branches", 100}, {"branch_misses", 90000}}),
       "contradict each other"},
      {"cache references and misses exchanged",
       file_says({{"cache_references", 100}, {"cache_misses", 90000}}), "contradict each other"},
      {"more branches than instructions", file_says({{"instructions", 100}, {"branches", 900}}),
       "contradict each other"},
      {"cycles and instructions 100 to 1", file_says({{"instructions", 100000}, {"cycles", 1000}}),
       "contradict each other"},
      {"more frees than allocations", file_says({{"malloc_count", 10}, {"free_count", 90}}),
       "contradict each other"},
      {"memory used and in all exchanged", file_says({{"vram_used_mb", 143771}, {"vram_total_mb", 512}}),
       "contradict each other"},
      {"the interval's ends exchanged", file_says({{"ci_95_low_us", 101}, {"ci_95_high_us", 99}}),
       "contradict each other"},
      {"a median outside its interval", file_says({{"ci_95_low_us", 90}, {"ci_95_high_us", 95}}),
       "contradict each other"},
      {"GFLOP/s that are not a thousand TFLOP/s", file_says({{"tflops", 20}, {"gflops", 2000}}),
       "contradict each other"},
      {"a rate above the peak beside it", file_says({{"tflops", 1200}, {"peak_compute_tflops", 989}}),
       "contradict each other"},
      {"a ridge point that is not the peaks' ratio",
       file_says({{"peak_compute_tflops", 989}, {"peak_bandwidth_gbps", 4800}, {"ridge_point", 150}}),
       "gives 206"},
      {"more received than the link carries",
       file_says({{"pcie_rx_throughput_gbps", 90}, {"pcie_bandwidth_theoretical_gbps", 31.5}}),
       "contradict each other"},
      {"a leak larger than the heap",
       file_says({{"heap_allocated_mb", 1}, {"heap_peak_mb", 1}, {"memory_leaks_bytes", 5e6}}),
       "contradict each other"},
      {"lanes over warps exchanged by a counter",
       counted(Metric::warp_execution_efficiency_pct,
               {{"smsp__thread_inst_executed_per_inst_executed.ratio", 1024}}),
       "share of 100 %"},
      {"a hit rate counted above 100 %",
       counted(Metric::l2_hit_rate_pct, {{"lts__t_sector_hit_rate.pct", 133}}), "share of 100 %"},
      // folded loops and clocks
      {"additions that the renamer folds: 15 GHz", [] { return measure::implausible_clock(15459, 2100); },
       "cannot be"},
      {"19 GHz on a core of 3.9", [] { return measure::implausible_clock(19133, 3900); }, "cannot be"},
      {"a clock seven times its time-stamp counter", [] { return measure::implausible_clock(6900, 900); },
       "cannot be"},
      {"a loop that the compiler removed takes 0 s", [] { return took("0"); },
       "is \"0\", which is no positive number"},
      {"a processor throttled after the first third", [] { return steadiness(100, 160); }, "slow-down"},
      {"a processor that warmed up while it was measured", [] { return steadiness(160, 100); }, "warm-up"},
      {"a GPU slowed by heat", [] { return measure::slowed_text(0x20); }, "thermal"},
      {"a GPU at its power cap", [] { return measure::slowed_text(0x4); }, "power cap"},
      {"a rate of a cache under the roof of memory",
       [] {
         measure::MetricSet m;
         m.set(Metric::wall_clock_time_us, 1.0, Source::measured, "clock");
         m.set(Metric::peak_compute_tflops, 0.1, Source::measured, "roofline");
         m.set(Metric::peak_bandwidth_gbps, 10.0, Source::measured, "roofline");
         m.derive(24800, 24800);
         return m.has(Metric::efficiency_pct) ? "believed" : m[Metric::efficiency_pct].why_absent;
       },
       "248 %"},
      // traces
      {"a trace cut off in the middle", recorded(kernel(0, 10, 20) + "{\"ev\":\"kern"), "has no end"},
      {"a trace without its end", recorded(kernel(0, 10, 20)), "has no end"},
      {"a trace with rubbish inside", recorded(kernel(0, 10, 20) + "rubbish\n" + kEnd), "is no event"},
      {"records that CUPTI dropped", recorded(kernel(0, 10, 20) + "{\"ev\":\"dropped\",\"n\":512}\n" + kEnd),
       "512 records were dropped"},
      {"a kernel that ends before it begins", recorded(kernel(0, 20, 10) + kEnd), "before it begins"},
      {"a kernel of five years", recorded(kernel(0, 0, 157680000000000000ull) + kEnd), "it lasts"},
      {"a block of 4096 threads", recorded(kernel(0, 10, 20, "[1,1,1]", "[64,64,1]") + kEnd),
       "1 to 1024 threads"},
      {"a launch of no block", recorded(kernel(0, 10, 20, "[0,1,1]") + kEnd), "blocks"},
      {"a copy called a kernel", recorded(kernel(1, 10, 20) + kEnd), "is a copy"},
      {"counters of the first launches alone",
       recorded(kernel(0, 10, 20) + "{\"ev\":\"limit\",\"launches\":500}\n" + kEnd), "first 500 launches"},
      {"a recording of parts that calls itself whole",
       recorded("{\"ev\":\"window\",\"begins\":true,\"t\":1}\n" + kernel(0, 10, 20) +
                "{\"ev\":\"window\",\"begins\":false,\"t\":30}\n" +
                "{\"ev\":\"window\",\"begins\":true,\"t\":1000}\n" + kernel(0, 1010, 1020) + kEnd),
       "of the time was recorded"},
      // crashed and silent programs
      {"a program that ends with 4",
       [] {
         return compare_programs({"good", {"true"}, {}}, {"bad", {"sh", "-c", "exit 4"}, {}}, {}, {}).failure;
       },
       "exit code 4"},
      {"a program that a signal ends",
       [] {
         return compare_programs({"good", {"true"}, {}}, {"bad", {"sh", "-c", "kill -SEGV $$"}, {}}, {}, {})
             .failure;
       },
       "SIGSEGV"},
      {"a program that prints no time", [] { return took(""); }, "took"},
      {"a printed time of -1", [] { return took("-1"); }, "is \"-1\", which is no positive number"},
      {"a printed time that is no number", [] { return took("nan"); },
       "is \"nan\", which is no positive number"},
      {"a printed time that is infinite", [] { return took("inf"); },
       "is \"inf\", which is no positive number"},
      // profiles and comparisons
      {"more samples than there are", file_says({{"samples", 5000}}), "more than the 6"},
      {"a sample of -3 us", edited([](auto& j) { j["samples"][0]["values"][2] = -3; }), "time of -3 us"},
      {"processes that have other samples", edited([](auto& j) {
         j["samples"][0]["processes"] = {3, 9};
       }),
       "not as many"},
      {"a profile of another program's schema", edited([](auto& j) { j["schema"] = "other/1"; }),
       "its schema is"},
      {"a kernel's counter above 100 %", edited([](auto& j) {
         j["kernels"] = {{{"name", "k"}, {"metrics", {{"l2_hit_rate_pct", {{"value", 180}}}}}}};
       }),
       "share of 100 %"},
      {"times of another machine",
       [] {
         Document b = runs(60, 30);
         b.machine_key = "another";
         return compared(runs(100, 30), b);
       },
       "INCOMPARABLE"},
      {"a gain on three samples", [] { return compared(runs(100, 3), runs(50, 3)); }, "too few"},
      {"a gain within the noise of the machine", [] { return compared(runs(100, 30), runs(91, 30)); },
       "INCONCLUSIVE"},
      {"a regression that was not measured side by side",
       [] { return compared(runs(100, 30), runs(200, 30)); }, "not measured side by side"},
      {"instructions counted in two ways",
       [] {
         Document a = runs(100, 30), b = runs(100, 30);
         a.metrics.set(Metric::instructions, 1e6, Source::counted, "callgrind");
         b.metrics.set(Metric::instructions, 9e5, Source::counted, "single steps");
         return compared(a, b);
       },
       "INCOMPARABLE"},
      {"a promise about what was not counted",
       promised("name: n\nkernel: softmax\nmetrics: {cycles: {max: 1}}\n"), "SKIP"},
      {"a promise for another GPU",
       promised(
           "name: n\nkernel: softmax\nhardware: {gpu: B200}\nmetrics: {wall_clock_time_us: {max: 50}}\n"),
       "SKIP"},
      {"a promise for another kernel",
       promised("name: n\nkernel: gemm\nmetrics: {wall_clock_time_us: {max: 50}}\n"), "SKIP"},
      {"a promise for another size",
       promised("name: n\nkernel: softmax\nbounds: [{size: 4096, max_time_us: 50}]\n"), "SKIP"},
      // reports of others
      {"a page of ncu without a launch",
       refused([] { read_ncu_csv("\"ID\",\"Kernel Name\"\n\"\",\"\"\n", "f"); }), "must be a page of ncu"},
      {"a table of nsys with half a row", refused([] {
         read_nsys_csv(
             "Start (ns),Duration "
             "(ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Strm,Name\n1000,2000,4,1,1\n",
             "f");
       }),
       "f"},
      // samples of a processor
      {"samples that were lost",
       [] {
         CpuProfile p;
         p.rate = 1000, p.samples = 10, p.lost = 7;
         return cpu_text(to_json(p), 100);
       },
       "7 samples were lost"},
      {"a profile where sampling is forbidden",
       [] {
         CpuProfile p;
         p.absent = "sampling is not permitted";
         return cpu_text(to_json(p), 100);
       },
       "no samples: sampling is not permitted"},
  };
  return all;
}

}  // namespace

TEST(lies, an_honest_profile_is_believed) {
  EXPECT_EQ(answer_to(honest()), "");
  EXPECT_EQ(recorded(kernel(0, 10, 20) + kEnd)(), "");
  EXPECT_EQ(took("12"), "");
  EXPECT_EQ(steadiness(100, 100), "flat");
}

TEST(lies, sixty_and_more_are_planted_and_none_is_believed) {
  EXPECT_GE(lies().size(), 60u);
  std::set<std::string> names;
  for (const auto& lie : lies()) {
    EXPECT_TRUE(names.insert(lie.what).second) << lie.what;
    const std::string said = lie.answer();
    EXPECT_NE(said.find(lie.expected), std::string::npos) << lie.what << ": \"" << said << '"';
  }
}

/// What `file_says` reports is left out of the profile, and of what is written again.
TEST(lies, what_is_refused_is_not_written_again) {
  auto j = honest();
  j["metrics"]["gpu_clock_mhz"] = {
      {"value", 1980000}, {"unit", "MHz"}, {"source", "measured"}, {"from", "x"}};
  const Document d = from_json(j, "file");
  EXPECT_FALSE(d.metrics.has(Metric::gpu_clock_mhz));
  EXPECT_EQ(to_json(d)["metrics"]["gpu_clock_mhz"]["absent"], "1980000 MHz cannot be: no GPU runs at 5 GHz");
  EXPECT_EQ(to_json(from_json(to_json(d), "again")), to_json(d));
  Document written = new_document("bench", "work");
  written.samples.push_back({"time", "us", {99, 100, 101}});
  written.metrics.set(Metric::wall_clock_time_us, 700.0, Source::measured, "clock");
  EXPECT_TRUE(to_json(written)["metrics"]["wall_clock_time_us"]["value"].is_null());
}
