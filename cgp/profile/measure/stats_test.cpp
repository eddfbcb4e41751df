// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/random.h"

using namespace cgp;
using namespace cgp::measure;

TEST(stats, quantiles_interpolate_between_order_statistics) {
  const std::vector<double> v{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(median(v), 2.5);
  EXPECT_DOUBLE_EQ(quantile(v, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(v, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(v, 0.25), 1.75);
  const auto s = summarise(v);
  EXPECT_EQ(s.count, 4u);
  EXPECT_DOUBLE_EQ(s.p75, 3.25);
  EXPECT_DOUBLE_EQ(s.spread(), 0.3);
}

TEST(stats, nothing_to_summarise_is_an_error) {
  EXPECT_THROW(median({}), ArgumentError);
  const std::vector<double> v{1};
  EXPECT_THROW(quantile(v, 1.5), ArgumentError);
  EXPECT_DOUBLE_EQ(median(v), 1);
}

TEST(stats, the_interval_between_processes_holds_their_mean_95_times_in_100) {
  SplitMix64 random(7);
  int held = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> medians;  // a process is off by some 8 %, whatever it measured within itself
    for (int i = 0; i < 5; ++i) medians.push_back(100 * std::exp(0.08 * random.normal()));
    const auto interval = process_interval(medians);
    ASSERT_TRUE(interval);
    held += interval->low <= 100 && 100 <= interval->high;
  }
  EXPECT_NEAR(held, 1900, 50);
  EXPECT_FALSE(process_interval(std::vector<double>{1, 2}));
  EXPECT_FALSE(process_interval(std::vector<double>{1, 2, 0}));
}
