// SPDX-License-Identifier: Apache-2.0
// The panels of products with many vectors, and the order in which tiles take them, without AMX.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "cgp/base/float16.h"
#include "cgp/base/random.h"
#include "cgp/cpu/dispatch.h"
#include "cgp/cpu/quant/panel_tiles_impl.h"

namespace cgp::cpu {
namespace {

using quant_versions::kPanelRows, quant_versions::kRowStride;
using std::int64_t;

/// What the instructions do, by the Intel SDM (TILELOADD, TDPBF16PS, TILESTORED), with tiles of 16 rows of 64 bytes.
struct PlainTiles {
  std::uint16_t vectors[2][16][32], weights[2][16][32];
  float sums[2][2][16][16];
  void zero() { std::memset(sums, 0, sizeof sums); }
  static void load(std::uint16_t (&tile)[16][32], const void* p, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(tile[r], static_cast<const char*>(p) + r * stride, 64);
  }
  template <int i>
  void load_vectors(const void* p, int64_t stride) {
    load(vectors[i], p, stride);
  }
  template <int i>
  void load_weights(const void* p, int64_t stride) {
    load(weights[i], p, stride);
  }
  template <int i, int j>
  void multiply() {
    const auto wide = [](std::uint16_t bits) { return float(bfloat16::from_bits(bits)); };
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 16; ++n)
          for (int h = 0; h < 2; ++h)
            sums[i][j][m][n] += wide(vectors[i][m][2 * k + h]) * wide(weights[j][k][2 * n + h]);
  }
  template <int i, int j>
  void store(float* p, int64_t stride) {
    for (int m = 0; m < 16; ++m) std::memcpy(reinterpret_cast<char*>(p) + m * stride, sums[i][j][m], 64);
  }
};

struct Problem {
  int64_t depth, rows, n, ldx;
  std::vector<std::uint16_t> w,
      x;  ///< kPanelRows rows kRowStride apart; a multiple of 32 vectors, zeros behind n
  std::vector<std::uint32_t> panel;
  Problem(int64_t d, int64_t r, int64_t vectors) : depth(d), rows(r), n(vectors), ldx(d + 32) {
    SplitMix64 random(std::uint64_t(d + r + n));
    w.resize(std::size_t(kPanelRows * kRowStride)), x.resize(std::size_t((n + 31) / 32 * 32 * ldx));
    for (auto& v : w) v = bfloat16(double(random.normal())).bits;
    for (int64_t i = 0; i < n * ldx; ++i) x[std::size_t(i)] = bfloat16(double(random.normal())).bits;
    panel.resize(std::size_t(depth / 2 * kPanelRows));
    for (int64_t p = 0; p < depth / 2; ++p)
      for (int64_t i = 0; i < kPanelRows; ++i)
        panel[std::size_t(kPanelRows * p + i)] =
            w[std::size_t(i * kRowStride + 2 * p)] | std::uint32_t(w[std::size_t(i * kRowStride + 2 * p + 1)])
                                                         << 16;
  }
  /// Runs product(y, ldy, add) twice, the second time on top of the first, and compares.
  template <class F>
  void check(const F& product) const {
    const int64_t ldy = rows + 3;
    std::vector<float> y(std::size_t(n * ldy), 9.0f);
    product(y.data(), ldy, false);
    product(y.data(), ldy, true);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < ldy; ++i) {
        double sum = 0, magnitude = 0;
        for (int64_t e = 0; e < depth; ++e) {
          const double a = float(bfloat16::from_bits(w[std::size_t(i % kPanelRows * kRowStride + e)])),
                       b = float(bfloat16::from_bits(x[std::size_t(j * ldx + e)]));
          sum += a * b, magnitude += std::fabs(a * b);
        }
        if (i < rows)
          ASSERT_NEAR(y[std::size_t(j * ldy + i)], 2 * sum, 2 * double(depth) * 0x1p-24 * magnitude)
              << i << " " << j;
        else
          ASSERT_EQ(y[std::size_t(j * ldy + i)], 9.0f);  // what is not a row is not written
      }
  }
};

TEST(panel, tiles_take_it_in_the_order_of_the_product) {
  for (auto [d, r, n] : {std::tuple<int64_t, int64_t, int64_t>{32, 32, 32},
                         {64, 1, 1},
                         {96, 17, 16},
                         {32, 31, 17},
                         {64, 16, 50}}) {
    const Problem p(d, r, n);
    PlainTiles tiles;
    p.check([&](float* y, int64_t ldy, bool add) {
      product_of_tiles(tiles, p.panel.data(), d, r, p.x.data(), p.ldx, n, y, ldy, add);
    });
  }
}

#if defined(__x86_64__)
TEST(panel, packing_and_products_of_this_processor) {
  if (!has(Isa::avx512_bf16)) GTEST_SKIP() << "this processor has no AVX-512 BF16";
  for (auto [d, r, n] :
       {std::tuple<int64_t, int64_t, int64_t>{32, 32, 12}, {1024, 31, 17}, {64, 5, 1}, {96, 16, 40}}) {
    const Problem p(d, r, n);
    std::vector<std::uint32_t> panel(p.panel.size());
    quant_versions::pack_panel_avx512(p.w.data(), d, panel.data());
    EXPECT_EQ(panel, p.panel);
    for (auto [isa, product] : {std::pair{Isa::avx512_bf16, &quant_versions::panel_product_avx512},
                                {Isa::amx, &quant_versions::panel_product_amx}})
      if (has(isa))
        p.check([&, product = product](float* y, int64_t ldy, bool add) {
          product(panel.data(), d, r, p.x.data(), p.ldx, n, y, ldy, add);
        });
  }
}

TEST(panel, floats_are_rounded_to_the_nearest_bf16) {
  if (!has(Isa::avx512_bf16)) GTEST_SKIP() << "this processor has no AVX-512 BF16";
  std::vector<float> x{0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4e38f, -INFINITY, 1e-40f};
  SplitMix64 random(1);
  while (x.size() < 99) x.push_back(float(random.normal()));
  std::vector<std::uint16_t> y(112, 7);
  quant_versions::round_to_bf16_avx512(x.data(), 99, 112, y.data());
  for (std::size_t i = 0; i < 99; ++i) EXPECT_EQ(y[i], bfloat16(double(x[i])).bits) << x[i];
  for (std::size_t i = 99; i < 112; ++i) EXPECT_EQ(y[i], 0);
  x[3] = std::nanf("");
  quant_versions::round_to_bf16_avx512(x.data(), 99, 112, y.data());
  EXPECT_TRUE(std::isnan(float(bfloat16::from_bits(y[3]))));
}
#endif

}  // namespace
}  // namespace cgp::cpu
