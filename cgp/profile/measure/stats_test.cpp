// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/stats.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"

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
