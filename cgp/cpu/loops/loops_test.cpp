// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/loops/loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cgp/base/random.h"

namespace cgp::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<Isa> present() {
  std::vector<Isa> out;
  for (Isa i : all_isas())
    if (has(i)) out.push_back(i);
  return out;
}

TEST(loops, every_version_every_length_and_alignment_against_double) {
  SplitMix64 random(1);
  std::vector<float> x(200), y(200);
  for (auto* v : {&x, &y})
    for (float& f : *v) f = float(random.uniform(-2, 2));
  for (Isa isa : present())
    for (std::size_t n = 0; n <= 150; ++n) {
      const std::size_t at = n % 5;  // floats off any alignment
      SCOPED_TRACE(testing::Message() << name(isa) << " n=" << n);
      double dot = 0, magnitude = 0;
      for (std::size_t i = at; i < at + n; ++i)
        dot += double(x[i]) * y[i], magnitude += std::fabs(double(x[i]) * y[i]);
      EXPECT_NEAR(loops(isa).dot(&x[at], &y[at], n), dot, double(n + 1) * 0x1p-24 * magnitude);
      std::vector<float> z = y;
      loops(isa).axpy(0.3f, &x[at], &z[at], n);
      for (std::size_t i = 0; i < z.size(); ++i) {
        const bool inside = i >= at && i < at + n;
        const double want = inside ? double(0.3f) * x[i] + y[i] : y[i];
        ASSERT_NEAR(z[i], want, inside ? 0x1p-24 * (std::fabs(want) + std::fabs(0.3 * x[i])) : 0) << i;
      }
    }
}

TEST(loops, roots_and_reciprocals_are_rounded_correctly_and_write_only_what_is_theirs) {
  SplitMix64 random(2);
  std::vector<float> x(100);
  for (float& f : x) f = float(std::exp(random.uniform(-60, 60)));
  x[3] = 0, x[4] = -0.0f, x[5] = kInf, x[6] = -1, x[7] = std::nanf(""), x[8] = -kInf, x[9] = 1e-42f;
  for (Isa isa : present())
    for (std::size_t n = 0; n <= 70; ++n) {
      // what is poisoned before must not show afterwards, nor change behind the end
      std::vector<float> root(100, std::nanf("1")), inverse(100, 7.0f);
      loops(isa).square_root(x.data(), root.data(), n);
      loops(isa).reciprocal(x.data(), inverse.data(), n);
      for (std::size_t i = 0; i < 100; ++i) {
        const float r = i < n ? std::sqrt(x[i]) : std::nanf("1"), q = i < n ? 1 / x[i] : 7.0f;
        ASSERT_TRUE(root[i] == r || (std::isnan(root[i]) && std::isnan(r)))
            << name(isa) << " " << n << " " << i;
        ASSERT_TRUE(inverse[i] == q || (std::isnan(inverse[i]) && std::isnan(q))) << name(isa) << " " << i;
      }
    }
}

TEST(loops, nan_and_infinity_reach_the_sum_from_every_place) {
  for (Isa isa : present())
    for (std::size_t n : {1u, 7u, 16u, 64u, 77u})
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<float> x(n, 1), y(n, 1);
        x[i] = kInf;
        EXPECT_EQ(loops(isa).dot(x.data(), y.data(), n), kInf);
        y[i] = 0;
        EXPECT_TRUE(std::isnan(loops(isa).dot(x.data(), y.data(), n)));
      }
}

}  // namespace
}  // namespace cgp::cpu
