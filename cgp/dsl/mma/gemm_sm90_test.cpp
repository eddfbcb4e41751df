// SPDX-License-Identifier: Apache-2.0
// The warp-specialised Hopper GEMM: TMA ring, wgmma with one group in flight, roles with register budgets.
// Records, verifies and assembles for sm_90a.
#include <gtest/gtest.h>

#include "cgp/dsl/core/ptxas_test.h"
#include "cgp/dsl/mma/gemms_test.h"

namespace cgp::dsl {
namespace {

TEST(gemm_sm90, assembles_without_spills_or_serialised_wgmma) {
  const auto b = build("gemm_bf16_sm90", "sm_90a", gemm_sm90<bf16, f32, HopperShape{128, 256, 64}>, 4);
  EXPECT_EQ(b.block[0], 384);
  EXPECT_EQ(b.dynamic_smem, 4 * 49152 + 64);
  ASSERT_TRUE(b.params[1].tensor_map);
  EXPECT_EQ(b.params[1].tensor_map->box, (std::array<std::uint32_t, 5>{64, 256}));
  EXPECT_EQ(b.params[1].tensor_map->swizzle, Swizzle::b128);
  const auto said = ptxas(b);
  if (said == "no ptxas") GTEST_SKIP() << said;
  EXPECT_EQ(said, "") << b.ptx();
}

TEST(gemm_sm90, persistent_multicast_assembles) {
  const auto b =
      build("gemm_bf16_sm90", "sm_90a", gemm_sm90_persistent<bf16, bf16, HopperShape{128, 256, 64}, 128>,
            PersistentTuning{4, 2, 1});
  EXPECT_EQ(b.cluster[0], 2);
  EXPECT_EQ(b.params[1].tensor_map->box[1], 128u) << "each block loads half of B";
  EXPECT_EQ(b.params[0].tensor_map->box[1], 128u);
  EXPECT_EQ(b.params[2].tensor_map->box, (std::array<std::uint32_t, 5>{64, 64}));
  const auto said = ptxas(b);
  if (said == "no ptxas") GTEST_SKIP() << said;
  EXPECT_EQ(said, "") << b.ptx();
}

TEST(gemm_sm90, pingpong_assembles) {
  const auto said = ptxas(build("gemm", "sm_90a", gemm_sm90_pingpong<HopperShape{64, 128, 64}>, 5));
  if (said == "no ptxas") GTEST_SKIP() << said;
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace cgp::dsl
