// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/mbarrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cgp::emu {
namespace {
using ::testing::HasSubstr;

Mbarrier fresh(std::uint32_t count) {
  Mbarrier b;
  b.init(count);
  return b;
}

TEST(Mbarrier, FreshBarrierHasCompletedTheOddPhase) {
  const Mbarrier b = fresh(2);
  EXPECT_TRUE(b.parity_done(1));
  EXPECT_FALSE(b.parity_done(0));
}

TEST(Mbarrier, PhasesAlternate) {
  Mbarrier b = fresh(2);
  for (std::uint32_t phase = 0; phase < 5; ++phase) {
    const std::uint64_t before = b.token();
    EXPECT_EQ(Mbarrier::token_pending(before), 2u);
    EXPECT_EQ(b.arrive(1), "");
    EXPECT_FALSE(b.parity_done(phase & 1));
    EXPECT_FALSE(b.token_done(before));
    EXPECT_EQ(Mbarrier::token_pending(b.token()), 1u);
    EXPECT_EQ(b.arrive(1), "");
    EXPECT_TRUE(b.parity_done(phase & 1));
    EXPECT_TRUE(b.token_done(before));
    EXPECT_EQ(b.pending, 2u);
  }
}

TEST(Mbarrier, BytesHoldThePhase) {
  Mbarrier b = fresh(1);
  EXPECT_EQ(b.expect(512), "");
  EXPECT_EQ(b.arrive(1), "");
  EXPECT_FALSE(b.parity_done(0));
  EXPECT_EQ(b.describe(), "pending 0 of 1 arrivals, tx 512 bytes outstanding");
  EXPECT_EQ(b.complete(500), "");
  EXPECT_FALSE(b.parity_done(0));
  EXPECT_EQ(b.complete(12), "");
  EXPECT_TRUE(b.parity_done(0));
}

TEST(Mbarrier, CompletionMayComeBeforeExpectation) {
  Mbarrier b = fresh(1);
  EXPECT_EQ(b.complete(256), "");
  EXPECT_FALSE(b.parity_done(0));
  EXPECT_EQ(b.expect(256), "");
  EXPECT_FALSE(b.parity_done(0));
  EXPECT_EQ(b.arrive(1), "");
  EXPECT_TRUE(b.parity_done(0));
}

TEST(Mbarrier, Misuse) {
  Mbarrier b = fresh(2);
  EXPECT_THAT(b.arrive(3), HasSubstr("only 2 of 2"));
  EXPECT_EQ(b.pending, 2u);
  EXPECT_THAT(b.arrive(0), HasSubstr("count 0"));
  EXPECT_THAT(b.arrive_without_completing(2), HasSubstr("completes the phase"));
  EXPECT_EQ(b.expect((1 << 20) - 1), "");
  EXPECT_THAT(b.expect(1), HasSubstr("tx-count"));
  Mbarrier c = fresh(1);
  EXPECT_EQ(c.complete((1 << 20) - 1), "");
  EXPECT_THAT(c.complete(1), HasSubstr("tx-count"));
}

TEST(Mbarrier, DropLowersTheFollowingPhases) {
  Mbarrier b = fresh(3);
  EXPECT_EQ(b.drop(1), "");
  EXPECT_EQ(b.arrive(2), "");
  EXPECT_TRUE(b.parity_done(0));
  EXPECT_EQ(b.pending, 2u);
  EXPECT_EQ(b.arrive(2), "");
  EXPECT_TRUE(b.parity_done(1));
  EXPECT_THAT(b.drop(3), HasSubstr("expected count of 2"));
}

TEST(Mbarrier, WordsTellStatesApart) {
  Mbarrier a = fresh(2), b = fresh(2);
  EXPECT_EQ(a.word(), b.word());
  EXPECT_EQ(b.arrive(1), "");
  EXPECT_NE(a.word(), b.word());
  Mbarrier c = fresh(2);
  EXPECT_EQ(c.expect(16), "");
  EXPECT_NE(a.word(), c.word());
  Mbarrier none;
  EXPECT_EQ(none.word(), 0u);
}

}  // namespace
}  // namespace cgp::emu
