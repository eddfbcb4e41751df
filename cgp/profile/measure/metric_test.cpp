// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/metric.h"

#include <gtest/gtest.h>

#include <set>

#include "cgp/base/error.h"
#include "cgp/profile/measure/plausible.h"

using namespace cgp;
using namespace cgp::measure;

TEST(metric, the_table_has_150_fields_in_28_categories) {
  EXPECT_EQ(metrics().size(), 150u);
  EXPECT_EQ(categories().size(), 28u);
  std::set<std::string_view> names;
  for (const auto& m : metrics()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_FALSE(m.text.empty()) << m.name;
    EXPECT_EQ(&info(m.id), &m);
  }
  std::set<Category> used;
  for (const auto& m : metrics()) used.insert(m.category);
  EXPECT_EQ(used.size(), categories().size());
  // Numbers of the catalogue, picked across the table.
  EXPECT_EQ(metrics()[34].name, "shared_bank_conflicts");  // MET-035
  EXPECT_EQ(metrics()[64].name, "cycles");                 // MET-065
  EXPECT_EQ(metrics()[126].name, "register_spills");       // MET-127
  EXPECT_EQ(metrics()[149].name, "page_faults_major");     // MET-150
}

TEST(metric, absent_is_not_zero) {
  MetricSet m;
  EXPECT_FALSE(m.has(Metric::cycles));
  EXPECT_THROW(m[Metric::cycles].number(), Unsupported);
  m.absent(Metric::cycles, "no counters here");
  try {
    m[Metric::cycles].number();
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_EQ(e.why(), "no counters here");
  }
  m.set(Metric::cycles, 0.0, Source::counted, "perf_event_open");
  EXPECT_TRUE(m.has(Metric::cycles));
  m.absent(Metric::cycles, "another collector failed");
  EXPECT_TRUE(m.has(Metric::cycles)) << "a failure does not erase a value";
  EXPECT_EQ(m.present_count(), 1u);
}

TEST(metric, a_value_of_another_type_or_none_at_all_is_refused) {
  MetricSet m;
  EXPECT_THROW(m.set(Metric::bound, 1.0, Source::derived, "x"), ArgumentError);
  EXPECT_THROW(m.set(Metric::cycles, std::string("many"), Source::derived, "x"), ArgumentError);
  EXPECT_THROW(m.set(Metric::cycles, 0.0 / 0.0, Source::derived, "x"), ArgumentError);
}

TEST(metric, rates_follow_from_time_and_ridge_from_peaks) {
  MetricSet m;
  m.set(Metric::wall_clock_time_us, 100.0, Source::measured, "clock");
  m.set(Metric::peak_compute_tflops, 330.0, Source::declared, "data sheet");
  m.set(Metric::peak_bandwidth_gbps, 1008.0, Source::declared, "data sheet");
  m.derive(2e9, 4e6);
  EXPECT_NEAR(m[Metric::tflops].number(), 20, 1e-9);
  EXPECT_NEAR(m[Metric::bandwidth_gbps].number(), 40, 1e-9);
  EXPECT_NEAR(m[Metric::arithmetic_intensity].number(), 500, 1e-9);
  EXPECT_NEAR(m[Metric::ridge_point].number(), 327.4, 0.05);
  EXPECT_EQ(std::get<std::string>(*m[Metric::bound].held), "compute");
  EXPECT_NEAR(m[Metric::efficiency_pct].number(), 100 * 20.0 / 330, 1e-9);
  EXPECT_FALSE(m.has(Metric::tflops_per_watt)) << "without power there is none";
  EXPECT_TRUE(remove_contradictions(m).empty());

  MetricSet low;
  low.set(Metric::wall_clock_time_us, 100.0, Source::measured, "clock");
  low.set(Metric::peak_compute_tflops, 330.0, Source::declared, "data sheet");
  low.set(Metric::peak_bandwidth_gbps, 1008.0, Source::declared, "data sheet");
  low.derive(8e6, 1e6);
  EXPECT_EQ(std::get<std::string>(*low[Metric::bound].held), "memory");
}

TEST(metric, no_rate_is_above_its_ceiling) {
  MetricSet m;
  m.set(Metric::wall_clock_time_us, 1.0, Source::measured, "test");
  m.set(Metric::peak_compute_tflops, 0.1, Source::measured, "test");
  m.set(Metric::peak_bandwidth_gbps, 10.0, Source::measured, "test");
  m.derive(25000, 1000);  // 25 GFLOP/s at 25 FLOP/B, where 100 are possible
  EXPECT_TRUE(m.has(Metric::efficiency_pct));
  MetricSet cached;
  cached.set(Metric::wall_clock_time_us, 1.0, Source::measured, "test");
  cached.set(Metric::peak_compute_tflops, 0.1, Source::measured, "test");
  cached.set(Metric::peak_bandwidth_gbps, 10.0, Source::measured, "test");
  cached.derive(24800, 24800);  // 24.8 GFLOP/s at 1 FLOP/B, where memory allows 10
  EXPECT_FALSE(cached.has(Metric::efficiency_pct));
  EXPECT_NE(cached[Metric::efficiency_pct].why_absent.find("248 %"), std::string::npos);
}

TEST(metric, of_numbers_that_contradict_each_other_the_derived_one_goes) {
  MetricSet m;
  m.set(Metric::tflops, 11.6, Source::measured, "x");
  m.set(Metric::gflops, 9000.0, Source::derived, "x");
  m.set(Metric::gpu_power_watts, 285.0, Source::measured, "x");
  m.set(Metric::tflops_per_watt, 0.0407, Source::derived, "x");
  m.set(Metric::l1_hit_rate_pct, 140.0, Source::counted, "x");
  EXPECT_EQ(remove_contradictions(m).size(), 1u);
  EXPECT_FALSE(m.has(Metric::gflops));
  EXPECT_TRUE(m.has(Metric::tflops) && m.has(Metric::tflops_per_watt));
  EXPECT_EQ(m[Metric::l1_hit_rate_pct].why_absent, "140 % cannot be: it is a share of 100 %");
  MetricSet counted;
  counted.set(Metric::branches, 10.0, Source::counted, "x");
  counted.set(Metric::branch_misses, 11.0, Source::counted, "x");
  remove_contradictions(counted);
  EXPECT_FALSE(counted.has(Metric::branches) || counted.has(Metric::branch_misses));
}

TEST(metric, a_mistyped_name_is_answered_with_close_ones) {
  EXPECT_EQ(metric_named("ipc").id, Metric::ipc);
  try {
    metric_named("shared_bank_conflict");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("shared_bank_conflicts"), std::string::npos);
  }
}

TEST(metric, merging_keeps_what_is_there) {
  MetricSet a, b;
  a.set(Metric::ipc, 1.0, Source::counted, "a");
  b.set(Metric::ipc, 2.0, Source::counted, "b");
  b.set(Metric::tflops, 3.0, Source::derived, "b");
  a.merge(b);
  EXPECT_EQ(a[Metric::ipc].number(), 1);
  EXPECT_EQ(a[Metric::tflops].number(), 3);
}
