// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm_ladder/gemm_ladder.h"

#include <gtest/gtest.h>

#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(gemm_ladder, every_step_on_ragged_shapes) {
  for (const auto& s : gemm_ladder()) {
    const auto run = [&](const char* m, const char* n, const char* k, const char* arch) {
      expect_right(gemm_ladder_entry(), {{"step", std::string(s.name)}, {"m", m}, {"n", n}, {"k", k}}, arch);
    };
    run("40", "72", "40", s.aligned ? "sm_80" : "sm_75");
    run("17", "33", "8", "sm_89");
    if (!s.aligned) run("30", "21", "19", "sm_80");
  }
}

TEST(gemm_ladder, swizzling_removes_the_bank_conflicts_of_ldmatrix) {
  const auto conflicts = [](const char* step) {
    return expect_right(gemm_ladder_entry(), {{"step", step}, {"m", "64"}, {"n", "64"}, {"k", "64"}}, "sm_80")
        .shared_load_conflicts;
  };
  EXPECT_GT(conflicts("mma64"), 0u);
  EXPECT_EQ(conflicts("swizzled"), 0u);
}

class gemm_ladder_step : public ::testing::TestWithParam<std::size_t> {};
TEST_P(gemm_ladder_step, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(
      gemm_ladder_entry(),
      {{{"step", std::string(gemm_ladder()[GetParam()].name)}, {"m", "300"}, {"n", "520"}, {"k", "264"}}});
}
INSTANTIATE_TEST_SUITE_P(all, gemm_ladder_step, ::testing::Range(std::size_t(0), gemm_ladder().size()));

TEST(gemm_ladder, every_step_assembles_without_spills) { expect_assembles(gemm_ladder_entry()); }
