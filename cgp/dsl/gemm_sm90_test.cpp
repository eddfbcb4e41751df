// SPDX-License-Identifier: Apache-2.0
// The warp-specialised Hopper GEMM: TMA ring, wgmma with one group in flight, roles with register budgets.
// Records, verifies and assembles for sm_90a.
#include <gtest/gtest.h>

#include "cgp/dsl/ptxas_check.h"
#include "cgp/dsl/test_gemms.h"

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

}  // namespace
}  // namespace cgp::dsl
