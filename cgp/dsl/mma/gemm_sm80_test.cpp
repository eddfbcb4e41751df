// SPDX-License-Identifier: Apache-2.0
// A multistage cp.async + ldmatrix + mma.sync GEMM: records, verifies and assembles for sm_80.
#include <gtest/gtest.h>

#include "cgp/dsl/core/ptxas_test.h"
#include "cgp/dsl/mma/gemms_test.h"

namespace cgp::dsl {
namespace {

TEST(gemm_sm80, bf16_assembles_without_spills) {
  const auto b = build("gemm_bf16_sm80", "sm_80", gemm_sm80<bf16, f32, AmpereShape{128, 128, 32}>, 3);
  const auto said = ptxas(b);
  if (said == "no ptxas") GTEST_SKIP() << said;
  EXPECT_EQ(said, "") << b.ptx();
}

}  // namespace
}  // namespace cgp::dsl
