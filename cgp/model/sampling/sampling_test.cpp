// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/model/sampling/sampler.h"
#include "cgp/model/sampling/stop_strings.h"

namespace cgp::model {
namespace {

SamplingOptions everything() {
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  return o;
}

std::vector<float> logits_of(const std::vector<double>& p) {
  std::vector<float> out;
  for (double x : p) out.push_back(float(std::log(x)));
  return out;
}

std::map<int, int> counts(SamplingOptions o, std::span<const float> logits, int draws) {
  o.penalty_window = 0;
  Sampler s(o);
  std::map<int, int> out;
  for (int i = 0; i < draws; ++i) ++out[s.sample(logits).token];
  return out;
}

/// Chi-square of 100,000 draws against `p`; tokens with 0 must not come.
void expect_distribution(const SamplingOptions& o, std::span<const float> logits,
                         const std::vector<double>& p) {
  constexpr int kDraws = 100000;
  std::map<int, int> seen = counts(o, logits, kDraws);
  double chi = 0;
  int degrees = -1;
  for (std::size_t t = 0; t < p.size(); ++t) {
    if (p[t] == 0) {
      EXPECT_EQ(seen.count(int(t)), 0u) << "token " << t;
      continue;
    }
    double want = p[t] * kDraws, difference = seen[int(t)] - want;
    chi += difference * difference / want;
    ++degrees;
  }
  // Mean `degrees`, variance twice that: five standard deviations.
  EXPECT_LT(chi, degrees + 5 * std::sqrt(2.0 * std::max(degrees, 1)));
}

TEST(Philox, KnownAnswers) {
  // Random123's vectors for key and counter 0: 6627e8d5 e169c58d.
  EXPECT_EQ(philox_uniform(0, 0), double(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  EXPECT_NE(philox_uniform(1, 0), philox_uniform(0, 0));
}

TEST(Sampler, GreedyTakesTheGreatestAndOfEqualOnesTheFirst) {
  SamplingOptions o;
  o.temperature = 0;
  std::vector<float> logits = {1, 3, 3, 2};
  Sampler s(o);
  EXPECT_EQ(s.sample(logits).token, 1);
  o.repetition_penalty = 2;
  Sampler penalised(o);
  EXPECT_EQ(penalised.sample(logits).token, 1);
  EXPECT_EQ(penalised.sample(logits).token, 2);
  EXPECT_EQ(penalised.sample(logits).token, 3);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<double> p = {0.5, 0.2, 0.15, 0.1, 0.05};
  const std::vector<float> logits = logits_of(p);
  SamplingOptions o = everything();
  expect_distribution(o, logits, p);
  o.seed = 7;
  expect_distribution(o, logits, p);
  o.top_k = 2;
  expect_distribution(o, logits, {0.5 / 0.7, 0.2 / 0.7, 0, 0, 0});
  o = everything();
  o.top_p = 0.69;
  expect_distribution(o, logits, {0.5 / 0.7, 0.2 / 0.7, 0, 0, 0});
  o.top_p = 0.1;
  expect_distribution(o, logits, {1, 0, 0, 0, 0});
  o = everything();
  o.min_p = 0.25;
  expect_distribution(o, logits, {0.5 / 0.85, 0.2 / 0.85, 0.15 / 0.85, 0, 0});
  o = everything();
  o.temperature = 2;
  double sum = 0;
  std::vector<double> softened;
  for (double x : p) sum += std::sqrt(x);
  for (double x : p) softened.push_back(std::sqrt(x) / sum);
  expect_distribution(o, logits, softened);
}

TEST(Sampler, TypicalKeepsWhatIsNearTheExpectedInformation) {
  // Entropy 1.33: -log p is 0.69, 1.61, 1.90, 2.30, 3.00: the nearest are 0.2, then 0.15, then 0.5.
  const std::vector<float> logits = logits_of({0.5, 0.2, 0.15, 0.1, 0.05});
  SamplingOptions o = everything();
  o.typical_p = 0.3;
  expect_distribution(o, logits, {0, 0.2 / 0.35, 0.15 / 0.35, 0, 0});
}

TEST(Sampler, FiltersApplyInTheDocumentedOrder) {
  // top_k before top_p: of the two that are left 0.5 / 0.7 is enough for 0.7, of all five it is not.
  const std::vector<double> p = {0.5, 0.2, 0.15, 0.1, 0.05};
  SamplingOptions o = everything();
  o.top_k = 2;
  o.top_p = 0.7;
  expect_distribution(o, logits_of(p), {1, 0, 0, 0, 0});
  // Filters see temperature 1: a high temperature does not let more through.
  o = everything();
  o.temperature = 100;
  o.top_p = 0.49;
  expect_distribution(o, logits_of(p), {1, 0, 0, 0, 0});
  // The bias comes before top_k.
  o = everything();
  o.top_k = 1;
  o.logit_bias = {{4, 10}};
  expect_distribution(o, logits_of(p), {0, 0, 0, 0, 1});
}

TEST(Sampler, PenaltiesCountTheWindow) {
  SamplingOptions o;
  o.temperature = 0;
  o.frequency_penalty = 1;
  o.presence_penalty = 0.5;
  o.penalty_window = 2;
  std::vector<float> logits = {3.2f, 2, 0};
  Sampler s(o);
  std::vector<int> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(s.sample(logits).token);
  // 3.2; 1.7 < 2; 1.7 > 0.5; 1 has not left the window yet: 1.7 > 0.5; twice in the window: 0.7 < 2.
  EXPECT_EQ(ids, (std::vector<int>{0, 1, 0, 0, 1}));
  o.repetition_penalty = 2;
  o.frequency_penalty = o.presence_penalty = 0;
  Sampler negative(o);
  negative.accept(0);
  std::vector<float> below = {-1, -1.5f, -9};
  EXPECT_EQ(negative.sample(below).token, 1) << "a negative logit is multiplied";
}

TEST(Sampler, ASeedReproducesAndDoesNotDependOnOtherSamplers) {
  std::vector<float> logits(1000);
  SplitMix64 random(1);
  for (float& x : logits) x = float(random.uniform(-3, 3));
  SamplingOptions o = everything();
  o.seed = 123;
  auto run = [&] {
    Sampler s(o);
    std::vector<int> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(s.sample(logits).token);
    return ids;
  };
  const std::vector<int> first = run();
  EXPECT_EQ(run(), first);
  o.seed = 124;
  EXPECT_NE(run(), first);
}

TEST(Sampler, TopPOfManyIsThatOfAFullSort) {
  std::vector<float> logits(5000);
  SplitMix64 random(2);
  for (float& x : logits) x = float(random.uniform(0, 0.01));
  SamplingOptions o = everything();
  o.top_p = 0.5;
  o.penalty_window = 0;
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  Sampler s(o);
  for (int i = 0; i < 3000; ++i) EXPECT_GE(logits[std::size_t(s.sample(logits).token)], sorted[2500]);
}

TEST(Sampler, LogProbabilitiesAreOfTheLogitsAsGiven) {
  SamplingOptions o;
  o.temperature = 0;
  o.logit_bias = {{2, 100}};
  o.top_logprobs = 2;
  Sampled s = Sampler(o).sample(logits_of({0.5, 0.3, 0.2}));
  EXPECT_EQ(s.token, 2);
  EXPECT_NEAR(s.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(s.top.size(), 2u);
  EXPECT_EQ(s.top[0].first, 0);
  EXPECT_NEAR(s.top[1].second, std::log(0.3), 1e-6);
}

TEST(Sampler, LogProbabilitiesCanBeLeftOut) {
  SamplingOptions o;
  o.seed = 3;
  Sampler with(o);
  o.logprobs = false;
  Sampler without(o);
  const auto logits = logits_of({0.5, 0.3, 0.2});
  for (int i = 0; i < 20; ++i) {
    const Sampled one = with.sample(logits), other = without.sample(logits);
    EXPECT_EQ(one.token, other.token);
    EXPECT_LT(one.logprob, 0);
    EXPECT_EQ(other.logprob, 0);
  }
}

TEST(Sampler, AMaskExcludes) {
  SamplingOptions o;
  o.temperature = 0;
  std::vector<float> logits(40);
  logits[3] = 5;
  logits[33] = 4;
  std::uint32_t mask[2] = {0, ~0u};
  EXPECT_EQ(Sampler(o).sample(logits, mask).token, 33);
  std::uint32_t none[2] = {0, 0};
  EXPECT_THROW(Sampler(o).sample(logits, none), ArgumentError);
  EXPECT_THROW(Sampler(o).sample(logits, std::span(mask, 1)), ArgumentError);
}

TEST(Sampler, WhatIsWrongIsNamed) {
  auto refuses = [](auto&& set, const char* name) {
    SamplingOptions o;
    set(o);
    try {
      Sampler s(o);
      ADD_FAILURE() << name;
    } catch (const ArgumentError& e) {
      EXPECT_NE(e.rule().find(name), std::string::npos) << e.what();
    }
  };
  refuses([](auto& o) { o.temperature = -1; }, "temperature");
  refuses([](auto& o) { o.temperature = NAN; }, "temperature");
  refuses([](auto& o) { o.top_p = 0; }, "top_p");
  refuses([](auto& o) { o.top_p = 1.1; }, "top_p");
  refuses([](auto& o) { o.top_k = -1; }, "top_k");
  refuses([](auto& o) { o.min_p = 2; }, "min_p");
  refuses([](auto& o) { o.typical_p = 0; }, "typical_p");
  refuses([](auto& o) { o.repetition_penalty = 0; }, "repetition_penalty");
  refuses([](auto& o) { o.logit_bias = {{-1, 1}}; }, "logit_bias");
  std::vector<float> logits = {1, NAN};
  EXPECT_THROW(Sampler({}).sample(logits), ArgumentError);
  logits[1] = INFINITY;
  EXPECT_THROW(Sampler({}).sample(logits), ArgumentError);
  logits = {-INFINITY, -INFINITY};
  EXPECT_THROW(Sampler({}).sample(logits), ArgumentError);
  EXPECT_THROW(Sampler({}).sample({}), ArgumentError);
  logits = {-INFINITY, 0};
  EXPECT_EQ(Sampler({}).sample(logits).token, 1);
}

std::string fed(StopStrings& s, std::initializer_list<const char*> parts) {
  std::string out;
  for (const char* p : parts) {
    out += s.push(p);
    out += '|';
  }
  return out + s.finish();
}

TEST(StopStrings, StopsAcrossParts) {
  StopStrings s({"END", "\n\n"});
  EXPECT_EQ(fed(s, {"abE", "N", "Dx", "y"}), "ab||||");
  EXPECT_EQ(s.found(), "END");
  StopStrings t({"END"});
  EXPECT_EQ(fed(t, {"abE", "Nx", "EN"}), "ab|ENx||EN");
  EXPECT_EQ(t.found(), "");
  StopStrings u({"ab", "abc"});
  EXPECT_EQ(fed(u, {"xab", "c"}), "x||");
  EXPECT_EQ(u.found(), "abc") << "of those that begin together the longest";
  StopStrings v({"ab", "abc"});
  EXPECT_EQ(fed(v, {"xab"}), "x|");
  EXPECT_EQ(v.found(), "ab");
  StopStrings w({"aab"});
  EXPECT_EQ(fed(w, {"a", "a", "a", "b"}), "||a||");
  EXPECT_EQ(w.found(), "aab");
  EXPECT_THROW(StopStrings({""}), ArgumentError);
}

}  // namespace
}  // namespace cgp::model
