// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/api/gemm_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/kernels/gemm/api/gemm_ref.h"

namespace cgp::kernels {
namespace {

struct Problem {
  GemmProblem p;
  HostArray a, b, old, c;
};

/// A right product in `t`: f64 sums, rounded once.
Problem product(DType t, bool ta, bool tb, std::uint64_t m, std::uint64_t n, std::uint64_t k, float beta = 0,
                std::uint64_t batch = 1) {
  Problem x;
  x.p = GemmProblem{.type = t, .trans_a = ta, .trans_b = tb, .m = m, .n = n, .k = k};
  x.p.alpha = 1.5f;
  x.p.beta = beta;
  x.p.batch = batch;
  x.a = random_array(t, {batch, ta ? k : m, ta ? m : k}, 1);
  x.b = random_array(t, {batch, tb ? n : k, tb ? k : n}, 2);
  x.old = random_array(t, {batch, m, n}, 3);
  x.c = HostArray(t, {batch, m, n});
  const auto want = gemm_ref(x.p, x.a, x.b, x.old).want;
  for (std::uint64_t i = 0; i < want.size(); ++i) x.c.set(i, want[i]);
  return x;
}

Check check(const Problem& x, const GemmCheckLimits& limits) {
  return check_gemm(x.p, x.a, x.b, x.old, x.c, limits);
}
constexpr GemmCheckLimits kSampled{0, 64};

TEST(GemmCheck, accepts_right_products_either_way) {
  for (DType t : {DType::f32, DType::f16, DType::bf16})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const Problem x = product(t, ta, tb, 37, 29, 41, 0.5f, 2);
        const Check full = check(x, {}), sampled = check(x, kSampled);
        EXPECT_TRUE(full.pass) << full.describe();
        EXPECT_TRUE(full.note.empty());
        EXPECT_EQ(full.compared, 2u * 37 * 29);
        EXPECT_TRUE(sampled.pass) << sampled.describe();
        EXPECT_NE(sampled.describe().find("64 elements agree"), std::string::npos) << sampled.describe();
        EXPECT_NE(sampled.describe().find("a random sample of 2,146"), std::string::npos);
      }
}

TEST(GemmCheck, the_full_check_finds_one_element) {
  Problem x = product(DType::f32, false, true, 33, 20, 50);
  x.c.set(20 * 7 + 3, x.c.at(20 * 7 + 3) + 0.01);
  const Check c = check(x, {});
  EXPECT_FALSE(c.pass);
  EXPECT_EQ(c.wrong, 1u);
  EXPECT_EQ(c.worst_index, 20u * 7 + 3);
}

TEST(GemmCheck, random_vectors_find_what_the_sample_misses) {
  for (DType t : {DType::f32, DType::bf16}) {
    Problem x = product(t, false, true, 200, 160, 96);
    const GemmCheckLimits only_corners{0, 8};
    EXPECT_TRUE(check(x, only_corners).pass);
    for (std::uint64_t i = 64; i < 96; ++i)  // a tile that nobody wrote
      for (std::uint64_t j = 32; j < 96; ++j) x.c.set(i * 160 + j, 0);
    const Check c = check(x, only_corners);
    EXPECT_FALSE(c.pass) << name(t);
    EXPECT_NE(c.describe().find("for a vector r of random signs"), std::string::npos) << c.describe();
  }
  Problem x = product(DType::f32, false, false, 200, 160, 96);
  for (std::uint64_t i = 50; i < 150; ++i)
    x.c.set(i * 160 + 77, x.c.at(i * 160 + 77) + 0.05);  // a column, slightly
  const Check c = check(x, {0, 8});
  EXPECT_FALSE(c.pass);
  EXPECT_NE(c.describe().find("column 77"), std::string::npos) << c.describe();
}

TEST(GemmCheck, infinities_are_looked_at_one_by_one) {
  Problem x = product(DType::bf16, false, true, 64, 64, 32);
  x.c.set(64 * 33 + 17, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(check(x, {0, 8}).pass);
  x = product(DType::bf16, false, true, 64, 64, 32);
  x.a.set(5, std::numeric_limits<double>::infinity());
  const auto want = gemm_ref(x.p, x.a, x.b, x.old).want;
  for (std::uint64_t i = 0; i < want.size(); ++i) x.c.set(i, want[i]);
  const Check c = check(x, kSampled);
  EXPECT_TRUE(c.pass) << c.describe();
  EXPECT_NE(c.note.find("no more"), std::string::npos);
}

}  // namespace
}  // namespace cgp::kernels
