// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/series.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/random.h"
#include "cgp/profile/measure/stats.h"

using namespace cgp;
using namespace cgp::measure;

namespace {

std::vector<double> levels(std::vector<std::pair<int, double>> parts, double noise, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<double> out;
  for (const auto& [count, level] : parts)
    for (int i = 0; i < count; ++i) out.push_back(level * (1 + noise * random.normal()));
  return out;
}

void expect_near(const std::vector<std::size_t>& got, const std::vector<std::size_t>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(double(got[i]), double(want[i]), 1);
}

}  // namespace

TEST(series, steps_are_found_where_they_are) {
  const auto v = levels({{30, 10}, {25, 11}, {40, 9.5}}, 0.01, 1);
  expect_near(changepoints(v), {30, 55});
  expect_near(energy_changepoints(v), {30, 55});
}

TEST(series, noise_has_no_steps) {
  int pelt = 0, energy = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto v = levels({{60, 10}}, 0.05, seed);
    pelt += !changepoints(v).empty();
    energy += !energy_changepoints(v).empty();
  }
  EXPECT_LE(pelt, 5);
  EXPECT_LE(energy, 3);
}

TEST(series, too_short_or_constant_series_have_none) {
  EXPECT_TRUE(changepoints(std::vector<double>{1, 2, 3}).empty());
  EXPECT_TRUE(changepoints(std::vector<double>(50, 3.0)).empty());
  EXPECT_TRUE(energy_changepoints(std::vector<double>(50, 3.0)).empty());
}

TEST(series, warm_up_is_told_from_slow_down_and_from_never_steady) {
  const auto warm = steady_state(levels({{12, 20}, {8, 14}, {80, 10}}, 0.01, 2));
  EXPECT_EQ(warm.kind, Steadiness::warmup);
  EXPECT_NEAR(double(warm.start), 20, 1);
  EXPECT_EQ(steady_state(levels({{100, 10}}, 0.01, 3)).kind, Steadiness::flat);
  EXPECT_EQ(steady_state(levels({{20, 10}, {80, 12}}, 0.01, 4)).kind, Steadiness::slowdown);
  EXPECT_EQ(steady_state(levels({{30, 10}, {30, 14}, {30, 10}, {30, 14}}, 0.01, 5)).kind,
            Steadiness::unsteady);
  EXPECT_EQ(steady_state(std::vector<double>{9, 1, 1}).kind, Steadiness::flat);
}

TEST(stats, spread_and_effect_sizes_are_those_of_the_textbook) {
  const std::vector<double> a{2, 4, 4, 4, 5, 5, 7, 9}, b{3, 5, 5, 5, 6, 6, 8, 10};
  EXPECT_DOUBLE_EQ(mean(a), 5);
  EXPECT_NEAR(stddev(a), 2.13809, 1e-5);
  EXPECT_NEAR(cohens_d(a, b), 1 / 2.13809, 1e-5);
  EXPECT_NEAR(robust_stddev(a), 1.4826 * 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(cliffs_delta(std::vector<double>{1, 2}, std::vector<double>{3, 4}), 1);
  EXPECT_DOUBLE_EQ(cliffs_delta(std::vector<double>{1, 2}, std::vector<double>{1, 2}), 0);
  EXPECT_TRUE(std::isinf(cohens_d(std::vector<double>{1, 1}, std::vector<double>{2, 2})));
}

TEST(stats, student_t_matches_the_tables) {
  EXPECT_NEAR(student_t_p(2.228, 10), 0.05, 1e-4);
  EXPECT_NEAR(student_t_p(-2.763, 28), 0.01, 1e-4);
  EXPECT_NEAR(student_t_p(1.96, 1e6), 0.05, 1e-4);
  EXPECT_DOUBLE_EQ(student_t_p(0, 5), 1);
}

TEST(stats, the_interval_of_a_median_covers_it_as_often_as_it_says) {
  int covered = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const auto v = levels({{60, 10}}, 0.1, seed);
    const Interval i = median_interval(v);
    EXPECT_TRUE(known_median_interval(v).has_value());
    covered += i.low <= 10 && 10 <= i.high;
  }
  EXPECT_GE(covered, 940);
  EXPECT_LE(covered, 990);
}

TEST(stats, correlated_samples_have_a_wider_interval) {
  SplitMix64 random(9);
  std::vector<double> v;
  double x = 0;
  for (int i = 0; i < 400; ++i) v.push_back(10 + (x = 0.9 * x + random.normal()));
  auto mixed = v;
  for (std::size_t i = mixed.size(); i > 1; --i) std::swap(mixed[i - 1], mixed[random.next() % i]);
  const Interval own = median_interval(v), shuffled = median_interval(mixed);
  EXPECT_GT(own.high - own.low, 2 * (shuffled.high - shuffled.low));
}
