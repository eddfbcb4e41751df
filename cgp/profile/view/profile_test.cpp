// SPDX-License-Identifier: Apache-2.0
// Profiles on disk, timelines (recorded on an H200), differences of files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/cupti/trace_budget.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/timeline/timeline.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using measure::Source;

namespace {

std::string testdata(const std::string& name) {
  return read_file(std::string(CGP_PROFILE_TESTDATA) + "/" + name);
}

Document sample(double us, int n, double noise, std::uint64_t seed) {
  SplitMix64 random(seed);
  Document d = new_document("bench", "work");
  Samples s{"time", "us", {}};
  for (int i = 0; i < n; ++i) s.values.push_back(us * (1 + noise * random.normal()));
  d.metrics.set(Metric::wall_clock_time_us, us, Source::measured, "clock");
  d.samples.push_back(s);
  return d;
}

std::string temporary(const std::string& name) {
  const std::string path = testing::TempDir() + "cgp_profile_" + name;
  std::filesystem::remove_all(path);
  return path;
}

}  // namespace

TEST(document, what_is_written_is_read_back) {
  Document d = sample(12.5, 20, 0.01, 1);
  d.metrics.absent(Metric::cycles, "no counters");
  d.metrics.set(Metric::grid_dimensions, measure::Triple{4, 2, 1}, Source::declared, "launch");
  d.metrics.set(Metric::bound, std::string("memory"), Source::derived, "x");
  d.metrics.set(Metric::syscall_breakdown, std::map<std::string, std::uint64_t>{{"read", 3}}, Source::counted,
                "ptrace");
  d.kernels.push_back({});
  d.kernels[0].name = "k", d.kernels[0].launches = 2, d.kernels[0].us = {1, 2};
  d.kernels[0].counters["a__b.sum"] = 7;
  d.waste.push_back({"motion", "divergence", "k", "numbers", "advice", 12, Source::counted});
  d.more["of_a_newer_version"] = {{"x", 1}};
  const auto j = to_json(d);
  const Document back = from_json(j, "test");
  EXPECT_EQ(to_json(back), j);
  EXPECT_TRUE(j["metrics"]["cycles"]["value"].is_null()) << "absent is null, not 0";
  EXPECT_EQ(j["metrics"]["cycles"]["absent"], "no counters");
  EXPECT_EQ(j["metrics"].size(), 150u);
  EXPECT_EQ(back.more["of_a_newer_version"]["x"], 1) << "unknown fields are kept";
}

TEST(document, files_that_are_no_profile_are_refused_with_the_reason) {
  EXPECT_THROW(from_json(nlohmann::ordered_json::parse("[]"), "f"), ParseError);
  EXPECT_THROW(from_json(nlohmann::ordered_json::parse(R"({"schema":"other/1"})"), "f"), ParseError);
  EXPECT_THROW(from_json(nlohmann::ordered_json::parse(R"({"schema":"cgp.profile/1"})"), "f"), ParseError)
      << "it has no name, no kind and no metrics";
  const std::string path = temporary("bad.json");
  write_file(path, "{\"schema\": ");
  try {
    load(path);
    FAIL();
  } catch (const ParseError& e) {
    EXPECT_NE(std::string(e.what()).find("line 1"), std::string::npos) << e.what();
  }
  EXPECT_THROW(load(path + ".none"), Error);
}

TEST(document, nesting_and_intervals_have_bounds) {
  const std::string deep =
      R"({"schema":"cgp.profile/1","x":)" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THROW(parsed(deep, "f"), ParseError);
  EXPECT_NO_THROW(parsed(R"({"text": "[[[[", "list": [[1]]})", "f"));
  Document d = new_document("bench", "few");
  add_times(d, "time", {1, 2, 3, 4, 5}, "clock");
  EXPECT_FALSE(d.metrics.has(Metric::ci_95_low_us)) << "five hold the median 15 times of 16";
  EXPECT_NE(interval_text(d.metrics).find("5 samples are too few"), std::string::npos);
  add_times(d, "time", {1, 2, 3, 4, 5, 6}, "clock");
  EXPECT_EQ(interval_text(d.metrics), " [1.00 µs, 6.00 µs]");
}

TEST(document, the_schema_has_every_metric) {
  const auto s = json_schema();
  EXPECT_EQ(s["properties"]["metrics"]["properties"].size(), 150u);
  EXPECT_EQ(s["properties"]["metrics"]["properties"]["cycles"]["properties"]["value"]["type"][0], "integer");
}

TEST(document, mangled_names_are_shortened) {
  EXPECT_EQ(short_name("_Z7k_cleanPfPK6float4i"), "k_clean");
  EXPECT_EQ(short_name("plain_kernel"), "plain_kernel");
  EXPECT_EQ(short_name("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_"
                       "11sum_functorIfffEclERNS_"
                       "14TensorIteratorEEUlffE_EEjfLi4ELi4EEEEEvT1_"),
            "at::native::reduce_kernel");
}

TEST(timeline, a_trace_of_pytorch_is_read) {
  Timeline t;
  read_events(testdata("torch_trace.jsonl"), t);
  EXPECT_TRUE(t.errors.empty()) << t.errors[0];
  EXPECT_TRUE(t.complete);
  const auto s = summarise(t);
  // 15 iterations of six kernels, and those of the set-up: counted with grep in the file.
  EXPECT_EQ(s.launches, 92u);
  EXPECT_EQ(s.copies, 19u);
  EXPECT_GT(s.busy_ms, 0.1);
  EXPECT_LE(s.busy_ms, s.span_ms);
  EXPECT_GT(s.launch_us, 0.5);
  EXPECT_LT(s.launch_us, 50);
  const auto kernels = kernels_of(t);
  double total = 0;
  for (const auto& k : kernels) total += k.total_us();
  EXPECT_NEAR(total, s.kernel_ms * 1e3, 0.01);
  EXPECT_GE(kernels[0].total_us(), kernels[1].total_us());
  measure::MetricSet m;
  add_metrics(t, m);
  EXPECT_GT(m[Metric::h2d_bandwidth_gbps].number(), 1);
  EXPECT_LT(m[Metric::h2d_bandwidth_gbps].number(), 70);
}

TEST(timeline, a_crash_leaves_what_was_written_before) {
  std::string text = testdata("torch_trace.jsonl");
  text.resize(text.size() / 2);  // in the middle of a line, and without the end
  Timeline t;
  read_events(text, t);
  EXPECT_FALSE(t.complete);
  EXPECT_TRUE(t.errors.empty()) << "the line that was cut off is no error";
  EXPECT_GT(t.activities.size(), 20u);
  Timeline broken;
  read_events("{\"ev\":\"hello\"}\nrubbish\n{\"ev\":\"end\"}\n", broken);
  EXPECT_EQ(broken.errors.size(), 1u);
}

TEST(timeline, counters_become_metrics_with_a_source) {
  Timeline t;
  read_events(testdata("gemm_range.jsonl"), t);
  ASSERT_EQ(t.ranges.size(), 4u);
  EXPECT_EQ(t.chip, "GH100");
  EXPECT_EQ(t.passes, 3);
  const auto kernels = kernels_of(t);
  ASSERT_EQ(kernels.size(), 1u);
  const auto& m = kernels[0].metrics;
  EXPECT_NEAR(m[Metric::tensor_core_utilization_pct].number(), 42.7, 0.3);
  EXPECT_NEAR(m[Metric::achieved_occupancy_pct].number(), 14.1, 0.1);
  EXPECT_EQ(m[Metric::achieved_occupancy_pct].source, Source::counted);
  EXPECT_FALSE(m.has(Metric::flop32_ops)) << "its counters were not asked for: absent, not 0";
  EXPECT_EQ(kernels[0].counters.at("sm__inst_executed.sum"), 1353088) << "the same number that ncu gives";
}

TEST(timeline, short_kernels_with_long_gaps_are_launch_bound) {
  std::string text = "{\"ev\":\"name\",\"id\":0,\"name\":\"tiny\"}\n";
  const auto kernel = [&](int start, int end, int i) {
    text += "{\"ev\":\"api\",\"domain\":\"runtime\",\"cbid\":211,\"t0\":" + std::to_string(start - 4000) +
            ",\"t1\":" + std::to_string(start - 1000) + ",\"tid\":1,\"corr\":" + std::to_string(i) +
            ",\"ret\":0}\n";
    text += "{\"ev\":\"kernel\",\"n\":0,\"t0\":" + std::to_string(start) + ",\"t1\":" + std::to_string(end) +
            ",\"dev\":0,\"stream\":7,\"corr\":" + std::to_string(i) +
            ",\"grid\":[1,1,1],\"block\":[32,1,1]}\n";
  };
  for (int i = 0; i < 40; ++i) kernel(10000 * (i + 1), 10000 * (i + 1) + 2000, i);
  Timeline bound;
  read_events(text + "{\"ev\":\"end\"}\n", bound);
  const auto s = summarise(bound);
  EXPECT_TRUE(s.launch_bound);
  EXPECT_NEAR(s.idle_percent(), 80, 2);
  EXPECT_NEAR(s.launch_us, 3, 1e-9);
  EXPECT_NEAR(s.latency_us, 4, 1e-9);
  const auto waste = timeline_waste(s, kernels_of(bound));
  ASSERT_FALSE(waste.empty());
  EXPECT_EQ(waste[0].title, "launch-bound");
  EXPECT_NEAR(waste[0].percent, 80, 2);
  text = "{\"ev\":\"name\",\"id\":0,\"name\":\"tiny\"}\n";
  for (int i = 0; i < 40; ++i) kernel(10000 * (i + 1), 10000 * (i + 1) + 9800, i);
  Timeline busy;
  read_events(text + "{\"ev\":\"end\"}\n", busy);
  EXPECT_FALSE(summarise(busy).launch_bound);
  EXPECT_TRUE(timeline_waste(summarise(busy), kernels_of(busy)).empty());
}

TEST(timeline, a_gpu_that_waits_for_the_host_is_named_with_the_longest_gap) {
  Timeline t;
  read_events(testdata("torch_trace.jsonl"), t);
  const auto s = summarise(t);
  EXPECT_FALSE(s.launch_bound);
  const auto waste = timeline_waste(s, kernels_of(t));
  ASSERT_FALSE(waste.empty());
  EXPECT_EQ(waste[0].title, "idle GPU");
  EXPECT_GT(s.longest_gap_ms, 10);
  EXPECT_FALSE(s.after_longest_gap.empty());
}

namespace {

std::string recorded_kernel(int start, int lasts) {
  return "{\"ev\":\"kernel\",\"n\":0,\"t0\":" + std::to_string(start) +
         ",\"t1\":" + std::to_string(start + lasts) + ",\"grid\":[1,1,1],\"block\":[32,1,1]}\n";
}

std::string recorded_window(const char* begins, int at) {
  return std::string("{\"ev\":\"window\",\"begins\":") + begins + ",\"t\":" + std::to_string(at) + "}\n";
}

}  // namespace

TEST(timeline, what_is_recorded_in_windows_is_read_by_window) {
  Timeline t;
  read_events("{\"ev\":\"name\",\"id\":0,\"name\":\"k\"}\n" + recorded_window("true", 1) +
                  recorded_kernel(10, 5) + recorded_kernel(20, 5) + recorded_window("false", 30) +
                  recorded_window("true", 1000) + recorded_kernel(1010, 5),
              t);
  ASSERT_EQ(t.windows.size(), 2u);
  EXPECT_EQ(t.windows[0].end, 30u);
  EXPECT_EQ(t.windows[1].end, 0u) << "open";
  EXPECT_EQ(part_of(t, t.windows[0].begin, t.windows[0].end).activities.size(), 2u);
  EXPECT_EQ(part_of(t, t.windows[1].begin, t.windows[1].end).activities.size(), 1u);
  EXPECT_NEAR(t.recorded_percent(), 100 * (29 + 15) / 1014.0, 1e-9)
      << "what is known of it ends with the last kernel";
}

TEST(timeline, what_lies_between_two_parts_is_neither_idle_nor_a_gap) {
  const std::string name = "{\"ev\":\"name\",\"id\":0,\"name\":\"k\"}\n";
  Timeline t;
  read_events(name + recorded_window("true", 1000) + recorded_kernel(1000, 500) + recorded_kernel(1600, 500) +
                  recorded_window("false", 3000) + recorded_window("true", 91000) +
                  recorded_kernel(91100, 500) + recorded_kernel(91700, 500) +
                  recorded_window("false", 93000) + "{\"ev\":\"end\",\"t\":101000}\n",
              t);
  EXPECT_TRUE(t.complete);
  EXPECT_NEAR(t.recorded_percent(), 4, 1e-9);
  const auto s = summarise(t);
  EXPECT_EQ(s.launches, 4u);
  EXPECT_NEAR(s.span_ms, 2 * 1.1e-3, 1e-9);
  EXPECT_NEAR(s.busy_ms, 2 * 1e-3, 1e-9);
  EXPECT_NEAR(s.longest_gap_ms, 0.1e-3, 1e-9);
  EXPECT_NEAR(s.gap_us, 0.1, 1e-9);
  EXPECT_EQ(recorded_text(t).rfind("4", 0), 0u) << recorded_text(t);
  EXPECT_TRUE(std::isnan(s.launch_us) && std::isnan(s.launch_api_ms)) << "no call was recorded: that is no 0";
  EXPECT_TRUE(to_json(s)["launch_call_us"].is_null() ||
              std::isnan(to_json(s)["launch_call_us"].get<double>()));
  EXPECT_EQ(time_text(s.launch_us), "-");
  measure::MetricSet m;
  add_metrics(t, m);
  EXPECT_FALSE(m.has(measure::Metric::vram_peak_mb)) << "an allocation may have gone unseen";

  Timeline all;  // one part that was never closed is all of it
  read_events(
      name + recorded_window("true", 1000) + recorded_kernel(1000, 500) + "{\"ev\":\"end\",\"t\":101000}\n",
      all);
  EXPECT_EQ(all.recorded_percent(), 100);
  EXPECT_TRUE(recorded_text(all).empty());
  add_metrics(all, m);
  EXPECT_TRUE(m.has(measure::Metric::vram_peak_mb));
}

TEST(timeline, what_is_missing_is_said) {
  Timeline t;
  read_events(
      "{\"ev\":\"error\",\"where\":\"records of kernels\",\"code\":35,\"text\":\"NO PERMISSION\"}\n"
      "{\"ev\":\"limit\",\"launches\":500}\n{\"ev\":\"dropped\",\"n\":7}\n",
      t);
  const auto notes = text::join(notes_of(t), "; ");
  EXPECT_EQ(notes.rfind("records of kernels: NO PERMISSION; ", 0), 0u) << notes;
  EXPECT_NE(notes.find("7 records were dropped"), std::string::npos);
  EXPECT_NE(notes.find("the first 500 launches, and more came"), std::string::npos);
  EXPECT_NE(notes.find("a recording has no end"), std::string::npos);
  Timeline whole;
  read_events("{\"ev\":\"end\",\"t\":1}\n", whole);
  EXPECT_TRUE(notes_of(whole).empty());
}

TEST(timeline, programs_are_recorded_whole_until_that_costs_too_much) {
  measure::TraceBudget b;
  b.launches = 15000;
  EXPECT_TRUE(b.left_at(0)) << "37.5 ms";
  b.launches = 20000;
  EXPECT_FALSE(b.left_at(0)) << "50 ms";
  b.launches = 8000, b.calls = 40000;
  EXPECT_FALSE(b.left_at(0)) << "20 ms, and 28 ms of calls";
  b.launches = 20000, b.calls = 0;
  EXPECT_TRUE(b.left_at(400'000'000)) << "with 2.5 % of what it ran";
  b.launches = 0, b.graph_kernels = 75000;
  EXPECT_TRUE(b.left_at(0)) << "kernels of graphs cost a fifth";
  // However fast a program launches, by 2.5 % and what was free: it comes back when it can pay for it.
  b = {};
  std::uint64_t now = 0, recorded = 0;
  for (; now < 60'000'000'000; now += 20'000'000) {
    b.launches += 3000, recorded += 20'000'000;
    if (b.left_at(now)) continue;
    while (!b.enough_to_return(now)) now += 10'000'000;
    ++b.attached_again;
  }
  EXPECT_LT(double(b.spent()), 0.03 * double(now));
  EXPECT_GT(double(recorded), 0.02 * double(now)) << "what an observer gets to see of it";
  EXPECT_TRUE(record_problem("auto").empty() && record_problem("all").empty() &&
              record_problem("20,1000").empty());
  for (const char* bad : {"", "20", "20,", "20,10", "-1,5", "20,x", "1,2,3", "20,1000 "})
    EXPECT_FALSE(record_problem(bad).empty()) << bad;
}

TEST(timeline, exports_are_what_their_viewers_read) {
  Timeline t;
  read_events(testdata("torch_trace.jsonl"), t);
  const auto p = nlohmann::json::parse(perfetto_json(t, "title"));
  int kernels = 0;
  for (const auto& e : p["traceEvents"]) {
    EXPECT_TRUE(e.contains("ph") && e.contains("pid"));
    kernels += e["ph"] == "X" && e.contains("args") && e["args"].contains("registers");
  }
  EXPECT_EQ(kernels, 92);
  const auto s = nlohmann::json::parse(speedscope_json(t, "title"));
  for (const auto& one : s["profiles"]) {
    std::uint64_t last = 0;
    int open = 0;
    for (const auto& e : one["events"]) {
      EXPECT_GE(e["at"].get<std::uint64_t>(), last) << "events are in order";
      last = e["at"];
      open += e["type"] == "O" ? 1 : -1;
      EXPECT_GE(open, 0);
      EXPECT_LT(e["frame"].get<std::size_t>(), s["shared"]["frames"].size());
    }
    EXPECT_EQ(open, 0);
  }
  const std::string svg = flamegraph_svg(t, "a<b");
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_NE(svg.find("layer_norm"), std::string::npos);
}

TEST(diff, files_say_what_they_can_and_not_more) {
  const auto verdict = [](double factor, double noise, double floor) {
    const auto rows =
        diff_documents(sample(100, 30, noise, 1), sample(100 * factor, 30, noise, 2), floor, 0.03);
    return rows.at(0).verdict;
  };
  EXPECT_EQ(verdict(1.5, 0.01, 0.12), "SUSPECT") << "not measured side by side";
  EXPECT_EQ(verdict(1 / 1.54, 0.01, 0.12), "IMPROVED");
  EXPECT_EQ(verdict(1.05, 0.01, 0.12), "INCONCLUSIVE") << "within what identical runs differ by";
  EXPECT_EQ(verdict(1.005, 0.005, 0.02), "NO_CHANGE");
  EXPECT_EQ(diff_documents(sample(100, 3, 0.01, 1), sample(200, 3, 0.01, 2), 0.1, 0.03).at(0).verdict,
            "INCONCLUSIVE");
  EXPECT_EQ(diff_documents(sample(100, 3, 0.3, 1), sample(100, 3, 0.3, 1), 0.12, 0.03).at(0).verdict,
            "NO_CHANGE")
      << "a profile against itself";
  Document other = sample(150, 30, 0.01, 3);
  other.machine_key = "another";
  EXPECT_EQ(diff_documents(sample(100, 30, 0.01, 1), other, 0.12, 0.03).at(0).verdict, "INCOMPARABLE");
}

/// `count` processes of 30 samples each; `process_effect(random)` is the factor of one process.
template <class F>
Document processes(double us, int count, const F& process_effect, SplitMix64& random) {
  Document d = new_document("simd", "work");
  std::vector<double> all;
  for (int p = 0; p < count; ++p) {
    const double level = us * process_effect(random);
    for (int i = 0; i < 30; ++i) all.push_back(level * (1 + 0.003 * random.normal()));
  }
  add_times(d, "time", all, "clock", std::vector<std::size_t>(std::size_t(count), 30));
  return d;
}

TEST(diff, what_differs_between_processes_is_no_change) {
  const auto normal = [](SplitMix64& r) { return std::exp(0.08 * r.normal()); };
  const auto two_levels = [](SplitMix64& r) { return r.next() % 4 == 0 ? 1.37 : 1.0; };
  SplitMix64 random(3);
  const auto alarms = [&](auto effect, double factor, int count, int pairs) {
    int n = 0;
    for (int i = 0; i < pairs; ++i) {
      const auto a = processes(100, count, effect, random),
                 b = processes(100 * factor, count, effect, random);
      const auto v = diff_documents(a, b, 0.12, 0.03).at(0).verdict;
      n += v == "SUSPECT" || v == "IMPROVED";
    }
    return n;
  };
  EXPECT_LE(alarms(normal, 1, 5, 1000), 5 + 7) << "0.5 % of 1,000 pairs, and three deviations of that";
  EXPECT_LE(alarms(two_levels, 1, 5, 1000), 5);
  EXPECT_GE(alarms(normal, 1.1, 40, 200), 198) << "10 % more is found where the processes are enough";
  const auto few =
      diff_documents(processes(100, 5, normal, random), processes(104, 5, normal, random), 0.12, 0.03);
  EXPECT_EQ(few.at(0).verdict, "INCONCLUSIVE");
}

TEST(document, samples_of_several_processes_keep_whose_they_are) {
  Document d = new_document("simd", "work");
  add_times(d, "time", {1, 1, 1, 2, 2, 2, 4, 4, 4}, "clock", {3, 3, 3});
  EXPECT_DOUBLE_EQ(d.metrics[Metric::wall_clock_time_us].number(), 2) << "geometric mean of 1, 2 and 4";
  EXPECT_LT(d.metrics[Metric::ci_95_low_us].number(), 1) << "three processes that differ so know little";
  EXPECT_EQ(to_json(from_json(to_json(d), "test")), to_json(d));
  auto j = to_json(d);
  j["samples"][0]["processes"] = {3, 3};
  EXPECT_THROW(from_json(j, "test"), ParseError);
}

TEST(diff, samples_are_compared_in_one_unit_and_only_if_they_are_measurements) {
  const auto row = [](const std::string& unit, double value) {
    Document a = sample(1000, 30, 0.001, 1), b = sample(1, 30, 0.001, 1);
    b.samples[0].unit = unit;
    for (double& v : b.samples[0].values) v *= value;
    return diff_documents(a, b, 0.02, 0.03).at(0);
  };
  EXPECT_EQ(row("ms", 1).verdict, "NO_CHANGE") << "1 ms are 1000 us";
  EXPECT_EQ(row("ms", 2).verdict, "SUSPECT");
  EXPECT_EQ(row("us", 1).verdict, "IMPROVED");
  for (const auto& [unit, value] : {std::pair{"GB/s", 1000.0}, {"", 1000.0}, {"us", 0.0}, {"us", -1000.0}})
    EXPECT_EQ(row(unit, value).verdict, "INCOMPARABLE") << unit << " " << value;
  Document a = sample(100, 30, 0.001, 1), b = sample(150, 30, 0.001, 1);
  a.samples[0].unit = b.samples[0].unit = "GB/s";
  EXPECT_EQ(diff_documents(a, b, 0.02, 0.03).at(0).verdict, "IMPROVED") << "of rates more is better";
}

TEST(diff, exact_counts_need_no_statistics) {
  Document a = sample(100, 30, 0.1, 1), b = sample(100, 30, 0.1, 2);
  a.metrics.set(Metric::instructions, 1000000.0, Source::counted, "callgrind");
  b.metrics.set(Metric::instructions, 1020000.0, Source::counted, "callgrind");
  const auto rows = diff_documents(a, b, 0.5, 0.03);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].name, "instructions");
  EXPECT_EQ(rows[1].verdict, "REGRESSION");
  b.metrics.set(Metric::instructions, 1020000.0, Source::counted, "single steps");
  EXPECT_EQ(diff_documents(a, b, 0.5, 0.03)[1].verdict, "INCOMPARABLE");
}

TEST(baseline, a_noise_floor_above_100_percent_is_kept) {
  const BaselineStore store(temporary("noisy"));
  store.set_noise_floor("machine", 1.7);
  EXPECT_EQ(store.noise_floor("machine"), 1.7);
  const auto rows =
      diff_documents(sample(100, 30, 0.01, 1), sample(28, 30, 0.01, 2), *store.noise_floor("machine"), 0.03);
  EXPECT_EQ(rows.at(0).verdict, "INCONCLUSIVE") << "-72 % is less than identical runs differ by";
}

TEST(baseline, names_are_kept_and_not_replaced_by_accident) {
  const BaselineStore store(temporary("store"));
  EXPECT_TRUE(store.names().empty());
  EXPECT_FALSE(std::filesystem::exists(store.folder())) << "nothing is made before the first write";
  store.save("one", sample(1, 5, 0.01, 1), false);
  EXPECT_THROW(store.save("one", sample(2, 5, 0.01, 1), false), ArgumentError);
  store.save("one", sample(2, 5, 0.01, 1), true);
  EXPECT_EQ(store.history("one").size(), 2u) << "the history keeps all";
  std::filesystem::remove(store.folder() + "/history/one/000001.json");
  store.save("one", sample(2, 5, 0.01, 1), true);
  EXPECT_EQ(store.history("one").size(), 2u) << "what was removed makes no room for what comes";
  EXPECT_EQ(store.load("one").metrics[Metric::wall_clock_time_us].number(), 2);
  EXPECT_THROW(store.save("../x", sample(1, 5, 0.01, 1), false), ArgumentError);
  try {
    store.load("two");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("one"), std::string::npos);
  }
  EXPECT_FALSE(store.noise_floor("m"));
  write_file(store.folder() + "/noise.json", "{\"m\": -5}");
  EXPECT_FALSE(store.noise_floor("m")) << "no share";
  store.set_noise_floor("m", 0.07);
  EXPECT_EQ(*store.noise_floor("m"), 0.07);
}

TEST(compare_programs, a_program_that_fails_is_named) {
  measure::PairedOptions o;
  const auto c =
      compare_programs({"good", {"true"}, {}}, {"bad", {"sh", "-c", "echo why >&2; exit 4"}, {}}, {}, o);
  EXPECT_NE(c.failure.find("bad"), std::string::npos);
  EXPECT_NE(c.failure.find("exit code 4"), std::string::npos);
  EXPECT_NE(c.failure.find("why"), std::string::npos);
}

TEST(compare_programs, a_printed_time_is_read) {
  TimingRule rule;
  rule.clock = Clock::output;
  rule.regex = "took ([0-9.]+) ms";
  rule.unit_seconds = 1e-3;
  EXPECT_DOUBLE_EQ(time_once({"p", {"echo", "took 12.5 ms"}, {}}, rule, 0).seconds, 0.0125);
  EXPECT_NE(time_once({"p", {"echo", "nothing"}, {}}, rule, 0).failure, "");
}

TEST(compare_programs, a_time_is_found_in_any_output) {
  const std::string long_line(1 << 20, 'a');
  EXPECT_EQ(first_group("took:\n 4.5 ms", "took:\\s+([0-9.]+) ms"), "4.5");
  for (std::size_t before : {0, 4090, 4096, 8185, 8190, 8192, 500000})
    EXPECT_EQ(first_group(std::string(before, 'x') + "took 12.75" + long_line, "took ([0-9.]+)"), "12.75")
        << before;
  EXPECT_EQ(first_group(long_line, "(b.*)"), std::nullopt);
  EXPECT_EQ(first_group(long_line + "1", "^([0-9])"), std::nullopt) << "a window does not begin the text";
}

TEST(compare_programs, what_is_no_time_is_a_failure) {
  const TimingRule rule = timing_rule({"wall", "took (\\S+)", "us", 0});
  EXPECT_DOUBLE_EQ(time_once({"p", {"echo", "took 1.5e3"}, {}}, rule, 0).seconds, 0.0015);
  for (const char* word : {"0", "-1", "inf", "nan", "long"})
    EXPECT_NE(time_once({"p", {"echo", "took", word}, {}}, rule, 0).failure, "") << word;
  EXPECT_EQ(describe(rule), "reported time");
  EXPECT_EQ(describe(timing_rule({"cpu", "", "ms", 0})), "processor time");
  EXPECT_EQ(timing_rule({}).clock, Clock::wall);
  EXPECT_THROW(timing_rule({"sun", "", "ms", 0}), ArgumentError);
  EXPECT_THROW(timing_rule({"wall", "(", "ms", 0}), ArgumentError);
  EXPECT_THROW(timing_rule({"wall", "no group", "ms", 0}), ArgumentError);
  EXPECT_THROW(timing_rule({"wall", "(.)", "h", 0}), ArgumentError);
}

TEST(cpu_ceilings, rates_are_work_over_the_best_time) {
  double seconds = 0;
  int blocks = 0;
  // blocks of 3, 2, 3, 2, ... milliseconds
  const auto clock = [&] { return seconds; };
  const auto work = [&] {
    seconds += ++blocks % 2 ? 2e-3 : 3e-3;
    return 6e6;
  };
  EXPECT_NEAR(best_rate(1, work, clock), 3e9, 1);
  EXPECT_NEAR(seconds, 1, 0.01);
  blocks = 0;
  EXPECT_NEAR(best_rate(0, work, clock), 3e9, 1);
  EXPECT_EQ(blocks, 6) << "one to warm up and five";
  const auto steps = [&] { return seconds += 1e-3; };
  // 20000 rounds of 12 multiply-adds on 16 or 8 floats; of 8 on doubles without vectors
  if (has_isa("avx512")) {
    EXPECT_NEAR(fma_peak_gflops(cpu::Isa::avx512, 0.01, steps), 2 * 16 * 12 * 20000 * 1e-6, 1e-6);
  }
  if (has_isa("avx2")) {
    EXPECT_NEAR(fma_peak_gflops(cpu::Isa::avx2, 0.01, steps), 2 * 8 * 12 * 20000 * 1e-6, 1e-6);
  }
  EXPECT_NEAR(fma_peak_gflops(cpu::Isa::scalar, 0.01, steps), 2 * 8 * 20000 * 1e-6, 1e-6);
  // 64 KiB as often as makes a MiB
  EXPECT_NEAR(read_bandwidth_gbps(64 << 10, 1, 0.01, steps), (1 << 20) * 1e-6, 1e-6);
  EXPECT_NEAR(read_bandwidth_gbps(64 << 10, 2, 0.01, steps), (1 << 20) * 1e-6, 1e-6);
}

TEST(table, columns_align_by_what_is_seen) {
  Table t({"<name", "time"});
  t.row({"µs", "1"});
  t.row({"longer", "20"});
  EXPECT_EQ(t.text(0), "name    time\nµs         1\nlonger    20\n");
  EXPECT_EQ(time_text(1234), "1.23 ms");
  EXPECT_EQ(time_text(0.5), "500 ns");
  EXPECT_EQ(number_text(0.01234), "0.0123");
  EXPECT_EQ(number_text(123456), "123456");
}
