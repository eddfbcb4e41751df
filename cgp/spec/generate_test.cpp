// SPDX-License-Identifier: Apache-2.0
// Expected values were computed with Python integers from the definition of SplitMix64, not with this code.
#include "cgp/spec/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::spec {
namespace {

Generated make(const std::string& json, DType t, std::uint64_t count) {
  const Document d(json, "test.json");
  return generate(parse_init(d.root(), t, count), t, count, "", "buffer");
}
template <class T>
std::vector<T> values(const std::string& json, DType t, std::uint64_t count) {
  const auto g = make(json, t, count);
  std::vector<T> out(count);
  std::memcpy(out.data(), g.bytes.data(), g.bytes.size());
  return out;
}
std::string message_of(const std::string& json, DType t, std::uint64_t count) {
  try {
    make(json, t, count);
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing thrown)";
}

TEST(generate, bits_are_splitmix64) {
  EXPECT_EQ(
      values<std::uint64_t>("{\"kind\":\"bits\",\"seed\":0}", DType::u64, 3),
      (std::vector<std::uint64_t>{0xe220a8397b1dcdafull, 0x6e789e6aa1b965f4ull, 0x06c45d188009454full}));
  EXPECT_EQ(values<std::uint8_t>("{\"bits\":{\"seed\":1234567}}", DType::u8, 4),
            (std::vector<std::uint8_t>{0x85, 0xa5, 0x77, 0x3f}));
}

TEST(generate, randint_is_lo_plus_z_modulo_the_range) {
  EXPECT_EQ(values<std::int32_t>("{\"kind\":\"randint\",\"seed\":42,\"lo\":-5,\"hi\":5}", DType::s32, 6),
            (std::vector<std::int32_t>{4, 0, -3, -4, -3, 4}));
  EXPECT_EQ(values<float>("{\"randint\":[-5,5],\"seed\":42}", DType::f32, 6),
            (std::vector<float>{4, 0, -3, -4, -3, 4}));
  EXPECT_EQ(values<std::uint64_t>("{\"kind\":\"randint\",\"seed\":7,\"lo\":0,\"hi\":18446744073709551615}",
                                  DType::u64, 2),
            (std::vector<std::uint64_t>{7191089600892374487ull, 309689372594955804ull}));
}

TEST(generate, grid_divides) {
  EXPECT_EQ(values<float>("{\"kind\":\"grid\",\"seed\":3,\"lo\":-8,\"hi\":8,\"den\":4}", DType::f32, 5),
            (std::vector<float>{-1.0f, -1.5f, -0.25f, 0.5f, -0.75f}));
}

TEST(generate, uniform_is_computed_in_double) {
  EXPECT_EQ(values<std::uint32_t>("{\"kind\":\"uniform\",\"seed\":11,\"lo\":-1,\"hi\":3}", DType::f32, 4),
            (std::vector<std::uint32_t>{0x3e87ab20, 0x3d4a9700, 0x3fc6ad7c, 0x3f825cc4}));
  EXPECT_EQ(values<std::uint16_t>("{\"kind\":\"uniform\",\"seed\":11,\"lo\":-1,\"hi\":3}", DType::f16, 4),
            (std::vector<std::uint16_t>{0x343d, 0x2a55, 0x3e35, 0x3c13}));
}

TEST(generate, choice_picks_by_remainder) {
  EXPECT_EQ(values<std::uint16_t>("{\"kind\":\"choice\",\"seed\":5,\"of\":[10,20,30]}", DType::u16, 6),
            (std::vector<std::uint16_t>{30, 20, 30, 30, 20, 20}));
}

TEST(generate, perm_is_fisher_yates_from_the_top) {
  EXPECT_EQ(values<std::uint32_t>("{\"kind\":\"perm\",\"seed\":8}", DType::u32, 8),
            (std::vector<std::uint32_t>{3, 5, 0, 2, 4, 1, 7, 6}));
  EXPECT_EQ(values<std::uint8_t>("{\"kind\":\"perm\",\"seed\":8,\"mul\":100}", DType::u8, 8),
            (std::vector<std::uint8_t>{44, 244, 0, 200, 144, 100, 188, 88}));
}

TEST(generate, plain_fills) {
  EXPECT_EQ(values<std::uint32_t>("\"zero\"", DType::u32, 2), (std::vector<std::uint32_t>{0, 0}));
  EXPECT_EQ(values<std::int16_t>("{\"kind\":\"fill\",\"value\":-3}", DType::s16, 2),
            (std::vector<std::int16_t>{-3, -3}));
  EXPECT_EQ(values<std::int16_t>("{\"fill\":-3}", DType::s16, 1), (std::vector<std::int16_t>{-3}));
  EXPECT_EQ(values<float>("{\"values\":[1.5,\"7f800000\",-0.0]}", DType::f32, 3)[0], 1.5f);
  EXPECT_EQ(values<std::uint32_t>("{\"kind\":\"values\",\"values\":[1.5,\"7f800000\",\"0x80000000\"]}",
                                  DType::f32, 3),
            (std::vector<std::uint32_t>{0x3fc00000, 0x7f800000, 0x80000000}));
  EXPECT_EQ(values<std::uint64_t>("[18446744073709551615, 9007199254740993]", DType::u64, 2),
            (std::vector<std::uint64_t>{~0ull, 9007199254740993ull}));
}

TEST(generate, iota_is_exact_in_integers_and_rounds_in_floats) {
  EXPECT_EQ(values<std::int32_t>("{\"kind\":\"iota\",\"start\":5,\"step\":-3}", DType::s32, 4),
            (std::vector<std::int32_t>{5, 2, -1, -4}));
  EXPECT_EQ(values<std::uint8_t>("{\"iota\":[254,1]}", DType::u8, 4),
            (std::vector<std::uint8_t>{254, 255, 0, 1}));
  EXPECT_EQ(values<float>("{\"iota\":{\"start\":0.5,\"step\":0.25}}", DType::f32, 3),
            (std::vector<float>{0.5f, 0.75f, 1.0f}));
  EXPECT_EQ(values<std::uint16_t>("{\"kind\":\"iota\"}", DType::f16, 3),
            (std::vector<std::uint16_t>{0, 0x3c00, 0x4000}));
  // 2049 is halfway between 2048 and 2050 in binary16 and goes to the even mantissa
  EXPECT_EQ(values<std::uint16_t>("[2049, 2051]", DType::f16, 2),
            (std::vector<std::uint16_t>{0x6800, 0x6802}));
}

TEST(generate, integers_round_to_nearest_even) {
  EXPECT_EQ(values<std::int32_t>("[0.5, 1.5, 2.5, -0.5, -1.5]", DType::s32, 5),
            (std::vector<std::int32_t>{0, 2, 2, 0, -2}));
}

TEST(generate, perm_is_a_permutation) {
  auto p = values<std::uint32_t>("{\"kind\":\"perm\",\"seed\":9}", DType::u32, 100);
  std::sort(p.begin(), p.end());
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(p[i], i);
}

TEST(generate, concat_and_uninit_keep_track_of_unwritten_bytes) {
  const auto g = make(
      "{\"kind\":\"concat\",\"parts\":[{\"kind\":\"fill\",\"value\":1,\"count\":2},{\"kind\":\"uninit\","
      "\"count\":3},"
      "{\"kind\":\"values\",\"values\":[7]}]}",
      DType::u16, 6);
  EXPECT_EQ(g.bytes, (std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0}));
  ASSERT_EQ(g.unwritten.size(), 1u);
  EXPECT_EQ(g.unwritten[0], (std::pair<std::uint64_t, std::uint64_t>{4, 10}));
}

TEST(generate, says_what_is_wrong) {
  EXPECT_NE(message_of("\"zeros\"", DType::u8, 1).find("did you mean zero?"), std::string::npos);
  EXPECT_NE(message_of("{\"kind\":\"randint\",\"lo\":0,\"hi\":3}", DType::u8, 1).find("\"seed\""),
            std::string::npos);
  EXPECT_NE(message_of("{\"kind\":\"randint\",\"seed\":1,\"lo\":4,\"hi\":3}", DType::u8, 1)
                .find("hi must not be below lo"),
            std::string::npos);
  EXPECT_NE(message_of("{\"seed\":1}", DType::u8, 1).find("must name its generator"), std::string::npos);
  EXPECT_NE(message_of("[1,2,3]", DType::u8, 2).find("must have 2 values"), std::string::npos);
  EXPECT_NE(message_of("[\"fff\"]", DType::u8, 1).find("8 bits"), std::string::npos);
  EXPECT_NE(message_of("[\"xyz\"]", DType::u8, 1).find("hex"), std::string::npos);
  EXPECT_NE(message_of("{\"kind\":\"choice\",\"seed\":1,\"of\":[]}", DType::u8, 1).find("to choose from"),
            std::string::npos);
  EXPECT_NE(message_of("{\"concat\":[{\"fill\":1}]}", DType::u8, 1).find("\"count\""), std::string::npos);
}

TEST(generate, crc32_of_the_check_string) {
  // "123456789" -> cbf43926: the check value in every catalogue of CRCs
  const std::string s = "123456789";
  EXPECT_EQ(crc32(reinterpret_cast<const std::uint8_t*>(s.data()), s.size()), 0xcbf43926u);
  EXPECT_EQ(crc32(nullptr, 0), 0u);
}

}  // namespace
}  // namespace cgp::spec
