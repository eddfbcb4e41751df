// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/random.h"

namespace cgp::cpu {
namespace {

using std::int64_t;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Problem {
  int64_t m, n, k;
  bool ta = false, tb = false;
  float alpha = 1, beta = 0;
  int64_t pad = 0;  ///< floats between rows, which nobody may read or write
};

std::vector<Isa> gemm_isas() {
  std::vector<Isa> out;
  for (Isa i : {Isa::scalar, Isa::avx2, Isa::avx512})
    if (has(i)) out.push_back(i);
  return out;
}

/// A stored matrix with NaN in the padding, so that reading it shows.
struct Matrix {
  int64_t rows, cols, ld;
  std::vector<float> data;
  Matrix(int64_t r, int64_t c, int64_t pad, SplitMix64& random)
      : rows(r), cols(c), ld(std::max<int64_t>(c, 1) + pad), data(std::size_t(r * ld + 1), kNan) {
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < c; ++j) at(i, j) = float(random.uniform(-1, 1));
  }
  float& at(int64_t i, int64_t j) { return data[std::size_t(i * ld + j)]; }
};

/// Sums in double; the bound is k + 2 roundings of every term's magnitude (sums of products in any order, the
/// factor alpha, the addition of beta C), each half a unit of 2^-23.
void expect_product(const Problem& q, const GemmOptions& options) {
  SplitMix64 random(std::uint64_t(q.m * 1000003 + q.n * 1009 + q.k));
  Matrix a(q.ta ? q.k : q.m, q.ta ? q.m : q.k, q.pad, random),
      b(q.tb ? q.n : q.k, q.tb ? q.k : q.n, q.pad, random), c(q.m, q.n, q.pad, random);
  const std::vector<float> before = c.data;
  if (q.beta == 0)
    for (int64_t i = 0; i < q.m; ++i)
      for (int64_t j = 0; j < q.n; ++j) c.at(i, j) = kNan;
  gemm(Transpose(q.ta), Transpose(q.tb), q.m, q.n, q.k, q.alpha, a.data.data(), a.ld, b.data.data(), b.ld,
       q.beta, c.data.data(), c.ld, options);
  int wrong = 0;
  for (int64_t i = 0; i < q.m; ++i)
    for (int64_t j = 0; j < c.ld; ++j) {
      const float got = c.data[std::size_t(i * c.ld + j)], old = before[std::size_t(i * c.ld + j)];
      if (j >= q.n) {
        wrong += !std::isnan(got);
        continue;
      }
      double sum = 0, magnitude = 0;
      for (int64_t p = 0; p < q.k; ++p) {
        const double t = double(q.ta ? a.at(p, i) : a.at(i, p)) * double(q.tb ? b.at(j, p) : b.at(p, j));
        sum += t, magnitude += std::fabs(t);
      }
      const double extra = q.beta == 0 ? 0 : double(q.beta) * old, want = q.alpha * sum + extra;
      const double bound =
          double(q.k + 3) * 0x1p-24 * (std::fabs(double(q.alpha)) * magnitude + std::fabs(extra)) * 1.01;
      if (!(std::fabs(got - want) <= bound) && wrong++ < 3)
        ADD_FAILURE() << name(options.isa) << " " << q.m << "x" << q.n << "x" << q.k << " [" << i << "," << j
                      << "] is " << got << ", not " << want << " within " << bound;
    }
  EXPECT_EQ(wrong, 0);
}

TEST(gemm, every_edge_of_every_tile_and_transposes) {
  for (Isa isa : gemm_isas()) {
    const GemmTile t = gemm_tile(isa);
    for (int64_t m : {1, t.rows - 1, t.rows, t.rows + 1, 2 * t.rows + 5})
      for (int64_t n : {1, t.lanes + 1, t.columns - 1, t.columns, t.columns + 1})
        for (int64_t k : {1, 15, 16, 33})
          for (int turn = 0; turn < 4; ++turn)
            expect_product({m, n, k, bool(turn & 1), bool(turn & 2), 1.5f, turn % 2 ? 0.0f : -0.5f, turn},
                           {.isa = isa});
  }
}

TEST(gemm, blocks_meet_and_threads_share_them) {
  for (Isa isa : gemm_isas()) {
    const GemmTile t = gemm_tile(isa);
    for (int threads : {1, 3}) {
      GemmOptions o{.isa = isa, .threads = threads, .blocks = {2 * t.rows, 3 * t.columns, 72}};
      // more than 4 million operations for each of three threads
      expect_product({150, 211, 203, false, false, 1, 1, 3}, o);
      expect_product({150, 211, 203, true, true, -2, 0, 0}, o);
      o.blocks.k = 504;
      expect_product({9, 700, 1001, false, false, 1, 0.25f, 1}, o);  // few rows: B is read where it lies
    }
  }
}

TEST(gemm, as_the_program_would_call_it) {
  expect_product({257, 129, 300, false, true, 1, 0, 0}, {.threads = 0});
  expect_product({130, 260, 700, true, false, 1, 1, 5}, {});
}

TEST(gemm, threads_change_no_bit) {
  SplitMix64 random(5);
  const int64_t m = 211, n = 190, k = 400;
  Matrix a(m, k, 0, random), b(k, n, 0, random), one(m, n, 0, random), many = one;
  const auto run = [&](int threads, Matrix& c) {
    gemm(Transpose::no, Transpose::no, m, n, k, 1, a.data.data(), a.ld, b.data.data(), b.ld, 0, c.data.data(),
         c.ld, {.threads = threads});
  };
  run(1, one), run(3, many);
  one.data.pop_back(), many.data.pop_back();  // the last is NaN
  EXPECT_EQ(one.data, many.data);
}

TEST(gemm, empty_extents_alpha_and_beta_as_in_blas) {
  for (Isa isa : gemm_isas()) {
    std::vector<float> a{kNan}, b{kNan}, c{1, 2, kNan, 3, 4, kNan};
    const auto run = [&](int64_t m, int64_t n, int64_t k, float alpha, float beta) {
      gemm(Transpose::no, Transpose::no, m, n, k, alpha, a.data(), 1, b.data(), std::max<int64_t>(n, 1), beta,
           c.data(), 3, {.isa = isa});
    };
    run(0, 2, 1, 1, 0), run(2, 0, 1, 1, 0);
    EXPECT_EQ(c[0], 1);
    run(2, 2, 0, 1, 3);  // no steps: C is scaled
    EXPECT_EQ(c[0], 3);
    EXPECT_EQ(c[4], 12);
    a.resize(4, kNan), b.resize(4, kNan);
    gemm(Transpose::no, Transpose::no, 2, 2, 2, 0, a.data(), 2, b.data(), 2, 0.5f, c.data(), 3, {.isa = isa});
    EXPECT_EQ(c[0], 1.5f);  // alpha 0: NaN in A and B is not read
    c[1] = kNan;
    run(2, 2, 0, 1, 0);
    EXPECT_EQ(c[1], 0);  // beta 0: NaN in C is not read
    EXPECT_TRUE(std::isnan(c[2]));
  }
}

TEST(gemm, nan_and_infinity_reach_their_rows_and_columns_and_no_others) {
  for (Isa isa : gemm_isas()) {
    const int64_t m = 30, n = 70, k = 40;
    SplitMix64 random(9);
    Matrix a(m, k, 0, random), b(k, n, 0, random), c(m, n, 0, random);
    a.at(29, 39) = kNan, b.at(0, 69) = kInf;
    a.at(3, 0) = 0;  // 0 * infinity
    gemm(Transpose::no, Transpose::no, m, n, k, 1, a.data.data(), k, b.data.data(), n, 0, c.data.data(), n,
         {.isa = isa});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const bool nan = i == 29 || (i == 3 && j == 69), inf = !nan && j == 69;
        ASSERT_EQ(std::isnan(c.at(i, j)), nan) << i << " " << j;
        ASSERT_EQ(std::isinf(c.at(i, j)), inf) << i << " " << j;
      }
  }
}

TEST(gemm, what_cannot_be_is_an_argument_error) {
  std::vector<float> x(100);
  const auto run = [&](int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc,
                       const float* a) {
    gemm(Transpose::no, Transpose::no, m, n, k, 1, a, lda, x.data(), ldb, 0, x.data(), ldc);
  };
  EXPECT_THROW(run(-1, 2, 2, 2, 2, 2, x.data()), ArgumentError);
  EXPECT_THROW(run(2, 2, 3, 2, 2, 2, x.data()), ArgumentError);
  EXPECT_THROW(run(2, 3, 2, 2, 2, 3, x.data()), ArgumentError);
  EXPECT_THROW(run(2, 3, 2, 2, 3, 2, x.data()), ArgumentError);
  EXPECT_THROW(run(2, 2, 2, 2, 2, 2, nullptr), ArgumentError);
  EXPECT_THROW(run(int64_t(1) << 40, 2, 2, int64_t(1) << 40, 2, 2, x.data()), ArgumentError);
  EXPECT_THROW(gemm(Transpose::no, Transpose::no, 1, 1, 1, 1, x.data(), 1, x.data(), 1, 0, x.data(), 1,
                    {.threads = -2}),
               ArgumentError);
}

TEST(gemm, sums_and_operands_fit_the_registers) {
  for (Isa isa : gemm_isas()) {
    const GemmTile t = gemm_tile(isa);
    EXPECT_EQ(t.sums, t.rows * t.columns / t.lanes);
    EXPECT_LE(t.sums + t.operands, t.registers) << name(isa);
  }
}

}  // namespace
}  // namespace cgp::cpu
