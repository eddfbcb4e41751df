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
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::cpu {
namespace {

using quant_versions::kGroup, quant_versions::kPanelRows, quant_versions::kRowStride,
    quant_versions::kSumStride;
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
  void load(const float* p, int64_t stride) {
    for (int m = 0; m < 16; ++m)
      std::memcpy(sums[i][j][m], reinterpret_cast<const char*>(p) + m * stride, 64);
  }
  void prefetch(const void*) {}
  template <int i, int j>
  void store(float* p, int64_t stride) {
    for (int m = 0; m < 16; ++m) std::memcpy(reinterpret_cast<char*>(p) + m * stride, sums[i][j][m], 64);
  }
};

struct Problem {
  int64_t depth, rows, n, group;
  std::vector<std::uint16_t> w;       ///< of each panel: kPanelRows rows kRowStride apart
  std::vector<std::uint16_t> x;       ///< groups of vectors, zeros behind n
  std::vector<std::uint32_t> panels;  ///< one after the other
  Problem(int64_t d, int64_t r, int64_t vectors) : depth(d), rows(r), n(vectors), group(kGroup * (d + 32)) {
    SplitMix64 random(std::uint64_t(d + r + n));
    const int64_t all_rows = (rows + kPanelRows - 1) / kPanelRows * kPanelRows;
    w.resize(std::size_t(all_rows * kRowStride)), x.resize(std::size_t((n + 31) / 32 * 2 * group));
    for (auto& v : w) v = bfloat16(double(random.normal())).bits;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t e = 0; e < depth; ++e) x[place(j, e)] = bfloat16(double(random.normal())).bits;
    panels.resize(std::size_t(depth / 2 * all_rows));
    for (int64_t i = 0; i < all_rows; ++i)
      for (int64_t p = 0; p < depth / 2; ++p)
        panels[std::size_t(i / kPanelRows * kPanelRows * (depth / 2) + kPanelRows * p + i % kPanelRows)] =
            weight(i, 2 * p) | std::uint32_t(weight(i, 2 * p + 1)) << 16;
  }
  std::uint16_t weight(int64_t row, int64_t e) const { return w[std::size_t(row * kRowStride + e)]; }
  std::size_t place(int64_t j, int64_t e) const {
    return std::size_t(j / kGroup * group + e / 32 * 32 * kGroup + j % kGroup * 32 + e % 32);
  }
  int64_t count() const { return (rows + kPanelRows - 1) / kPanelRows; }
  /// Runs product(sums, add) twice, the second time on top of the first, and compares.
  template <class F>
  void check(const F& product) const {
    std::vector<float> y(std::size_t((n + 31) / 32 * 32 * kSumStride), 9.0f);
    product(y.data(), false);
    product(y.data(), true);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < kSumStride; ++i) {
        double sum = 0, magnitude = 0;
        for (int64_t e = 0; e < depth && i < rows; ++e) {
          const double a = float(bfloat16::from_bits(weight(i, e))),
                       b = float(bfloat16::from_bits(x[place(j, e)]));
          sum += a * b, magnitude += std::fabs(a * b);
        }
        const float got = y[std::size_t(j * kSumStride + i)];
        if (i < rows) {
          ASSERT_NEAR(got, 2 * sum, 2 * double(depth) * 0x1p-24 * magnitude) << i << " " << j;
        } else if (i >= count() * kPanelRows) {
          ASSERT_EQ(got, 9.0f);  // what is no panel is not written
        }
      }
  }
};

TEST(panel, tiles_take_it_in_the_order_of_the_product) {
  for (auto [d, r, n] : {std::tuple<int64_t, int64_t, int64_t>{32, 32, 32},
                         {64, 1, 1},
                         {96, 17, 16},
                         {32, 31, 17},
                         {64, 16, 50},
                         {64, 100, 50}}) {
    const Problem p(d, r, n);
    PlainTiles tiles;
    p.check([&](float* sums, bool add) {
      product_of_tiles(tiles, p.panels.data(), d, p.count(), p.x.data(), p.group, n, sums, add);
    });
  }
}

#if defined(__x86_64__)
TEST(panel, packing_and_products_of_this_processor) {
  if (!has(Isa::avx512_bf16)) GTEST_SKIP() << "this processor has no AVX-512 BF16";
  for (auto [d, r, n] : {std::tuple<int64_t, int64_t, int64_t>{32, 32, 12},
                         {512, 31, 17},
                         {64, 5, 1},
                         {96, 16, 40},
                         {64, 256, 70},
                         {32, 70, 31}}) {
    const Problem p(d, r, n);
    std::vector<std::uint32_t> panels(p.panels.size());
    for (int64_t i = 0; i < r; i += kPanelRows)
      quant_versions::pack_panel_avx512(p.w.data() + i * kRowStride, d, panels.data() + i * (d / 2));
    EXPECT_EQ(panels, p.panels);
    for (auto [isa, product] : {std::pair{Isa::avx512_bf16, &quant_versions::panel_product_avx512},
                                {Isa::amx, &quant_versions::panel_product_amx}})
      if (has(isa))
        p.check([&, product = product](float* sums, bool add) {
          product(panels.data(), d, p.count(), p.x.data(), p.group, n, sums, add);
        });
  }
}

TEST(panel, weights_become_what_their_floats_are_rounded_to) {
  if (!has(Isa::avx512_bf16)) GTEST_SKIP() << "this processor has no AVX-512 BF16";
  int formats = 0;
  for (int f = 0; f < quant_versions::kFormats; ++f) {
    const auto direct = quant_versions::decode_bf16_avx512.by[f];
    if (!direct) continue;
    ++formats;
    const auto format = quant::Format(f);
    for (int64_t k : {256, 768, 544}) {
      if (k % int64_t(quant::info(format).elements)) continue;
      SplitMix64 random{std::uint64_t(f)};
      std::vector<float> x(static_cast<std::size_t>(k));
      for (auto& v : x) v = float(random.normal());
      std::vector<std::byte> blocks(std::size_t(quant::bytes_of(format, std::uint64_t(k))));
      if (quant::info(format).encodes) {
        quant::encode(format, x, blocks);
      } else {  // any bits but those of the scales are weights
        for (auto& b : blocks) b = std::byte(random.next() & 0x3f);
      }
      std::vector<float> decoded(x.size());
      quant::decode(format, blocks, decoded);
      std::vector<std::uint16_t> want(x.size()), want_rest(x.size()), got(x.size()), rest(x.size());
      quant_versions::round_to_bf16_avx512(decoded.data(), k, k, want.data(), want_rest.data(), 32);
      const auto* row = reinterpret_cast<const std::uint8_t*>(blocks.data());
      direct(row, k, got.data(), rest.data());
      EXPECT_EQ(got, want) << quant::info(format).name << " " << k;
      EXPECT_EQ(rest, want_rest) << quant::info(format).name << " " << k;
      std::fill(got.begin(), got.end(), 0);
      direct(row, k, got.data(), nullptr);
      EXPECT_EQ(got, want) << quant::info(format).name << " " << k;
    }
  }
  EXPECT_GE(formats, 16);
}

TEST(panel, floats_are_rounded_to_the_nearest_bf16) {
  if (!has(Isa::avx512_bf16)) GTEST_SKIP() << "this processor has no AVX-512 BF16";
  std::vector<float> x{0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4e38f, -INFINITY, 0.5f};
  SplitMix64 random(1);
  while (x.size() < 99) x.push_back(float(random.normal()));
  std::vector<std::uint16_t> y(4 * 40, 7), rest(4 * 40, 7);
  quant_versions::round_to_bf16_avx512(x.data(), 99, 128, y.data(), rest.data(), 40);
  const auto wide = [](std::uint16_t bits) { return float(bfloat16::from_bits(bits)); };
  for (std::size_t i = 0; i < 160; ++i) {  // 32 values, 8 that are left alone, and so on
    const std::size_t e = i / 40 * 32 + i % 40;
    EXPECT_EQ(y[i], i % 40 >= 32 ? 7 : e >= 99 ? 0 : bfloat16(double(x[e])).bits) << i;
    if (i % 40 < 32 && e < 99 && std::isfinite(wide(y[i]))) {
      EXPECT_EQ(rest[i], bfloat16(double(x[e]) - double(wide(y[i]))).bits) << i;
    }
  }
  x[3] = std::nanf(""), x[4] = 1e-40f;
  quant_versions::round_to_bf16_avx512(x.data(), 99, 128, y.data(), nullptr, 40);
  EXPECT_TRUE(std::isnan(wide(y[3])));
  EXPECT_EQ(y[4], 0);
}
#endif

}  // namespace
}  // namespace cgp::cpu
