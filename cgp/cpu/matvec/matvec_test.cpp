// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/matvec/matvec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/random.h"

namespace cgp::cpu {
namespace {

using std::int64_t;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(int64_t n, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = float(random.uniform(-1, 1));
  return v;
}

TEST(matvec, every_version_on_sizes_with_remainders_against_double) {
  for (Isa isa : all_isas()) {
    if (!has(isa)) continue;
    for (int64_t m : {0, 1, 5, 17})
      for (int64_t n : {0, 1, 15, 16, 63, 65, 130}) {
        const int64_t lda = n + 3;
        const auto a = random_floats(m * lda + 1, 1), x = random_floats(n + 1, 2),
                   z = random_floats(m + 1, 3);
        std::vector<float> y(std::size_t(m + 1), kNone), t(std::size_t(n + 1), kNone);  // poison
        matvec(m, n, a.data(), lda, x.data(), y.data(), {.isa = isa});
        vecmat(m, n, z.data(), a.data(), lda, t.data(), {.isa = isa});
        const auto at = [&](int64_t i, int64_t j) { return double(a[std::size_t(i * lda + j)]); };
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0, magnitude = 0;
          for (int64_t j = 0; j < n; ++j)
            sum += at(i, j) * x[std::size_t(j)], magnitude += std::fabs(at(i, j) * x[std::size_t(j)]);
          ASSERT_NEAR(y[std::size_t(i)], sum, double(n + 1) * 0x1p-24 * magnitude)
              << name(isa) << m << " " << n;
        }
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int64_t i = 0; i < m; ++i)
            sum += at(i, j) * z[std::size_t(i)], magnitude += std::fabs(at(i, j) * z[std::size_t(i)]);
          ASSERT_NEAR(t[std::size_t(j)], sum, double(m + 1) * 0x1p-24 * magnitude) << name(isa);
        }
        EXPECT_TRUE(std::isnan(y.back()) && std::isnan(t.back())) << "one beyond the end was written";
      }
  }
}

TEST(matvec, threads_change_no_bit_on_either_side_of_their_threshold) {
  const int64_t n = 512, edge = 2 * kMatvecWorkPerThread / n;
  for (int64_t m : {edge - 1, edge, edge + 1}) {
    const auto a = random_floats(m * n, 4), x = random_floats(m + n, 5);
    std::vector<float> one(std::size_t(m + n), 0.0f), many = one, t1(a.size()), t3(a.size(), kNone);
    for (auto [y, threads] : {std::pair{&one, 1}, std::pair{&many, 3}}) {
      matvec(m, n, a.data(), n, x.data(), y->data(), {.threads = threads});
      vecmat(m, n, x.data(), a.data(), n, y->data() + m, {.threads = threads});
    }
    EXPECT_EQ(one, many);
    transpose(m, n, a.data(), n, t1.data(), m, 1);
    transpose(m, n, a.data(), n, t3.data(), m, 3);
    EXPECT_EQ(t1, t3);
  }
}

TEST(matvec, transposition_of_any_shape_writes_only_its_rows) {
  for (int64_t m : {0, 1, 15, 16, 33, 70})
    for (int64_t n : {1, 2, 16, 31, 65, 130}) {
      const int64_t lda = n + 2, ldb = m + 3;
      const auto a = random_floats(m * lda + 1, 6);
      std::vector<float> b(std::size_t(n * ldb), 9.0f);
      transpose(m, n, a.data(), lda, b.data(), ldb);
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < ldb; ++i)
          ASSERT_EQ(b[std::size_t(j * ldb + i)], i < m ? a[std::size_t(i * lda + j)] : 9.0f)
              << m << " x " << n;
    }
}

TEST(matvec, what_cannot_be_is_an_argument_error) {
  float x[4] = {};
  EXPECT_THROW(matvec(-1, 2, x, 2, x, x), ArgumentError);
  EXPECT_THROW(matvec(2, 3, x, 2, x, x), ArgumentError);
  EXPECT_THROW(vecmat(2, 2, x, nullptr, 2, x), ArgumentError);
  EXPECT_THROW(transpose(2, 2, x, 2, x, 1), ArgumentError);
  EXPECT_THROW(matvec(2, 2, x, 2, x, x, {.threads = -1}), ArgumentError);
}

}  // namespace
}  // namespace cgp::cpu
