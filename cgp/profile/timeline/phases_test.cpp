// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/timeline/phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace cgp::profile;
using testing::HasSubstr;
using Kind = Activity::Kind;

namespace {

constexpr std::uint64_t kMs = 1'000'000;

Activity activity(Kind kind, const std::string& name, double start_ms, double ms) {
  Activity a;
  a.kind = kind, a.name = name;
  a.start = std::uint64_t(start_ms * kMs), a.end = a.start + std::uint64_t(ms * kMs);
  return a;
}
Activity copy(std::uint32_t kind, double start_ms, double ms, std::uint64_t bytes, bool pageable) {
  Activity a = activity(Kind::copy, "copy", start_ms, ms);
  a.copy_kind = kind, a.bytes = bytes, a.pageable = pageable;
  return a;
}

const Waste* find(const std::vector<Waste>& all, const std::string& title) {
  for (const auto& w : all)
    if (w.title == title) return &w;
  return nullptr;
}

/// 3 kernels whose first launches are a second apart, then 100 rounds of the three, each 1 ms, without a gap.
Timeline loading_then_working() {
  Timeline t;
  for (int i = 0; i < 3; ++i)
    t.activities.push_back(activity(Kind::kernel, "k" + std::to_string(i), 1000.0 * (i + 1), 1));
  for (int i = 0; i < 300; ++i)
    t.activities.push_back(activity(Kind::kernel, "k" + std::to_string(i % 3), 3001.0 + i, 1));
  return t;
}

}  // namespace

TEST(phases, loading_is_not_idleness_of_the_loop) {
  const Phases p = phases_of(loading_then_working());
  EXPECT_GT(p.whole.idle_percent(), 80);
  ASSERT_TRUE(p.steady);
  EXPECT_EQ(p.steady->launches, 300u);
  EXPECT_LT(p.steady->idle_percent(), 1);
  EXPECT_EQ(p.first_launches, 3u);
  EXPECT_NEAR(p.startup_ms, 2001, 1);
  EXPECT_EQ(find(phases_waste(p, kernels_of(p.steady_part)), "idle GPU"), nullptr);
  EXPECT_THAT(phases_text(p), HasSubstr("start-up      2.00 s: 3 launches, 3 kernels for the first time"));
  EXPECT_EQ(to_json(p)["steady"]["launches"], 300);
}

TEST(phases, without_a_loop_nothing_is_told_apart) {
  Timeline t;
  for (int i = 0; i < 30; ++i)
    t.activities.push_back(activity(Kind::kernel, "k" + std::to_string(i), i, 0.5));
  const Phases p = phases_of(t);
  EXPECT_FALSE(p.steady);
  EXPECT_THAT(phases_text(p), HasSubstr("not told apart"));
}

TEST(phases, a_timeline_of_copies_names_them) {
  Timeline t;
  for (int i = 0; i < 40; ++i) {  // in from pageable memory, computed, out, one after the other
    t.activities.push_back(copy(1, 4.0 * i, 1.5, 6'000'000, true));
    t.activities.push_back(activity(Kind::kernel, "k", 4.0 * i + 1.5, 1));
    t.activities.push_back(copy(2, 4.0 * i + 2.5, 1.5, 6'000'000, true));
  }
  const auto waste = copy_waste(t, summarise(t));
  const auto *pageable = find(waste, "pageable copies"), *alone = find(waste, "copies that overlap nothing"),
             *trips = find(waste, "round trips");
  ASSERT_TRUE(pageable && alone && trips);
  EXPECT_NEAR(pageable->percent, 75, 1);
  EXPECT_THAT(pageable->evidence, HasSubstr("4.00 GB/s"));
  EXPECT_NEAR(alone->percent, 25, 1) << "only as much as there is to compute can hide copies";
  EXPECT_THAT(trips->evidence, HasSubstr("39 times"));
}

TEST(phases, copies_beside_kernels_from_pinned_memory_are_no_waste) {
  Timeline t;
  for (int i = 0; i < 40; ++i) {
    t.activities.push_back(activity(Kind::kernel, "k", 2.0 * i, 2));
    t.activities.push_back(copy(1, 2.0 * i + 0.1, 1.5, 6'000'000, false));
  }
  EXPECT_TRUE(copy_waste(t, summarise(t)).empty());
}
