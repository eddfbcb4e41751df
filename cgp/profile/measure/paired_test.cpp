// SPDX-License-Identifier: Apache-2.0
// The comparison against models of noise: how often it cries wolf, how often it finds what is there.
#include "cgp/profile/measure/paired.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/profile/measure/sign_flip.h"

using namespace cgp;
using namespace cgp::measure;

namespace {

/// A machine: drift that both sides of a pair share, noise of each side, and now and then a side that another
/// program delayed.
struct Machine {
  double drift = 0.1;       ///< of one pair to the next, a random walk that is pulled back
  double noise = 0.009;     ///< of the ratio of a pair
  double delay_chance = 0;  ///< that one side is hit
  double delay = 3;         ///< up to this factor
  double order_effect = 0;  ///< the second side of a pair is slower by this
  SplitMix64 random{1};
  double level = 0;

  Pair pair(double effect, bool b_first) {
    level = 0.8 * level + drift * random.normal();
    const auto side = [&](double own, bool second) {
      double t = std::exp(level + own + noise / std::sqrt(2.0) * random.normal());
      if (second) t *= 1 + order_effect;
      if (random.uniform() < delay_chance) t *= random.uniform(1, delay);
      return t;
    };
    const double effect_log = std::log1p(effect);
    return {side(0, b_first), side(effect_log, !b_first)};
  }
};

struct Counts {
  int regressions = 0, improvements = 0, same = 0, unclear = 0;
};

Counts trials(int n, double effect, Machine machine) {
  Counts c;
  for (int i = 0; i < n; ++i) {
    PairedOptions o;
    o.seed = std::uint64_t(i) + 7;
    switch (compare_paired([&](bool b_first) { return machine.pair(effect, b_first); }, o).verdict) {
      case Verdict::regression:
        ++c.regressions;
        break;
      case Verdict::improved:
        ++c.improvements;
        break;
      case Verdict::no_change:
        ++c.same;
        break;
      case Verdict::inconclusive:
        ++c.unclear;
    }
  }
  return c;
}

Machine quiet() { return {}; }
Machine memory_bound() { return {0.28, 0.075, 0.02, 3, 0, SplitMix64(2), 0}; }
Machine disturbed() { return {0.2, 0.03, 0.04, 5, 0.02, SplitMix64(3), 0}; }

}  // namespace

TEST(sign_flip, the_p_value_counts_the_sign_patterns) {
  // All of one sign: two patterns of 2^5 are as extreme.
  const std::vector<double> d{1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(sign_flip_p(d), 2.0 / 32);
  EXPECT_DOUBLE_EQ(signed_rank_p(d), 2.0 / 32);
  // Sum 13 of 15: +-{15, 13} are as extreme, by hand: flip nothing or only the 1.
  const std::vector<double> e{-1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(sign_flip_p(e), 4.0 / 32);
  EXPECT_DOUBLE_EQ(signed_rank_p(e), 4.0 / 32);
  EXPECT_DOUBLE_EQ(signed_rank_p(std::vector<double>{0, 0, 0}), 1);
  EXPECT_THROW(sign_flip_p({}), ArgumentError);
  EXPECT_THROW(signed_rank_p({}), ArgumentError);
}

TEST(sign_flip, random_flips_agree_with_all_of_them) {
  SplitMix64 random(5);
  std::vector<double> d;
  for (int i = 0; i < 14; ++i) d.push_back(random.normal() + 0.6);
  const double exact = sign_flip_p(d);
  d.push_back(0);  // 15: the sampled branch, and a zero changes no sum
  EXPECT_NEAR(sign_flip_p(d, 200000), exact, 0.004);
  const std::vector<double> certain(40, 1.0);
  EXPECT_GT(sign_flip_p(certain, 1000), 0) << "a sampled p-value is never 0";
}

TEST(sign_flip, the_interval_is_that_of_the_tables) {
  // n = 10, 95 %: Wilcoxon's critical value is 8, so the 9th smallest and largest of 55 Walsh averages.
  std::vector<double> d;
  for (int i = 1; i <= 10; ++i) d.push_back(i);
  std::vector<double> means;
  for (int i = 1; i <= 10; ++i)
    for (int j = i; j <= 10; ++j) means.push_back((i + j) / 2.0);
  std::sort(means.begin(), means.end());
  const Shift s = signed_rank_shift(d, 0.95);
  EXPECT_DOUBLE_EQ(s.centre, 5.5);
  EXPECT_DOUBLE_EQ(s.interval.low, means[8]);
  EXPECT_DOUBLE_EQ(s.interval.high, means[46]);
  EXPECT_TRUE(std::isinf(signed_rank_shift(std::vector<double>{1, 2, 3}, 0.95).interval.low));
}

TEST(paired, identical_programs_are_not_called_different) {
  for (const Machine& m : {quiet(), memory_bound(), disturbed()}) {
    const Counts c = trials(600, 0, m);
    EXPECT_LE(c.regressions + c.improvements, 3) << "noise " << m.noise;
  }
}

TEST(paired, ten_percent_is_found) {
  EXPECT_GE(trials(500, 0.10, quiet()).regressions, 495);
  EXPECT_GE(trials(500, -0.10, quiet()).improvements, 495);
  EXPECT_GE(trials(500, 0.10, disturbed()).regressions, 475);
}

TEST(paired, three_percent_is_found_on_quiet_kernels) {
  EXPECT_GE(trials(500, 0.03, quiet()).regressions, 400);
}

TEST(paired, what_cannot_be_seen_is_inconclusive_and_says_what_could) {
  const Counts c = trials(300, 0.03, memory_bound());
  EXPECT_GT(c.unclear, 200) << "noise of 7.5 % hides 3 %: that is not NO_CHANGE";
  EXPECT_EQ(c.improvements, 0);
  Machine m = memory_bound();
  m.noise = 0.15;
  const PairedResult r = compare_paired([&](bool b) { return m.pair(0, b); });
  EXPECT_EQ(r.verdict, Verdict::inconclusive);
  EXPECT_EQ(r.pairs.size(), 32u);
  EXPECT_GT(r.detectable, 0.03);
  EXPECT_LT(r.detectable, 0.25);
  EXPECT_NE(r.why.find("could have been found"), std::string::npos) << r.why;
}

TEST(paired, quiet_identical_programs_are_called_the_same) {
  const Counts c = trials(300, 0, quiet());
  EXPECT_GE(c.same, 297);
}

TEST(paired, a_change_within_the_margin_is_no_regression) {
  EXPECT_EQ(trials(300, 0.005, quiet()).regressions, 0);
}

TEST(paired, an_effect_of_the_order_cancels) {
  Machine m = quiet();
  m.order_effect = 0.02;
  const Counts c = trials(500, 0, m);
  EXPECT_LE(c.regressions + c.improvements, 5);
}

TEST(paired, the_order_is_balanced) {
  int first = 0, total = 0;
  compare_paired([&](bool b_first) {
    first += b_first, ++total;
    return Pair{1, 1 + 0.5 * (total % 2)};  // never clear
  });
  EXPECT_EQ(total, 32);
  EXPECT_EQ(first, 16);
}

TEST(paired, bad_input_is_refused) {
  const auto one = [](bool) { return Pair{1, 1}; };
  PairedOptions none;
  none.looks.clear();
  EXPECT_THROW(compare_paired(one, none), ArgumentError);
  PairedOptions backwards;
  backwards.looks = {{20, 0.005}, {12, 0.005}};
  EXPECT_THROW(compare_paired(one, backwards), ArgumentError);
  EXPECT_THROW(compare_paired([](bool) { return Pair{0, 1}; }), ArgumentError);
}

TEST(paired, holm_keeps_the_family_rate) {
  // 0.01 / 3, 0.01 / 2, 0.01 / 1
  EXPECT_EQ(holm_rejects(std::vector<double>{0.004, 0.001, 0.02}, 0.01),
            (std::vector<bool>{true, true, false}));
  EXPECT_EQ(holm_rejects(std::vector<double>{0.004, 0.02, 0.004}, 0.01),
            (std::vector<bool>{false, false, false}));
}
