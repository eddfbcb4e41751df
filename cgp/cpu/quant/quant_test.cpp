// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/random.h"
#include "cgp/cpu/quant/matmul.h"
#include "cgp/cpu/quant/packed.h"
#include "cgp/quant/decode.h"

namespace cgp::cpu {
namespace {

using quant::Format;
using std::int64_t;
using Bytes = std::vector<std::byte>;

/// Random bits in every field but the scales, which are kept small and finite.
Bytes random_blocks(Format f, int64_t blocks, std::uint64_t seed) {
  const auto size = std::size_t(quant::info(f).bytes);
  Bytes out(std::size_t(blocks) * size);
  SplitMix64 random(seed);
  for (auto& b : out) b = std::byte(random.next() & 255);
  for (std::byte* at = out.data(); at != out.data() + out.size(); at += size) {
    const auto halves = [&](std::initializer_list<int> offsets) {
      for (int o : offsets) at[o + 1] = (at[o + 1] & std::byte{0x83}) | std::byte{0x28};
    };
    const auto store = [&](auto value) { std::memcpy(at, &value, sizeof value); };
    switch (f) {
      case Format::f32:
        store(float(random.normal()));
        break;
      case Format::f16:
        store(half(random.normal()).bits);
        break;
      case Format::bf16:
        store(bfloat16(random.normal()).bits);
        break;
      case Format::nf4:
      case Format::q8_k:
        store(float(random.uniform(0, 2)));
        break;
      case Format::mxfp4:
        at[0] = std::byte(random.next() % 16 ? 120 + random.next() % 12 : random.next() % 3);
        break;
      case Format::nvfp4:
        for (int i = 0; i < 4; ++i) at[i] = std::byte(random.next() % 80);
        break;
      case Format::q2_k:
        halves({80, 82});
        break;
      case Format::q3_k:
        halves({108});
        break;
      case Format::q6_k:
        halves({208});
        break;
      case Format::tq1_0:
        halves({52});
        break;
      case Format::tq2_0:
        halves({64});
        break;
      case Format::iq1_m:
        at[55] = (at[55] & std::byte{0x0f}) | std::byte{0x20};
        break;
      case Format::q4_1:
      case Format::q5_1:
      case Format::q4_k:
      case Format::q5_k:
        halves({0, 2});
        break;
      default:
        halves({0});
    }
  }
  return out;
}

std::vector<float> decoded(Format f, std::span<const std::byte> blocks) {
  std::vector<float> out(blocks.size() / quant::info(f).bytes * quant::info(f).elements);
  quant::decode(f, blocks, out);
  return out;
}

std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa i : all_isas())
    if (has(i)) out.push_back(i);
  return out;
}

std::vector<Format> formats() {
  std::vector<Format> out;
  for (const auto& i : quant::all_formats()) out.push_back(i.format);
  return out;
}

/// Rows of k = blocks * block elements, at an odd address; normal activations.
struct Problem {
  Format f;
  int64_t m, n, k;
  Bytes memory;
  std::vector<float> w, x;
  Problem(Format format, int64_t rows, int64_t vectors, int64_t cols, std::uint64_t seed)
      : f(format), m(rows), n(vectors), k(cols) {
    const Bytes blocks = random_blocks(f, m * k / int64_t(quant::info(f).elements), seed);
    w = decoded(f, blocks);
    memory.assign(1, std::byte{});
    memory.insert(memory.end(), blocks.begin(), blocks.end());
    SplitMix64 random(seed + 100);
    x.resize(std::size_t(n * k));
    for (float& v : x) v = float(random.normal());
  }
  std::span<const std::byte> weights() const { return std::span(memory).subspan(1); }
  std::vector<float> run(const QuantOptions& o) const {
    std::vector<float> y(std::size_t(m * n), std::numeric_limits<float>::quiet_NaN());  // poison
    quant_matmul(f, weights(), m, n, k, x, y, o);
    return y;
  }
  /// Of row i and vector j, in double: the sum, the sum of magnitudes (of codes and minimums apart: at most 6 times the
  /// largest weight of 16), and what rounding each run of 32 activations to 255 steps can change.
  struct Sums {
    double value = 0, product = 0, magnitude = 0, step = 0;
  };
  const Sums& sums(int64_t i, int64_t j) const {
    if (oracle.empty())
      for (int64_t v = 0; v < n; ++v)
        for (int64_t r = 0; r < m; ++r) oracle.push_back(sums_of(r, v));
    return oracle[std::size_t(j * m + i)];
  }

 private:
  mutable std::vector<Sums> oracle;  ///< of x as it is when first asked for
  Sums sums_of(int64_t i, int64_t j) const {
    Sums out;
    for (int64_t first = 0; first < k; first += 32) {
      double heaviest = 0, largest = 0, weight = 0, activation = 0;
      for (int64_t e = first; e < std::min(first + 32, k); ++e) {
        const double a = w[std::size_t(i * k + e)], b = x[std::size_t(j * k + e)];
        out.value += a * b, out.product += std::fabs(a * b);
        heaviest = std::max(heaviest, std::fabs(a)), weight += std::fabs(a);
        largest = std::max(largest, std::fabs(b)), activation += std::fabs(b);
      }
      out.magnitude += 6 * heaviest * activation;
      out.step += weight * largest / 127 / 2;
    }
    return out;
  }
};

TEST(quant_rows, are_the_values_of_the_definition_bit_by_bit) {
  for (Format f : formats())
    for (int64_t blocks : {0, 1, 2, 3, 7, 8, 9, 17}) {
      const int64_t k = blocks * int64_t(quant::info(f).elements);
      const Problem p(f, 3, 1, k, std::uint64_t(blocks) + 1);
      const std::int32_t ids[] = {2, 0, 2};
      for (Isa isa : isas()) {
        std::vector<float> out(std::size_t(3 * k), 7.0f);
        quant_rows(f, p.weights(), 3, k, ids, out, isa);
        for (int64_t j = 0; j < 3; ++j)
          EXPECT_EQ(
              k ? std::memcmp(&out[std::size_t(j * k)], &p.w[std::size_t(ids[j] * k)], std::size_t(k) * 4)
                : 0,
              0)
              << quant::info(f).name << " " << name(isa) << " " << blocks;
      }
    }
}

TEST(quant_rows, numbers_and_sizes_that_do_not_fit_are_errors) {
  const Problem p(Format::q4_0, 3, 1, 64, 1);
  std::vector<float> out(64);
  for (std::int32_t id : {-1, 3})
    EXPECT_THROW(quant_rows(p.f, p.weights(), 3, 64, {{id}}, out), ArgumentError);
  EXPECT_THROW(quant_rows(p.f, p.weights(), 3, 64, {{0}}, std::span(out).first(63)), ArgumentError);
  EXPECT_THROW(quant_rows(p.f, p.weights(), 2, 64, {{0}}, out), ArgumentError);
  EXPECT_THROW(quant_rows(p.f, p.weights(), 3, 33, {{0}}, out), ArgumentError);
}

TEST(quant_matmul, floats_are_within_the_roundings_of_a_sum) {
  for (Format f : formats())
    for (int64_t blocks : {0, 1, 3, 9}) {
      const Problem p(f, 5, 3, blocks * int64_t(quant::info(f).elements), std::uint64_t(blocks) + 1);
      for (Isa isa : isas()) {
        const auto y = p.run({.isa = isa});
        const double roundings = double(p.k) + 8;
        for (int64_t i = 0; i < p.m; ++i)
          for (int64_t j = 0; j < p.n; ++j) {
            const auto want = p.sums(i, j);
            ASSERT_NEAR(y[std::size_t(j * p.m + i)], want.value, roundings * 0x1p-24 * want.magnitude)
                << quant::info(f).name << " " << name(isa) << " " << blocks << " row " << i;
          }
      }
    }
}

TEST(quant_matmul, eight_bit_activations_are_off_by_half_a_step_at_most) {
  int with_codes = 0;
  for (Format f : formats()) {
    with_codes += has_int8(f);
    for (int64_t blocks : {1, 2, 5, 9, 18}) {
      const Problem p(f, 5, 7, blocks * int64_t(quant::info(f).elements), std::uint64_t(blocks) + 1);
      for (Isa isa : isas()) {
        const auto y = p.run({.isa = isa, .activations = Activations::int8});
        for (int64_t i = 0; i < p.m; ++i)
          for (int64_t j = 0; j < p.n; ++j) {
            const auto want = p.sums(i, j);
            ASSERT_NEAR(y[std::size_t(j * p.m + i)], want.value,
                        want.step * 1.00001 + (double(p.k) + 24) * 0x1p-24 * want.magnitude)
                << quant::info(f).name << " " << name(isa) << " " << blocks << " row " << i;
          }
      }
    }
  }
#if defined(__x86_64__)
  EXPECT_EQ(with_codes, 15);
#endif
}

// Activations that are steps already: nothing but the roundings of the sum is left, which shows every wrong bit of a code.
TEST(quant_matmul, eight_bit_activations_that_need_no_rounding_are_exact) {
  for (Format f : formats())
    for (int64_t blocks : {1, 4, 8, 11, 16}) {
      if (!has_int8(f)) continue;
      for (int ends : {0, 1}) {  // 1: the largest products there are
        Problem p(f, 6, 5, blocks * int64_t(quant::info(f).elements), std::uint64_t(blocks) + 31);
        SplitMix64 random(5);
        for (std::size_t i = 0; i < p.x.size(); ++i)
          p.x[i] = i % 32 == 5 || ends ? (random.next() % 2 || ends ? 127.0f : -127.0f)
                                       : float(int(random.next() % 255) - 127);
        for (Isa isa : isas()) {
          const auto y = p.run({.isa = isa, .activations = Activations::int8});
          for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
              const auto want = p.sums(i, j);
              const double terms = isa <= Isa::sse2 ? double(p.k) : double(p.k) / 16;
              ASSERT_NEAR(y[std::size_t(j * p.m + i)], want.value, (terms + 24) * 0x1p-24 * want.magnitude)
                  << quant::info(f).name << " " << name(isa) << " " << blocks << " row " << i;
            }
        }
      }
    }
}

// With every bit of the codes set, sums of 16 bits would overflow.
TEST(quant_matmul, codes_at_their_ends_do_not_overflow) {
  for (Format f : formats()) {
    if (!has_int8(f)) continue;
    const auto& info = quant::info(f);
    for (int fill : {0x00, 0x80, 0xff}) {
      Bytes blocks = random_blocks(f, 16 * 8, 3);
      const Bytes scales = blocks;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const std::size_t at = i % info.bytes;
        const bool scale = at < 4 || (info.elements == 256 && at + 4 >= info.bytes);
        if (!scale) blocks[i] = std::byte(fill);
      }
      const int64_t k = 16 * int64_t(info.elements);
      const auto w = decoded(f, blocks);
      std::vector<float> x(std::size_t(k), 0.0f), y(8);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 3 ? 127.0f : -127.0f;
      for (Isa isa : isas()) {
        quant_matmul(f, blocks, 8, 1, k, x, y, {.isa = isa, .activations = Activations::int8});
        for (std::size_t i = 0; i < 8; ++i) {
          double want = 0, magnitude = 0;
          for (std::size_t e = 0; e < x.size(); ++e)
            want += double(w[i * x.size() + e]) * x[e],
                magnitude += std::fabs(double(w[i * x.size() + e]) * x[e]);
          ASSERT_NEAR(y[i], want, (double(k) + 24) * 0x1p-24 * 260 * (magnitude + 1e-3))
              << info.name << " " << name(isa);
        }
      }
    }
  }
}

// Around the edges of panels (32 rows, 512 elements, 8 panels) and of the products in registers (8 and 32 vectors).
TEST(quant_matmul, many_vectors_are_within_their_bound) {
  for (Format f : {Format::q4_k, Format::q5_0, Format::nf4, Format::iq2_s, Format::f32})
    for (auto [m, n, blocks] : {std::tuple<int64_t, int64_t, int64_t>{33, 32, 1},
                                {31, 41, 2},
                                {64, 33, 5},
                                {1, 130, 9},
                                {70, 49, 36},
                                {530, 33, 3}}) {
      const Problem p(f, m, n, blocks * int64_t(quant::info(f).elements), std::uint64_t(m));
      for (auto activations : {Activations::f32, Activations::int8, Activations::int16})
        for (Isa isa : isas()) {
          if ((isa < Isa::avx2 && m > 60) || (isa < Isa::avx512_bf16 && m > 500)) continue;  // slow
          const auto y = p.run({.isa = isa, .activations = activations, .threads = 2});
          for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
              const auto want = p.sums(i, j);
              double bound = (double(p.k) + 8) * 0x1p-24 * want.magnitude;
              if (activations == Activations::int8)
                bound += isa >= Isa::avx512_bf16 ? want.product * std::exp2(-6.99) : want.step * 1.00001;
              if (activations == Activations::int16 && isa >= Isa::avx512_bf16)
                bound = (3 * double(p.k) + 8) * 0x1p-24 * want.magnitude + want.product * std::exp2(-14.4);
              ASSERT_NEAR(y[std::size_t(j * p.m + i)], want.value, bound)
                  << quant::info(f).name << " " << name(isa) << " " << m << " x " << n << " x " << p.k
                  << " row " << i;
            }
        }
    }
}

TEST(quant_matmul, says_when_tiles_were_not_tried) {
  if (!has(Isa::amx))
    GTEST_SKIP() << "this processor, or its system, has no AMX: of panel_product_amx() only the order was "
                    "tried (panel_test.cpp)";
}

TEST(packed_weights, products_are_those_of_the_stored_weights) {
  if (!has(Isa::avx512_vnni)) GTEST_SKIP() << "this processor has no AVX-512 VNNI: nothing was packed";
  int packed = 0;
  for (Format f : formats()) {
    packed += can_pack(f);
    if (!can_pack(f)) continue;
    for (int64_t blocks : {1, 2, 4, 9, 18})
      for (auto [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {16, 2}, {17, 5}, {31, 15}})
        for (bool whole : {false, true}) {
          Problem p(f, m, n, blocks * int64_t(quant::info(f).elements), std::uint64_t(blocks));
          SplitMix64 random(5);
          if (whole)  // steps already: nothing but the roundings of the sum is left
            for (std::size_t i = 0; i < p.x.size(); ++i)
              p.x[i] = i % 32 == 5 ? 127.0f : float(int(random.next() % 255) - 127);
          const PackedWeights w(f, p.weights(), m, p.k, 2);
          EXPECT_EQ(w.rows(), m);
          EXPECT_EQ(w.k(), p.k);
          for (auto activations : {Activations::int8, Activations::int16}) {
            std::vector<float> y(std::size_t(m * n), std::nanf("")), again(y.size()),
                one(static_cast<std::size_t>(m));
            quant_matmul(w, n, p.x, y, {.activations = activations});
            quant_matmul(w, n, p.x, again, {.activations = activations, .threads = 3});
            EXPECT_EQ(y, again);
            quant_matmul(w, 1, std::span(p.x).last(std::size_t(p.k)), one, {.activations = activations});
            EXPECT_EQ(one, std::vector<float>(y.end() - m, y.end()));
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                const auto want = p.sums(i, j);
                const double terms = whole ? double(p.k) / 16 + 24 : double(p.k) + 24;
                const double steps = activations == Activations::int16 ? 1.01 * 127 / 32767
                                     : whole                           ? 0
                                                                       : 1.00001;
                ASSERT_NEAR(y[std::size_t(j * m + i)], want.value,
                            steps * want.step + terms * 0x1p-24 * want.magnitude)
                    << quant::info(f).name << " " << m << " x " << n << " x " << p.k << " row " << i;
              }
          }
        }
  }
  EXPECT_EQ(packed, 12);
}

TEST(packed_weights, are_hardly_larger_than_the_stored_ones) {
  for (Format f : formats()) {
    if (!can_pack(f)) continue;
    const auto blocks = random_blocks(f, 64 * 1024 / int64_t(quant::info(f).elements), 1);
    const PackedWeights w(f, blocks, 64, 1024);
    EXPECT_LE(double(w.bytes()), double(blocks.size()) * (f == Format::mxfp4 ? 1.18 : 1.12))
        << quant::info(f).name;
  }
}

TEST(packed_weights, what_cannot_be_packed_or_multiplied_is_an_error) {
  const Problem p(Format::nf4, 4, 1, 64, 1), q(Format::q4_k, 4, 1, 512, 1);
  EXPECT_THROW(PackedWeights(Format::nf4, p.weights(), 4, 64), Unsupported);
  EXPECT_THROW(PackedWeights(Format::q4_k, q.weights(), 5, 512), ArgumentError);
  EXPECT_THROW(PackedWeights(Format::q4_k, q.weights(), 4, 300), ArgumentError);
  if (!can_pack(Format::q4_k)) GTEST_SKIP() << "this processor has no AVX-512 VNNI: nothing was packed";
  const PackedWeights w(Format::q4_k, q.weights(), 4, 512);
  std::vector<float> y(4, 5.0f), bad = q.x;
  EXPECT_THROW(quant_matmul(w, 2, q.x, y), ArgumentError);
  EXPECT_THROW(quant_matmul(w, 1, std::span(q.x).first(511), y), ArgumentError);
  bad[7] = std::nanf("");
  EXPECT_THROW(quant_matmul(w, 1, bad, y), ArgumentError);
  EXPECT_THROW(quant_matmul(w, 1, bad, y, {.activations = Activations::int8}), ArgumentError);
  EXPECT_THROW(quant_matmul(w, 1, q.x, y, {.activations = Activations::f32}), Unsupported);
  EXPECT_EQ(y, std::vector<float>(4, 5.0f));
  const PackedWeights none(Format::q4_k, {}, 0, 512);
  EXPECT_NO_THROW(quant_matmul(none, 3, std::vector<float>(3 * 512), {}));
}

TEST(quant_matmul, threads_and_other_vectors_change_no_bit) {
  for (Format f : {Format::q4_k, Format::q8_0, Format::q5_0, Format::nf4, Format::f16})
    for (auto activations : {Activations::f32, Activations::int8}) {
      const int64_t k = 512, rows = 2 * kQuantWorkPerThread / k;
      for (int64_t m : {rows - 1, rows, rows + 1}) {
        const Problem p(f, m, 1, k, 11);
        EXPECT_EQ(p.run({.activations = activations, .threads = 1}),
                  p.run({.activations = activations, .threads = 3}));
      }
      const Problem p(f, 9, 7, k, 12);
      const auto all = p.run({.activations = activations});
      for (int64_t j = 0; j < p.n; ++j) {
        std::vector<float> y(9);
        quant_matmul(f, p.weights(), 9, 1, k, std::span(p.x).subspan(std::size_t(j * k), std::size_t(k)), y,
                     {.activations = activations});
        EXPECT_EQ(y, std::vector<float>(all.begin() + j * 9, all.begin() + j * 9 + 9));
      }
    }
}

TEST(quant_matmul, nan_and_infinity_show_with_floats_and_are_refused_for_integers) {
  for (Format f : formats())
    for (Isa isa : isas())
      for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Problem p(f, 3, 1, 512, 13);
        p.x[300] = bad;
        int strange = 0;
        for (float y : p.run({.isa = isa})) strange += !std::isfinite(y);
        EXPECT_EQ(strange, 3);
        if (!has_int8(f) || isa < Isa::avx2) continue;
        std::vector<float> y(3, 5.0f);
        EXPECT_THROW(
            quant_matmul(f, p.weights(), 3, 1, 512, p.x, y, {.isa = isa, .activations = Activations::int8}),
            ArgumentError);
        EXPECT_EQ(y, std::vector<float>(3, 5.0f));  // nothing is written
      }
}

TEST(quant_matmul, vectors_of_zeros_and_of_tiny_values_give_zeros) {
  for (float v : {0.0f, 1e-38f, -1e-44f}) {
    Problem p(Format::q4_k, 3, 1, 256, 2);
    p.x.assign(256, v);
    for (Isa isa : isas())
      for (float y : p.run({.isa = isa, .activations = Activations::int8})) EXPECT_NEAR(y, 0, 1e-30);
  }
}

TEST(quant_matmul, sizes_that_do_not_agree_are_argument_errors) {
  const Problem p(Format::q4_k, 4, 1, 512, 17);
  std::vector<float> y(4), small(3);
  const auto run = [&](int64_t m, int64_t k, std::span<const std::byte> w, std::span<float> to) {
    quant_matmul(Format::q4_k, w, m, 1, k,
                 std::span(p.x).first(std::size_t(std::max<int64_t>(0, std::min(k, p.k)))), to);
  };
  EXPECT_NO_THROW(run(4, 512, p.weights(), y));
  EXPECT_THROW(run(4, 512, p.weights().first(p.weights().size() - 1), y), ArgumentError);  // truncated
  EXPECT_THROW(run(4, 512, p.weights(), small), ArgumentError);
  EXPECT_THROW(run(-4, 512, p.weights(), y), ArgumentError);
  EXPECT_THROW(run(4, -512, p.weights(), y), ArgumentError);
  EXPECT_THROW(run(4, 300, p.weights(), y), ArgumentError);
  EXPECT_THROW(run(int64_t(1) << 62, 512, p.weights(), y), ArgumentError);
  EXPECT_THROW(quant_matmul(Format::q4_k, p.weights(), 4, -1, 512, p.x, y), ArgumentError);
  EXPECT_THROW(quant_matmul(Format::q4_k, p.weights(), 4, 2, 512, p.x, y), ArgumentError);
  EXPECT_THROW(p.run({.threads = -1}), ArgumentError);
}

TEST(quant_matmul, nothing_times_anything_is_nothing) {
  const Problem p(Format::q6_k, 0, 2, 512, 1), empty(Format::q6_k, 3, 2, 0, 1);
  EXPECT_TRUE(p.run({.activations = Activations::int8}).empty());
  for (auto a : {Activations::f32, Activations::int8})
    EXPECT_EQ(empty.run({.activations = a}), std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace cgp::cpu
