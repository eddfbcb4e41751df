// SPDX-License-Identifier: Apache-2.0
// The oracle below is the model that was compared bit for bit with an H200, written on doubles and frexp,
// independent of the integer and vector code under test.
#include "cgp/emu/tensor/tensor_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cgp/base/float16.h"

namespace cgp::emu {
namespace {
using ptx::Mod;

struct Split {
  double m = 0;
  int e = 0;
  bool zero = true;
};
Split split(double x, int lowest) {
  if (x == 0) return {};
  int e = 0;
  double m = std::frexp(x, &e);
  m *= 2;
  --e;
  if (e < lowest) {
    m = std::ldexp(m, e - lowest);
    e = lowest;
  }
  return {m, e, false};
}

double fused(const std::vector<double>& a, const std::vector<double>& b, double c, int lowest, int f,
             int mantissa, bool f16 = false) {
  std::vector<Split> terms;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Split x = split(a[i], lowest), y = split(b[i], lowest);
    if (!x.zero && !y.zero) terms.push_back({x.m * y.m, x.e + y.e, false});
  }
  if (const Split s = split(c, -126); !s.zero) terms.push_back(s);
  if (terms.empty()) return 0;
  int top = -100000;
  for (const Split& t : terms) top = std::max(top, t.e);
  double sum = 0;
  for (const Split& t : terms) sum += std::trunc(std::ldexp(t.m, f + t.e - top));
  const double v = std::ldexp(sum, top - f);
  if (f16) return double(half(v));
  const Split s = split(v, -126);
  return s.zero ? 0 : std::ldexp(std::trunc(std::ldexp(s.m, mantissa)), s.e - mantissa);
}

struct Format {
  Mod type;
  int lowest;
  int k;
};
std::uint32_t encode(Mod t, double v) {
  switch (t) {
    case Mod::f16:
      return half(v).bits;
    case Mod::bf16:
      return bfloat16(v).bits;
    case Mod::tf32:
      return std::bit_cast<std::uint32_t>(float(v)) & 0xffffe000u;
    case Mod::e4m3:
      return float8_e4m3(v).bits;
    default:
      return float8_e5m2(v).bits;
  }
}
double decode(Mod t, std::uint32_t u) {
  switch (t) {
    case Mod::f16:
      return double(half::from_bits(std::uint16_t(u)));
    case Mod::bf16:
      return double(bfloat16::from_bits(std::uint16_t(u)));
    case Mod::tf32:
      return std::bit_cast<float>(u & 0xffffe000u);
    case Mod::e4m3:
      return double(float8_e4m3::from_bits(std::uint8_t(u)));
    default:
      return double(float8_e5m2::from_bits(std::uint8_t(u)));
  }
}

struct Problem {
  MatrixOperands m;
  std::vector<std::vector<double>> a, b;  // rows of A, columns of B
  std::vector<std::vector<float>> c;
};

Problem make(const Format& f, int rows, int columns, int spread, unsigned seed, bool f16_c = false) {
  Problem p;
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-spread, spread), coin(0, 15);
  const bool byte = f.type == Mod::e4m3 || f.type == Mod::e5m2;
  const auto draw = [&] {
    if (coin(rng) == 0) return 0.0;
    return normal(rng) * std::ldexp(1.0, byte ? exponent(rng) % 7 : exponent(rng));
  };
  p.m.resize(rows, columns, f.k);
  p.a.assign(std::size_t(rows), std::vector<double>(std::size_t(f.k)));
  p.b.assign(std::size_t(columns), std::vector<double>(std::size_t(f.k)));
  p.c.assign(std::size_t(rows), std::vector<float>(std::size_t(columns)));
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < f.k; ++k) {
      p.m.a_bits(r, k) = encode(f.type, draw());
      p.a[std::size_t(r)][std::size_t(k)] = decode(f.type, p.m.a_bits(r, k));
    }
  for (int n = 0; n < columns; ++n)
    for (int k = 0; k < f.k; ++k) {
      p.m.b_bits(k, n) = encode(f.type, draw());
      p.b[std::size_t(n)][std::size_t(k)] = decode(f.type, p.m.b_bits(k, n));
    }
  for (int r = 0; r < rows; ++r)
    for (int n = 0; n < columns; ++n) {
      float c = float(draw() * 4);
      if (f16_c) c = float(half(double(c)));
      p.c[std::size_t(r)][std::size_t(n)] = p.m.d(r, n) = c;
    }
  return p;
}

class BothVersions : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    MatrixCore::use_portable(GetParam());
    if (!GetParam() && MatrixCore::vector_code() != "avx512") GTEST_SKIP() << "no AVX-512 here";
  }
  void TearDown() override { MatrixCore::use_portable(false); }
};
INSTANTIATE_TEST_SUITE_P(Code, BothVersions, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "portable" : "avx512"; });

TEST_P(BothVersions, HopperSumsMatchTheMeasuredModel) {
  struct Case {
    MatrixUnit unit;
    Format f;
    int fraction, mantissa;
  };
  const Case cases[] = {
      {MatrixUnit::wgmma, {Mod::f16, -14, 16}, 25, 23},   {MatrixUnit::mma, {Mod::f16, -14, 16}, 25, 23},
      {MatrixUnit::wgmma, {Mod::bf16, -126, 16}, 25, 23}, {MatrixUnit::mma, {Mod::bf16, -126, 16}, 25, 23},
      {MatrixUnit::wgmma, {Mod::tf32, -126, 8}, 25, 23},  {MatrixUnit::mma, {Mod::tf32, -126, 8}, 25, 23},
      {MatrixUnit::wgmma, {Mod::e4m3, -6, 32}, 13, 13},   {MatrixUnit::wgmma, {Mod::e5m2, -14, 32}, 13, 13}};
  for (const Case& c : cases) {
    // 120 drives bf16 and tf32 products out of f32's range: the term-by-term path.
    for (int spread : {0, 6, c.f.type == Mod::bf16 || c.f.type == Mod::tf32 ? 60 : 12}) {
      Problem p = make(c.f, 24, 40, spread, unsigned(spread) + 1);
      const FusedRule rule = fused_rule(c.unit, c.f.type, Generation::hopper, false);
      MatrixCore::multiply(p.m, c.f.type, c.f.type, rule, MatrixPrecision::exact);
      for (int r = 0; r < 24; ++r)
        for (int n = 0; n < 40; ++n)
          ASSERT_EQ(p.m.d(r, n),
                    float(fused(p.a[std::size_t(r)], p.b[std::size_t(n)], p.c[std::size_t(r)][std::size_t(n)],
                                c.f.lowest, c.fraction, c.mantissa)))
              << ptx::name(c.f.type) << " spread " << spread << " row " << r << " column " << n;
    }
  }
}

TEST_P(BothVersions, FarExponentsTakeTheTermByTermPath) {
  for (int shift : {-118, -70, 61, 63}) {
    Problem p = make({Mod::bf16, -126, 16}, 8, 16, 0, 5);
    for (int r = 0; r < 8; ++r)
      for (int k = 0; k < 16; ++k) {
        p.a[std::size_t(r)][std::size_t(k)] *= std::ldexp(1.0, shift);
        p.m.a_bits(r, k) = encode(Mod::bf16, p.a[std::size_t(r)][std::size_t(k)]);
        p.a[std::size_t(r)][std::size_t(k)] = decode(Mod::bf16, p.m.a_bits(r, k));
      }
    for (int n = 0; n < 16; ++n)
      for (int k = 0; k < 16; ++k) {
        p.b[std::size_t(n)][std::size_t(k)] *= std::ldexp(1.0, shift > 0 ? shift - 2 : shift / 4);
        p.m.b_bits(k, n) = encode(Mod::bf16, p.b[std::size_t(n)][std::size_t(k)]);
        p.b[std::size_t(n)][std::size_t(k)] = decode(Mod::bf16, p.m.b_bits(k, n));
      }
    MatrixCore::multiply(p.m, Mod::bf16, Mod::bf16,
                         fused_rule(MatrixUnit::wgmma, Mod::bf16, Generation::hopper, false),
                         MatrixPrecision::exact);
    for (int r = 0; r < 8; ++r)
      for (int n = 0; n < 16; ++n) {
        const double want = fused(p.a[std::size_t(r)], p.b[std::size_t(n)],
                                  p.c[std::size_t(r)][std::size_t(n)], -126, 25, 23);
        ASSERT_EQ(p.m.d(r, n),
                  std::fabs(want) < 0x1p128 ? float(want) : std::copysign(INFINITY, float(want > 0 ? 1 : -1)))
            << shift << " " << r << " " << n;
      }
  }
}

TEST_P(BothVersions, AmpereChainsTwoHalves) {
  for (Format f : {Format{Mod::f16, -14, 16}, Format{Mod::bf16, -126, 16}, Format{Mod::tf32, -126, 8}}) {
    Problem p = make(f, 16, 8, 5, 3);
    MatrixCore::multiply(p.m, f.type, f.type, fused_rule(MatrixUnit::mma, f.type, Generation::ampere, false),
                         MatrixPrecision::exact);
    const std::ptrdiff_t h = f.k / 2;
    for (std::size_t r = 0; r < 16; ++r)
      for (std::size_t n = 0; n < 8; ++n) {
        const std::vector<double>&a = p.a[r], &b = p.b[n];
        const double first =
            fused({a.begin(), a.begin() + h}, {b.begin(), b.begin() + h}, p.c[r][n], f.lowest, 24, 23);
        ASSERT_EQ(p.m.d(int(r), int(n)),
                  float(fused({a.begin() + h, a.end()}, {b.begin() + h, b.end()}, first, f.lowest, 24, 23)));
      }
  }
}

TEST_P(BothVersions, HopperMmaWidensEightBitFloats) {
  Problem p = make({Mod::e4m3, -6, 32}, 16, 8, 5, 4);
  MatrixCore::multiply(p.m, Mod::e4m3, Mod::e4m3,
                       fused_rule(MatrixUnit::mma, Mod::e4m3, Generation::hopper, false),
                       MatrixPrecision::exact);
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t n = 0; n < 8; ++n) {
      double t = 0;
      for (std::size_t h : {0u, 2u}) {
        std::vector<double> a, b;
        for (std::size_t q = 0; q < 8; ++q)
          for (std::size_t i : {0u, 1u}) {
            a.push_back(p.a[r][4 * q + h + i]);
            b.push_back(p.b[n][4 * q + h + i]);
          }
        t = fused(a, b, t, -6, 25, 23);
      }
      ASSERT_EQ(p.m.d(int(r), int(n)), p.c[r][n] + float(t));
    }
}

TEST_P(BothVersions, HalfAccumulatorsRoundToNearest) {
  Problem p = make({Mod::f16, -14, 16}, 16, 24, 3, 9, true);
  MatrixCore::multiply(p.m, Mod::f16, Mod::f16,
                       fused_rule(MatrixUnit::mma, Mod::f16, Generation::hopper, true),
                       MatrixPrecision::exact);
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t n = 0; n < 24; ++n)
      ASSERT_EQ(p.m.d(int(r), int(n)), float(fused(p.a[r], p.b[n], p.c[r][n], -14, 25, 23, true)));
}

TEST_P(BothVersions, InfinitiesAndNaN) {
  MatrixOperands m;
  m.resize(6, 16, 16);
  const float inf = INFINITY;
  for (int k = 0; k < 16; ++k)
    for (int i = 0; i < 16; ++i) {
      if (i < 6) m.a_bits(i, k) = half(1.0).bits;
      m.b_bits(k, i) = half(k == 3 && i == 1 ? 0.0 : 2.0).bits;
    }
  for (int i = 0; i < 6; ++i)
    for (int n = 0; n < 16; ++n) m.d(i, n) = 1;
  m.a_bits(0, 3) = 0x7c00;  // inf * 2 = inf; inf * 0 = NaN in column 1
  m.a_bits(1, 3) = 0x7e00;  // NaN
  m.a_bits(2, 3) = 0xfc00;  // -inf
  m.d(2, 5) = inf;          // -inf + inf
  m.d(3, 0) = -inf;
  m.a_bits(4, 0) = 0x7c00, m.a_bits(4, 1) = 0xfc00;
  MatrixCore::multiply(m, Mod::f16, Mod::f16,
                       fused_rule(MatrixUnit::mma, Mod::f16, Generation::hopper, false),
                       MatrixPrecision::exact);
  const auto bits = [&](int r, int n) { return std::bit_cast<std::uint32_t>(m.d(r, n)); };
  EXPECT_EQ(m.d(0, 0), inf);
  EXPECT_EQ(bits(0, 1), 0x7fffffffu);
  EXPECT_EQ(bits(1, 0), 0x7fffffffu);
  EXPECT_EQ(m.d(2, 0), -inf);
  EXPECT_EQ(bits(2, 5), 0x7fffffffu);
  EXPECT_EQ(m.d(3, 0), -inf);
  EXPECT_EQ(m.d(3, 1), 31.0f);
  EXPECT_EQ(bits(4, 0), 0x7fffffffu);
  EXPECT_EQ(m.d(5, 0), 33.0f);
}

TEST_P(BothVersions, IntegersAndBits) {
  MatrixOperands m;
  m.resize(16, 8, 32);
  std::mt19937 rng(1);
  std::vector<int> a(16 * 32), b(32 * 8), c(16 * 8);
  for (auto& x : a) x = int(rng() % 256) - 128;
  for (auto& x : b) x = int(rng() % 256);
  for (auto& x : c) x = int(rng());
  const auto fill = [&] {
    for (int r = 0; r < 16; ++r)
      for (int k = 0; k < 32; ++k) m.a_bits(r, k) = std::uint32_t(a[std::size_t(r * 32 + k)]) & 0xff;
    for (int k = 0; k < 32; ++k)
      for (int n = 0; n < 8; ++n) m.b_bits(k, n) = std::uint32_t(b[std::size_t(k * 8 + n)]);
    for (int r = 0; r < 16; ++r)
      for (int n = 0; n < 8; ++n) m.d_int(r, n) = c[std::size_t(r * 8 + n)];
  };
  for (bool saturate : {false, true}) {
    fill();
    MatrixCore::multiply_int(m, Mod::s8, Mod::u8, saturate);
    for (int r = 0; r < 16; ++r)
      for (int n = 0; n < 8; ++n) {
        long long s = c[std::size_t(r * 8 + n)];
        for (int k = 0; k < 32; ++k) s += a[std::size_t(r * 32 + k)] * b[std::size_t(k * 8 + n)];
        const long long want = saturate ? std::min<long long>(std::max<long long>(s, INT32_MIN), INT32_MAX)
                                        : std::int32_t(std::uint32_t(s));
        ASSERT_EQ(m.d_int(r, n), want);
      }
  }
  fill();
  MatrixCore::multiply_int(m, Mod::s4, Mod::u4, false);
  long long s = c[0];
  for (std::size_t k = 0; k < 32; ++k) {
    const int x = a[k] & 15;
    s += (x > 7 ? x - 16 : x) * (b[k * 8] & 15);
  }
  EXPECT_EQ(m.d_int(0, 0), std::int32_t(std::uint32_t(s)));
  m.resize(8, 8, 4);
  m.a_bits(0, 0) = 0xff00ff00u, m.b_bits(0, 0) = 0x0ff00ff0u;
  for (int k = 1; k < 4; ++k) m.a_bits(0, k) = m.b_bits(k, 0) = 0;
  m.d_int(0, 0) = 3;
  MatrixCore::multiply_bits(m, BitOperation::and_popc);
  EXPECT_EQ(m.d_int(0, 0), 3 + 8);
  m.d_int(0, 0) = 3;
  MatrixCore::multiply_bits(m, BitOperation::xor_popc);
  EXPECT_EQ(m.d_int(0, 0), 3 + 16);
}

TEST_P(BothVersions, DyadicDataIsExactInEveryMode) {
  for (MatrixPrecision precision : {MatrixPrecision::exact, MatrixPrecision::f32}) {
    MatrixOperands m;
    m.resize(64, 256, 16);
    std::mt19937 rng(2);
    std::vector<double> a(64 * 16), b(16 * 256);
    for (auto& x : a) x = (int(rng() % 33) - 16) / 8.0;
    for (auto& x : b) x = (int(rng() % 33) - 16) / 8.0;
    for (int r = 0; r < 64; ++r)
      for (int k = 0; k < 16; ++k) m.a_bits(r, k) = bfloat16(a[std::size_t(r * 16 + k)]).bits;
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 256; ++n) m.b_bits(k, n) = bfloat16(b[std::size_t(k * 256 + n)]).bits;
    for (int r = 0; r < 64; ++r)
      for (int n = 0; n < 256; ++n) m.d(r, n) = float(r - n);
    MatrixCore::multiply(m, Mod::bf16, Mod::bf16,
                         fused_rule(MatrixUnit::wgmma, Mod::bf16, Generation::hopper, false), precision, -1,
                         1);
    for (int r = 0; r < 64; ++r)
      for (int n = 0; n < 256; ++n) {
        double s = r - n;
        for (int k = 0; k < 16; ++k) s -= a[std::size_t(r * 16 + k)] * b[std::size_t(k * 256 + n)];
        ASSERT_EQ(m.d(r, n), float(s));
      }
  }
}

TEST(FusedRule, GenerationsDiffer) {
  EXPECT_EQ(generation_of("sm_75"), Generation::turing);
  EXPECT_EQ(generation_of("sm_86"), Generation::ampere);
  EXPECT_EQ(generation_of("sm_89"), Generation::ada);
  EXPECT_EQ(generation_of("sm_90a"), Generation::hopper);
  EXPECT_EQ(generation_of("sm_120a"), Generation::blackwell);
  EXPECT_EQ(fused_rule(MatrixUnit::mma, Mod::e4m3, Generation::ada, false).fraction_bits, 13);
  EXPECT_EQ(fused_rule(MatrixUnit::mma, Mod::e4m3, Generation::blackwell, false).fraction_bits, 25);
  EXPECT_TRUE(fused_rule(MatrixUnit::mma, Mod::e4m3, Generation::hopper, false).widened_fp8);
  EXPECT_THROW(fused_rule(MatrixUnit::mma, Mod::s8, Generation::hopper, false), Unsupported);
}

}  // namespace
}  // namespace cgp::emu
