// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/random.h"
#include "cgp/cpu/quant/gemv.h"

namespace cgp::cpu {
namespace {

using quant::kNf4;
using std::int64_t;
using Bytes = std::vector<std::byte>;

/// Random bits in every field but the scales, whose exponents are kept small and finite.
Bytes random_blocks(QuantType type, int64_t blocks, std::uint64_t seed) {
  const int64_t size = facts(type).bytes;
  Bytes out(std::size_t(blocks * size));
  SplitMix64 random(seed);
  for (auto& b : out) b = std::byte(random.next() & 255);
  const auto small = [&](int64_t at) {
    auto& high = out[std::size_t(at + 1)];
    high = (high & std::byte{0x83}) | std::byte{0x28};
  };
  for (int64_t i = 0; i < blocks; ++i) {
    if (type == QuantType::nf4) {
      const float absmax = float(random.uniform(0, 2));
      __builtin_memcpy(&out[std::size_t(i * size)], &absmax, 4);
    } else {
      small(i * size + (type == QuantType::q6_k ? 208 : 0));
      if (type <= QuantType::q5_k) small(i * size + 2);
    }
  }
  return out;
}

/// Element e of a block from the format's words, in double: value = step * code - base.
struct Element {
  double step, code, base;
  double value() const { return step * code - base; }
  double magnitude() const { return std::fabs(step * code) + std::fabs(base); }
};

Element element(QuantType type, const std::byte* block, int e) {
  const auto at = [&](int i) { return int(block[i]); };
  const auto f16 = [&](int i) { return decode_float(std::uint32_t(at(i) | at(i + 1) << 8), 5, 10); };
  const auto s8 = [&](int i) { return double(std::int8_t(at(i))); };
  switch (type) {
    case QuantType::q4_k:
    case QuantType::q5_k: {
      const int j = e / 32, l = e % 32, s = 4;
      const int scale = j < 4 ? at(s + j) & 63 : (at(s + j + 4) & 15) | (at(s + j - 4) >> 6) << 4;
      const int min = j < 4 ? at(s + j + 4) & 63 : at(s + j + 4) >> 4 | (at(s + j) >> 6) << 4;
      const bool five = type == QuantType::q5_k;
      const int byte = at((five ? 48 : 16) + j / 2 * 32 + l);
      const int high = five && (at(16 + l) & 1 << j) ? 16 : 0;
      return {f16(0) * scale, double((j % 2 ? byte >> 4 : byte & 15) + high), f16(2) * min};
    }
    case QuantType::q6_k: {
      const int half = e / 128, r = e % 128, l = r % 32;
      const int ql[] = {at(64 * half + l) & 15, at(64 * half + 32 + l) & 15, at(64 * half + l) >> 4,
                        at(64 * half + 32 + l) >> 4};
      const int high = at(128 + 32 * half + l) >> (r / 32 * 2) & 3;
      const double step = f16(208) * s8(192 + e / 16);
      return {step, double(ql[r / 32] + 16 * high), 32 * step};
    }
    case QuantType::q8_0:
      return {f16(0), s8(2 + e), 0};
    case QuantType::nf4: {
      float absmax;
      __builtin_memcpy(&absmax, block, 4);
      const int byte = at(4 + e / 2);
      return {absmax, kNf4[e % 2 ? byte & 15 : byte >> 4], 0};
    }
  }
  return {};
}

std::vector<float> values_of(QuantType type, const Bytes& blocks) {
  std::vector<float> out(blocks.size() / std::size_t(facts(type).bytes) * std::size_t(facts(type).elements));
  dequantize(type, blocks, out);
  return out;
}

TEST(quant, values_are_those_of_the_gguf_package) {
  // FNV-1a over the bits that gguf 0.19 (Python) makes of 8 such blocks, and a few of its values.
  struct Known {
    QuantType type;
    std::uint64_t hash;
    float first, last;
  };
  for (const Known& known : {Known{QuantType::q4_k, 0xdb80b17316be9b44ull, 0x1.01cec0p+3f, -0x1.4cbep+0f},
                             Known{QuantType::q5_k, 0x53a2aee46c76b00dull, 0x1.c74a60p+4f, 0x1.8c9b30p+5f},
                             Known{QuantType::q6_k, 0x1e95b8eef9da7b10ull, 0x1.1cb8c0p+4f, -0x1.2c1f90p+7f},
                             Known{QuantType::q8_0, 0x10923cf1a1a9d23bull, 0x1.c6f6p+1f, -0x1.64bbp+1f}}) {
    const auto v = values_of(known.type, random_blocks(known.type, 8, std::uint64_t(known.type) + 1));
    EXPECT_EQ(v[0], known.first);
    EXPECT_EQ(v[255], known.last);
    std::uint64_t hash = 1469598103934665603ull;
    for (float x : v)
      for (int k = 0; k < 32; k += 8)
        hash = (hash ^ (std::bit_cast<std::uint32_t>(x) >> k & 255)) * 1099511628211ull;
    EXPECT_EQ(hash, known.hash) << facts(known.type).name;
  }
}

TEST(quant, nf4_values_take_the_high_nibble_first) {
  Bytes b(36);
  const float two = 2;
  __builtin_memcpy(b.data(), &two, 4);
  b[4] = std::byte{0xf0}, b[5] = std::byte{0x78};
  const auto v = values_of(QuantType::nf4, b);
  EXPECT_EQ(v[0], 2.0f);
  EXPECT_EQ(v[1], -2.0f);
  EXPECT_EQ(v[2], 0.0f);
  EXPECT_EQ(v[3], 2 * 0.07958029955625534f);
}

TEST(quant, rounding_a_trip_stays_within_half_a_step_and_what_the_scales_lose) {
  SplitMix64 random(3);
  for (QuantType type : all_quant_types()) {
    const QuantFacts& f = facts(type);
    const int64_t n = 8 * 256;
    std::vector<float> x(std::size_t(n), 0.0f);
    for (int64_t i = 256; i < n; ++i)  // the first block is all zeros, the last all positive
      x[std::size_t(i)] = float(random.normal() * (i < 1024 ? 1 : 1e-3) + (i >= n - 256 ? 20 : 0));
    Bytes b(std::size_t(quantized_bytes(type, n)));
    quantize(type, x, b);
    const auto back = values_of(type, b);
    for (int64_t i = 0; i < n; ++i) {
      const std::byte* block = b.data() + i / f.elements * f.bytes;
      const Element e = element(type, block, int(i % f.elements));
      double bound = 0.5 * std::fabs(e.step);
      // the stored scale (6 or 8 bits of d) and min may fall short by half a unit: the ends are clamped
      if (type <= QuantType::q5_k) {
        const double d = decode_float(std::uint32_t(block[0]) | std::uint32_t(block[1]) << 8, 5, 10),
                     dmin = decode_float(std::uint32_t(block[2]) | std::uint32_t(block[3]) << 8, 5, 10);
        bound += 0.51 * d * (type == QuantType::q4_k ? 15 : 31) + 0.51 * dmin;
      } else if (type == QuantType::q6_k) {
        const double d = decode_float(std::uint32_t(block[208]) | std::uint32_t(block[209]) << 8, 5, 10);
        bound += 0.51 * d * 31;
      } else if (type == QuantType::q8_0) {
        // d itself is rounded to binary16, whose smallest step is 2^-24
        bound += 127 * std::max(std::fabs(e.step) * 0x1p-11, 0x1p-25);
      } else {
        bound = 0.5 * 0.304 * e.step;  // the widest gap between two values
      }
      ASSERT_NEAR(back[std::size_t(i)], x[std::size_t(i)], bound * 1.0001 + 1e-7) << f.name << " " << i;
    }
    for (int i = 0; i < 256; ++i) ASSERT_EQ(back[std::size_t(i)], 0) << f.name;
  }
}

struct Problem {
  QuantType type;
  int64_t m, n, k;
  Bytes w;
  std::vector<float> x;
  Problem(QuantType t, int64_t rows, int64_t vectors, int64_t cols, std::uint64_t seed)
      : type(t), m(rows), n(vectors), k(cols), w(random_blocks(t, rows * cols / facts(t).elements, seed)) {
    SplitMix64 random(seed + 100);
    x.resize(std::size_t(n * k));
    for (float& v : x) v = float(random.normal());
  }
  std::vector<float> run(const QuantGemvOptions& o) const {
    std::vector<float> y(std::size_t(m * n), std::numeric_limits<float>::quiet_NaN());  // poison
    quant_gemv(type, w, m, n, k, x, y, o);
    return y;
  }
  /// sum of w * v and of the magnitudes of its parts, in double
  std::pair<double, double> row(int64_t i, const double* v) const {
    const QuantFacts& f = facts(type);
    double sum = 0, magnitude = 0;
    for (int64_t e = 0; e < k; ++e) {
      const Element w1 = element(type, w.data() + (i * k + e) / f.elements * f.bytes, int(e % f.elements));
      sum += w1.value() * v[e], magnitude += w1.magnitude() * std::fabs(v[e]);
    }
    return {sum, magnitude};
  }
};

std::vector<Isa> quant_isas() {
  std::vector<Isa> out;
  for (Isa i : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni})
    if (has(i)) out.push_back(i);
  return out;
}

TEST(quant_gemv, floats_within_the_roundings_of_the_longest_sum) {
  for (QuantType type : all_quant_types())
    for (int64_t blocks : {0, 1, 2, 3, 7}) {
      const Problem p(type, 5, 2, blocks * (facts(type).elements), std::uint64_t(blocks) + 1);
      const std::vector<double> x(p.x.begin(), p.x.end());
      for (Isa isa : quant_isas()) {
        const auto y = p.run({.isa = isa});
        // a scalar sum has k terms; vectors keep at least 8 sums of 16 elements' products, then add those.
        // Both round scales and products a few times
        const double roundings = isa == Isa::scalar ? double(p.k) + 8 : double(p.k) / 8 + 24;
        for (int64_t i = 0; i < p.m; ++i)
          for (int64_t j = 0; j < p.n; ++j) {
            const auto [want, magnitude] = p.row(i, x.data() + j * p.k);
            ASSERT_NEAR(y[std::size_t(j * p.m + i)], want, roundings * 0x1p-24 * magnitude)
                << facts(type).name << " " << name(isa) << " " << blocks << " row " << i;
          }
      }
    }
}

TEST(quant_gemv, integers_give_the_same_bits_in_every_version_and_agree_with_double) {
  for (QuantType type : {QuantType::q4_k, QuantType::q5_k, QuantType::q6_k, QuantType::q8_0})
    for (int64_t blocks : {1, 2, 5}) {
      Problem p(type, 40, 1, blocks * 256, std::uint64_t(blocks) + 7);
      if (blocks == 2)  // the largest products: every code and every activation at its end
        for (std::size_t i = 0; i < p.x.size(); ++i) p.x[i] = 3;
      if (blocks == 2 && type != QuantType::q8_0)
        for (int64_t i = 0; i < p.m * blocks; i += 2)
          for (int64_t e = 4; e < facts(type).bytes - 2; ++e)
            p.w[std::size_t(i * facts(type).bytes + e)] = std::byte(i % 4 ? 0x80 : 0xff);
      const auto want = p.run({.isa = Isa::scalar, .activations = Activations::int8});
      for (Isa isa : quant_isas())
        EXPECT_EQ(p.run({.isa = isa, .activations = Activations::int8}), want)
            << facts(type).name << " " << name(isa) << " " << blocks;
      std::vector<double> x(p.x.size());
      if (type == QuantType::q8_0) {
        std::vector<BlockQ80> q(p.x.size() / 32);
        quantize_activations(p.x, q);
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = decode_float(q[i / 32].d, 5, 10) * q[i / 32].qs[i % 32];
      } else {
        std::vector<BlockQ8K> q(p.x.size() / 256);
        quantize_activations(p.x, q);
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = double(q[i / 256].d) * q[i / 256].qs[i % 256];
          // ggml's rule: the largest becomes -128, others are rounded
          ASSERT_LE(std::fabs(x[i] - p.x[i]), std::fabs(q[i / 256].d) * 1.0001);
        }
      }
      for (int64_t i = 0; i < p.m; ++i) {
        const auto [sum, magnitude] = p.row(i, x.data());
        ASSERT_NEAR(want[std::size_t(i)], sum, double(p.k / 32 + 8) * 0x1p-24 * magnitude)
            << facts(type).name;
      }
    }
}

TEST(quant_gemv, threads_change_no_bit_on_either_side_of_their_threshold) {
  for (QuantType type : all_quant_types()) {
    const int64_t k = 512, rows = 2 * kQuantWorkPerThread / k;
    for (int64_t m : {rows - 1, rows, rows + 1}) {
      const Problem p(type, m, 1, k, 11);
      EXPECT_EQ(p.run({.threads = 1}), p.run({.threads = 3}));
      EXPECT_EQ(p.run({.threads = 1}), p.run({.threads = 1}));  // and nothing depends on what memory held
    }
  }
}

TEST(quant_gemv, nan_and_infinity_show_with_floats_and_are_refused_for_integers) {
  for (QuantType type : all_quant_types())
    for (Isa isa : quant_isas())
      for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Problem p(type, 3, 1, 512, 13);
        p.x[300] = bad;
        for (float y : p.run({.isa = isa})) EXPECT_FALSE(std::isfinite(y));
        if (type == QuantType::nf4) continue;
        EXPECT_THROW(p.run({.isa = isa, .activations = Activations::int8}), ArgumentError);
        Bytes b(std::size_t(quantized_bytes(type, 512)));
        EXPECT_THROW(quantize(type, p.x, b), ArgumentError);
      }
}

TEST(quant_gemv, sizes_that_do_not_agree_are_argument_errors) {
  const Problem p(QuantType::q4_k, 4, 1, 512, 17);
  std::vector<float> y(4), small(3);
  const auto run = [&](int64_t m, int64_t k, std::span<const std::byte> w, std::span<float> to) {
    quant_gemv(QuantType::q4_k, w, m, 1, k,
               std::span(p.x).first(std::size_t(std::max<int64_t>(0, std::min(k, p.k)))), to);
  };
  EXPECT_NO_THROW(run(4, 512, p.w, y));
  EXPECT_THROW(run(4, 512, std::span(p.w).first(p.w.size() - 1), y), ArgumentError);  // truncated
  EXPECT_THROW(run(4, 512, p.w, small), ArgumentError);
  EXPECT_THROW(run(-4, 512, p.w, y), ArgumentError);
  try {
    run(4, 300, p.w, y);
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("256"), std::string::npos);
    EXPECT_NE(e.hint().find("512"), std::string::npos);
  }
  EXPECT_THROW(Problem(QuantType::nf4, 1, 1, 64, 1).run({.activations = Activations::int8}), Unsupported);
  EXPECT_THROW(p.run({.threads = -1}), ArgumentError);
}

}  // namespace
}  // namespace cgp::cpu
