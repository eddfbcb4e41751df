// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cgp/base/error.h"

namespace cgp::spec {
namespace {

template <class T>
std::vector<std::uint8_t> raw(std::initializer_list<T> v) {
  std::vector<std::uint8_t> out(v.size() * sizeof(T));
  if (v.size()) std::memcpy(out.data(), v.begin(), out.size());
  return out;
}
const float kNaN = std::nanf(""), kInf = std::numeric_limits<float>::infinity();
const Compare kExact{};
Compare close(double abs, double rel) { return {Compare::Mode::abs_rel, abs, rel}; }
const Compare kAnyOrder{Compare::Mode::multiset, 0, 0};

TEST(compare, exact_means_identical_bits) {
  EXPECT_TRUE(compare(kExact, DType::f32, raw({1.0f, 2.0f}), raw({1.0f, 2.0f})).equal);
  EXPECT_FALSE(compare(kExact, DType::f32, raw({0.0f}), raw({-0.0f})).equal);
  const Comparison c =
      compare(kExact, DType::u8, raw<std::uint8_t>({1, 2, 3, 200}), raw<std::uint8_t>({1, 2, 4, 100}));
  EXPECT_EQ(c.wrong, 2u);
  EXPECT_EQ(c.first, 2u);
  EXPECT_EQ(c.worst, 3u);
  EXPECT_EQ(c.worst_got, "200");
  EXPECT_EQ(c.max_abs, 100);
}

TEST(compare, any_nan_equals_any_nan) {
  EXPECT_TRUE(
      compare(kExact, DType::f32, raw<std::uint32_t>({0x7fffffff}), raw<std::uint32_t>({0xffc00001})).equal);
  EXPECT_TRUE(compare(kExact, DType::f16, raw<std::uint16_t>({0x7e00}), raw<std::uint16_t>({0xfe01})).equal);
  EXPECT_FALSE(
      compare(kExact, DType::u32, raw<std::uint32_t>({0x7fffffff}), raw<std::uint32_t>({0xffc00001})).equal);
  EXPECT_FALSE(compare(kExact, DType::f32, raw({kNaN}), raw({1.0f})).equal);
  EXPECT_FALSE(compare(close(1e30, 1), DType::f32, raw({1.0f}), raw({kNaN})).equal);
}

TEST(compare, abs_rel_is_abs_plus_rel_times_want) {
  EXPECT_TRUE(compare(close(0.5, 0), DType::f64, raw({1.5}), raw({1.0})).equal);
  EXPECT_FALSE(compare(close(0.49, 0), DType::f64, raw({1.5}), raw({1.0})).equal);
  EXPECT_TRUE(compare(close(0, 0.125), DType::f64, raw({9.0}), raw({8.0})).equal);
  EXPECT_FALSE(compare(close(0, 0.1249), DType::f64, raw({9.0}), raw({8.0})).equal);
  EXPECT_TRUE(compare(close(0.5, 0.0625), DType::f64, raw({9.0}), raw({8.0})).equal);
  EXPECT_TRUE(compare(close(0, 0), DType::f32, raw({kInf}), raw({kInf})).equal);
  EXPECT_FALSE(compare(close(1, 1), DType::f32, raw({kInf}), raw({-kInf})).equal);
  EXPECT_FALSE(compare(close(1, 1), DType::f32, raw({3e38f}), raw({kInf})).equal);
  EXPECT_TRUE(compare(close(1, 0), DType::s32, raw<std::int32_t>({-7}), raw<std::int32_t>({-8})).equal);
}

TEST(compare, large_integers_keep_all_their_bits) {
  EXPECT_FALSE(compare(close(0, 0), DType::u64, raw<std::uint64_t>({(1ull << 60) + 1}),
                       raw<std::uint64_t>({1ull << 60}))
                   .equal);
  EXPECT_TRUE(compare(close(1, 0), DType::u64, raw<std::uint64_t>({(1ull << 60) + 1}),
                      raw<std::uint64_t>({1ull << 60}))
                  .equal);
}

TEST(compare, multiset_ignores_order_but_not_multiplicity) {
  EXPECT_TRUE(compare(kAnyOrder, DType::s32, raw({3, -1, 2, 2}), raw({2, 2, -1, 3})).equal);
  EXPECT_FALSE(compare(kAnyOrder, DType::s32, raw({3, -1, 2, 3}), raw({2, 2, -1, 3})).equal);
  EXPECT_TRUE(compare(kAnyOrder, DType::f32, raw({kNaN, 1.0f, -kInf}), raw({-kInf, kNaN, 1.0f})).equal);
  EXPECT_FALSE(compare(kAnyOrder, DType::f32, raw({0.0f, 1.0f}), raw({-0.0f, 1.0f})).equal);
  const Comparison c = compare(kAnyOrder, DType::u32, raw({5u, 1u, 9u}), raw({1u, 5u, 8u}));
  EXPECT_EQ(c.wrong, 1u);
  EXPECT_EQ(c.first_got, "9");
  EXPECT_EQ(c.first_want, "8");
}

TEST(compare, sizes_must_agree_and_empty_is_equal) {
  EXPECT_THROW(compare(kExact, DType::u8, {1}, {1, 2}), ArgumentError);
  EXPECT_TRUE(compare(kExact, DType::u8, {}, {}).equal);
}

TEST(compare, elements_are_shown_with_their_bits) {
  EXPECT_EQ(element_text(DType::f32, raw({3.25f}).data(), 0), "3.25 (0x40500000)");
  EXPECT_EQ(element_text(DType::s16, raw<std::int16_t>({-7}).data(), 0), "-7");
}

}  // namespace
}  // namespace cgp::spec
