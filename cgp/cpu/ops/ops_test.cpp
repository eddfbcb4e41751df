// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/ops/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/random.h"
#include "cgp/cpu/ops/attention.h"

namespace cgp::cpu {
namespace {

using std::int64_t;
using Floats = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();

Floats normal(std::size_t n, std::uint64_t seed, double scale = 1) {
  Floats out(n);
  SplitMix64 random(seed);
  for (float& f : out) f = float(random.normal() * scale);
  return out;
}
std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa i : {Isa::scalar, Isa::avx2, Isa::avx512})
    if (has(i)) out.push_back(i);
  return out;
}
/// Runs f(x, y) with a guard behind y, then in place; both must give the same.
template <class F>
Floats guarded(const Floats& x, const F& f) {
  Floats y(x.size() + 1, 77.0f), same = x;
  f(std::span<const float>(x), std::span(y).first(x.size()));
  EXPECT_EQ(y.back(), 77.0f);
  y.pop_back();
  f(std::span<const float>(same), std::span(same));
  EXPECT_EQ(std::memcmp(y.data(), same.data(), y.size() * 4), 0);
  return y;
}

constexpr int64_t kLengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 100, 576, 4096};

TEST(cpu_ops, norms_of_rows_are_those_in_double) {
  for (Isa isa : isas())
    for (int64_t n : kLengths) {
      const auto w = normal(std::size_t(n), 2), b = normal(std::size_t(n), 3);
      auto x = normal(std::size_t(3 * n), std::uint64_t(n));
      for (float& v : x) v += 2;
      const auto rms =
          guarded(x, [&](auto from, auto to) { rms_norm(from, w, 1e-5f, to, {.isa = isa, .threads = 2}); });
      const auto layer =
          guarded(x, [&](auto from, auto to) { layer_norm(from, w, b, 1e-5f, to, {.isa = isa}); });
      const auto plain =
          guarded(x, [&](auto from, auto to) { layer_norm(from, w, {}, 1e-5f, to, {.isa = isa}); });
      for (int64_t r = 0; r < 3; ++r) {
        double squares = 0, sum = 0, off = 0;
        for (int64_t i = 0; i < n; ++i) squares += double(x[r * n + i]) * x[r * n + i], sum += x[r * n + i];
        for (int64_t i = 0; i < n; ++i) off += std::pow(x[r * n + i] - sum / double(n), 2);
        const double f = 1 / std::sqrt(squares / double(n) + 1e-5), g = 1 / std::sqrt(off / double(n) + 1e-5);
        // the sum has at most n roundings; the difference from the mean loses what both have in common
        const double u = 0x1p-24 * double(isa == Isa::scalar ? n + 8 : n / 8 + 12);
        for (int64_t i = 0; i < n; ++i) {
          const double v = x[r * n + i], d = (v - sum / double(n)) * g * w[i];
          const double bound =
              4 * u * (std::fabs(d) + (std::fabs(v) + std::fabs(sum) / double(n)) * g * std::fabs(w[i]));
          ASSERT_NEAR(rms[r * n + i], v * f * w[i], u * std::fabs(v * f * w[i]) + 1e-30)
              << name(isa) << " " << n;
          ASSERT_NEAR(layer[r * n + i], d + b[i], bound + 1e-6 * std::fabs(b[i])) << name(isa) << " " << n;
          ASSERT_NEAR(plain[r * n + i], d, bound) << name(isa) << " " << n;
        }
      }
    }
}

TEST(cpu_ops, softmax_is_that_in_double) {
  for (Isa isa : isas())
    for (int64_t n : kLengths) {
      auto x = normal(std::size_t(2 * n), std::uint64_t(n), 8);
      if (n > 4) x[3] = -kInf, x[std::size_t(n) + 2] = 3e4f, x[std::size_t(n)] = -3e38f;
      const auto y = guarded(x, [&](auto from, auto to) { softmax(from, n, 0.5f, to, {.isa = isa}); });
      for (int64_t r = 0; r < 2; ++r) {
        double most = -kInf, sum = 0;
        for (int64_t i = 0; i < n; ++i) most = std::max(most, 0.5 * x[r * n + i]);
        for (int64_t i = 0; i < n; ++i) sum += std::exp(0.5 * x[r * n + i] - most);
        for (int64_t i = 0; i < n; ++i) {
          const double want = std::exp(0.5 * x[r * n + i] - most) / sum;
          // a difference from the maximum is rounded: e^87 times half a unit of 128
          const double bound = want * (double(n) / 8 + 12) * 0x1p-24 + want * 128 * 0x1p-24 + 1e-37;
          ASSERT_NEAR(y[r * n + i], want, bound) << name(isa) << " " << n << " " << i;
        }
      }
    }
}

TEST(cpu_ops, softmax_of_nothing_but_infinities_or_with_nan_is_nan) {
  for (Isa isa : isas())
    for (int64_t n : {5, 16, 40})
      for (float bad : {-kInf, std::nanf("")})
        for (int64_t at : {int64_t(0), n - 1}) {
          Floats x(std::size_t(n), std::isnan(bad) ? 1.0f : bad), y(x.size());
          x[std::size_t(at)] = bad;
          softmax(x, n, 1, y, {.isa = isa});
          for (float v : y) EXPECT_TRUE(std::isnan(v)) << name(isa);
        }
}

TEST(cpu_ops, activations_are_those_in_double) {
  Floats x = normal(1000, 1, 4);
  for (float v : {0.0f, -0.0f, 1e-30f, 80.0f, -80.0f, 100.0f, -100.0f, 3e4f, -3e4f}) x.push_back(v);
  const Floats up = normal(x.size(), 2);
  for (Isa isa : isas())
    for (auto a : {Activation::silu, Activation::gelu, Activation::gelu_tanh})
      for (std::size_t n : {x.size(), std::size_t(1), std::size_t(13)}) {
        const Floats from(x.end() - std::ptrdiff_t(n), x.end());
        const auto y = guarded(from, [&](auto f, auto to) { activate(a, f, {}, to, {.isa = isa}); });
        const auto z =
            guarded(from, [&](auto f, auto to) { activate(a, f, std::span(up).last(n), to, {.isa = isa}); });
        for (std::size_t i = 0; i < n; ++i) {
          const double v = from[i], u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
          const double want = a == Activation::silu   ? v / (1 + std::exp(-v))
                              : a == Activation::gelu ? v * std::erfc(-v / std::sqrt(2.0)) / 2
                                                      : v / (1 + std::exp(-2 * u));
          // exponentials of large arguments lose what their arguments are rounded by
          const double bound = (a == Activation::gelu ? 3e-7 * std::fabs(v) : 0) +
                               std::fabs(want) * (2e-6 + 2e-7 * (std::fabs(v) + 2 * std::fabs(u))) + 1e-33;
          ASSERT_NEAR(y[i], want, bound) << name(isa) << " " << int(a) << " of " << v;
          ASSERT_EQ(z[i], y[i] * up[up.size() - n + i]);
        }
      }
  for (Isa isa : isas())
    for (auto a : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
      Floats y(9, std::nanf(""));
      activate(a, y, {}, y, {.isa = isa});
      for (float v : y) EXPECT_TRUE(std::isnan(v));
    }
}

TEST(cpu_ops, rope_rotates_pairs_of_either_kind_and_leaves_the_rest) {
  for (Isa isa : isas())
    for (int64_t dims : {0, 2, 6, 16, 32, 48, 64, 128}) {
      const int64_t head = dims + 5, heads = 3;
      const auto frequencies = rope_frequencies(dims, 10000);
      const std::vector<std::int32_t> positions{0, 1, 4095, 131071};
      const auto x = normal(positions.size() * std::size_t(heads * head), std::uint64_t(dims));
      for (auto pairs : {RopePairs::halves, RopePairs::neighbours}) {
        Floats y = x;
        rope(pairs, y, heads, head, positions, frequencies, {.isa = isa});
        for (std::size_t t = 0; t < positions.size(); ++t)
          for (int64_t h = 0; h < heads; ++h) {
            const std::size_t at = (t * std::size_t(heads) + std::size_t(h)) * std::size_t(head);
            for (int64_t i = 0; i < dims / 2; ++i) {
              const bool halves = pairs == RopePairs::halves;
              const auto p = at + std::size_t(halves ? i : 2 * i),
                         q = halves ? p + std::size_t(dims / 2) : p + 1;
              const double angle = positions[t] * double(frequencies[std::size_t(i)]);
              EXPECT_NEAR(y[p], x[p] * std::cos(angle) - x[q] * std::sin(angle), 1e-6) << name(isa) << dims;
              EXPECT_NEAR(y[q], x[p] * std::sin(angle) + x[q] * std::cos(angle), 1e-6) << name(isa) << dims;
            }
            for (int64_t i = dims; i < head; ++i) EXPECT_EQ(y[at + std::size_t(i)], x[at + std::size_t(i)]);
          }
      }
    }
  EXPECT_NEAR(rope_frequencies(64, 10000)[1], std::pow(10000.0, -2.0 / 64), 1e-7);
}

TEST(cpu_ops, floats_of_16_bits_are_rounded_to_the_nearest) {
  Floats x = normal(500, 1, 100);
  for (float v :
       {0.0f, -0.0f, kInf, -kInf, 65504.0f, 65520.0f, 1e-8f, 6e-8f, 1e30f, 3.4e38f, 1.00390625f, 1.01171875f})
    x.push_back(v);
  for (Isa isa : isas()) {
    std::vector<std::uint16_t> f(x.size()), b(x.size());
    to_f16(x, f, {.isa = isa}), to_bf16(x, b, {.isa = isa});
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(f[i], half(x[i]).bits) << x[i] << " " << name(isa);
      ASSERT_EQ(b[i], bfloat16(x[i]).bits) << x[i] << " " << name(isa);
    }
    const Floats nan(3, std::nanf(""));
    std::vector<std::uint16_t> to(3);
    to_bf16(nan, to, {.isa = isa});
    EXPECT_TRUE(std::isnan(float(bfloat16::from_bits(to[2]))));
    to_f16(nan, to, {.isa = isa});
    EXPECT_TRUE(std::isnan(float(half::from_bits(to[2]))));
  }
}

TEST(cpu_ops, sizes_that_do_not_agree_are_argument_errors) {
  const Floats x(12), w(5), four(4);
  Floats y(12), small(11);
  EXPECT_THROW(rms_norm(x, w, 0, y), ArgumentError);
  EXPECT_THROW(rms_norm(x, {}, 0, y), ArgumentError);
  EXPECT_THROW(rms_norm(x, four, 0, small), ArgumentError);
  EXPECT_THROW(layer_norm(x, four, w, 0, y), ArgumentError);
  EXPECT_THROW(softmax(x, 5, 1, y), ArgumentError);
  EXPECT_THROW(softmax(x, 0, 1, y), ArgumentError);
  EXPECT_THROW(activate(Activation::silu, x, four, y), ArgumentError);
  EXPECT_THROW(activate(Activation::silu, x, {}, small), ArgumentError);
  EXPECT_THROW(rope_frequencies(3, 1), ArgumentError);
  EXPECT_THROW(rope_frequencies(4, 0), ArgumentError);
  EXPECT_THROW(rope(RopePairs::halves, y, 1, 3, {{0, 1, 2, 3}}, four), ArgumentError);  // 8 of 3
  EXPECT_THROW(rope(RopePairs::halves, y, 1, 11, {{0}}, four), ArgumentError);
}

struct Cache {
  std::vector<float> keys, values;
  std::vector<std::uint16_t> k16, v16;
  std::vector<std::int32_t> pages;
  KvCache view;
  Cache(CacheType type, int64_t kv_heads, int64_t d, int64_t page, int64_t tokens) {
    const int64_t used = (tokens + page - 1) / page, there = used + 2;
    for (int64_t i = 0; i < used; ++i) pages.push_back(std::int32_t((i * 5 + 3) % there));  // somewhere
    if (there % 5 == 0)
      for (int64_t i = 0; i < used; ++i) pages[std::size_t(i)] = std::int32_t(there - 1 - i);
    keys = normal(std::size_t(there * page * kv_heads * d), 1), values = normal(keys.size(), 2);
    for (float& v : values) v += 1;
    view = {{}, {}, type, kv_heads, d, page, pages, tokens};
    if (type == CacheType::f32) {
      view.keys = std::as_bytes(std::span(keys)), view.values = std::as_bytes(std::span(values));
      return;
    }
    k16.resize(keys.size()), v16.resize(keys.size());
    const auto narrow = type == CacheType::f16 ? to_f16 : to_bf16;
    narrow(keys, k16, {}), narrow(values, v16, {});
    for (std::size_t i = 0; i < keys.size(); ++i)
      for (auto [wide, bits] : {std::pair{&keys[i], k16[i]}, {&values[i], v16[i]}})
        *wide = type == CacheType::f16 ? float(half::from_bits(bits)) : float(bfloat16::from_bits(bits));
    view.keys = std::as_bytes(std::span(k16)), view.values = std::as_bytes(std::span(v16));
  }
  /// Of head h, in double.
  std::vector<double> attend(std::span<const float> q, int64_t heads, int64_t h, double scale, double softcap,
                             int64_t begin) const {
    const int64_t d = view.head_dim, kv = h / (heads / view.kv_heads);
    std::vector<double> scores, out(std::size_t(d), 0.0);
    double most = -1e300, sum = 0;
    const auto at = [&](int64_t t) {
      return std::size_t(
          ((view.pages[std::size_t(t / view.page_tokens)] * view.page_tokens + t % view.page_tokens) *
               view.kv_heads +
           kv) *
          d);
    };
    for (int64_t t = begin; t < view.tokens; ++t) {
      double s = 0;
      for (int64_t i = 0; i < d; ++i) s += double(q[std::size_t(h * d + i)]) * keys[at(t) + std::size_t(i)];
      s = softcap > 0 ? softcap * std::tanh(s * scale / softcap) : s * scale;
      scores.push_back(s), most = std::max(most, s);
    }
    for (double& s : scores) sum += s = std::exp(s - most);
    for (int64_t t = begin; t < view.tokens; ++t)
      for (int64_t i = 0; i < d; ++i)
        out[std::size_t(i)] += scores[std::size_t(t - begin)] / sum * values[at(t) + std::size_t(i)];
    return out;
  }
};

TEST(cpu_attention, is_that_in_double) {
  struct Case {
    int64_t heads, kv_heads, d, page, tokens, window;
  };
  for (const Case& c : {Case{1, 1, 64, 16, 1, 0}, Case{8, 2, 128, 16, 37, 0}, Case{4, 4, 80, 5, 100, 0},
                        Case{6, 3, 7, 64, 33, 20}, Case{20, 1, 32, 1, 70, 0}, Case{2, 1, 64, 2000, 1300, 0},
                        Case{2, 2, 24, 100, 1100, 1030}})
    for (const auto& [type, softcap] : {std::pair{CacheType::f32, 0.0f},
                                        {CacheType::f16, 0.0f},
                                        {CacheType::bf16, 0.0f},
                                        {CacheType::f16, 1.5f}}) {
      const Cache cache(type, c.kv_heads, c.d, c.page, c.tokens);
      const auto q = normal(std::size_t(c.heads * c.d), 5);
      const float scale = 1 / std::sqrt(float(c.d));
      for (Isa isa : isas()) {
        Floats out(q.size(), std::nanf("")), again(q.size());
        attention(q, 1, cache.view, {.scale = scale, .softcap = softcap, .window = c.window}, out,
                  {.isa = isa});
        attention(q, 1, cache.view, {.scale = scale, .softcap = softcap, .window = c.window}, again,
                  {.isa = isa, .threads = 3});
        EXPECT_EQ(out, again);
        const int64_t begin = c.window ? std::max<int64_t>(0, c.tokens - c.window) : 0;
        for (int64_t h = 0; h < c.heads; ++h) {
          const auto want = cache.attend(q, c.heads, h, scale, softcap, begin);
          for (int64_t i = 0; i < c.d; ++i)
            ASSERT_NEAR(out[std::size_t(h * c.d + i)], want[std::size_t(i)], 4e-6)
                << name(isa) << " " << c.tokens << " " << int(type) << " head " << h;
        }
      }
    }
}

TEST(cpu_attention, of_many_queries_is_bit_by_bit_that_of_one) {
  for (int64_t window : {0, 50, 600})
    for (int64_t page : {16, 48}) {
      const int64_t heads = 6, d = 40, tokens = 1130, queries = 150;
      const Cache cache(CacheType::f16, 3, d, page, tokens);
      const auto q = normal(std::size_t(queries * heads * d), 3);
      Floats all(q.size());
      const AttentionOptions what{.scale = 0.2f, .window = window};
      attention(q, queries, cache.view, what, all, {.threads = 2});
      for (int64_t i = 0; i < queries; ++i) {
        KvCache seen = cache.view;
        seen.tokens = tokens - queries + i + 1;
        Floats one(std::size_t(heads * d));
        attention(std::span(q).subspan(std::size_t(i * heads * d), one.size()), 1, seen, what, one);
        ASSERT_EQ(one, Floats(all.begin() + i * heads * d, all.begin() + (i + 1) * heads * d)) << i;
      }
    }
}

TEST(cpu_ops, rope_by_angles_is_rope_times_the_magnitude) {
  const std::vector<std::int32_t> positions{0, 7, 1000};
  const auto frequencies = rope_frequencies(12, 10000);
  for (auto pairs : {RopePairs::halves, RopePairs::neighbours}) {
    Floats x = normal(3 * 2 * 12, 4), y = x, cosines(3 * 12), sines(3 * 12);
    rope(pairs, x, 2, 12, positions, frequencies);
    rope_angles(pairs, positions, frequencies, 2, cosines, sines);
    rotate(pairs, y, 2, 12, cosines, sines);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 2 * x[i]);
    EXPECT_THROW(rotate(pairs, y, 2, 12, cosines, std::span(sines).first(12)), ArgumentError);
    EXPECT_THROW(rotate(pairs, y, 2, 11, cosines, sines), ArgumentError);
  }
}

TEST(cpu_attention, of_no_tokens_is_zero_and_what_is_not_in_the_cache_is_an_error) {
  Cache cache(CacheType::f16, 2, 8, 4, 9);
  const Floats q(32, 1.0f);
  Floats out(32, 5.0f);
  const auto fails = [&](auto change) {
    KvCache c = cache.view;
    change(c);
    EXPECT_THROW(attention(q, 1, c, {}, out), ArgumentError);
    EXPECT_EQ(out, Floats(32, 5.0f));
  };
  const std::vector<std::int32_t> beyond{0, 1, 5}, negative{0, -1, 2};
  fails([&](KvCache& c) { c.pages = beyond; });
  fails([&](KvCache& c) { c.pages = negative; });
  fails([&](KvCache& c) { c.pages = c.pages.first(2); });
  fails([&](KvCache& c) { c.tokens = -1; });
  fails([&](KvCache& c) { c.kv_heads = 3; });
  fails([&](KvCache& c) { c.head_dim = 0; });
  fails([&](KvCache& c) { c.values = c.values.first(16); });
  EXPECT_THROW(attention(q, 2, cache.view, {.window = -1}, out), ArgumentError);
  EXPECT_THROW(attention(q, 2, cache.view, {.softcap = -1}, out), ArgumentError);
  cache.view.tokens = 1;
  EXPECT_THROW(attention(q, 2, cache.view, {}, out), ArgumentError);
  cache.view.tokens = 9;
  EXPECT_THROW(attention(q, 1, cache.view, {}, std::span(out).first(31)), ArgumentError);
  KvCache empty = cache.view;
  empty.tokens = 0;
  attention(q, 1, empty, {}, out);
  EXPECT_EQ(out, Floats(32, 0.0f));
}

}  // namespace
}  // namespace cgp::cpu
