// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <random>

#include "cgp/base/dtype.h"
#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/markup.h"
#include "cgp/base/text.h"

using namespace cgp;

TEST(float16, every_bit_pattern_survives_the_round_trip) {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    double h = double(half::from_bits(std::uint16_t(b))), f = double(bfloat16::from_bits(std::uint16_t(b)));
    if (h == h) {
      EXPECT_EQ(half(h).bits, b);
    }
    if (f == f) {
      EXPECT_EQ(bfloat16(f).bits, b);
    }
  }
  for (std::uint32_t b = 0; b < 256; ++b) {
    double x = double(float8_e4m3::from_bits(std::uint8_t(b))),
           y = double(float8_e5m2::from_bits(std::uint8_t(b)));
    if (x == x) {
      EXPECT_EQ(float8_e4m3(x).bits, b) << x;
    }
    if (y == y && std::isfinite(y)) {
      EXPECT_EQ(float8_e5m2(y).bits, b) << y;
    }
  }
}

// Independent statement of rounding: of all representable values pick the nearest, ties to the even pattern.
template <class F>
F nearest(double v, int patterns) {
  F best = F::from_bits(0);
  double distance = std::numeric_limits<double>::infinity();
  for (int b = 0; b < patterns; ++b) {
    F c = F::from_bits(decltype(F::bits)(b));
    double d = double(c);
    if (!std::isfinite(d) || std::signbit(d) != std::signbit(v)) continue;
    double e = std::fabs(d - v);
    if (e < distance || (e == distance && !(b & 1))) best = c, distance = e;
  }
  return best;
}

TEST(float16, rounding_picks_the_nearest_value_and_ties_go_to_even) {
  std::mt19937_64 rng(7);
  std::uniform_real_distribution<double> exponent(-12, 8.7), mantissa(-2, 2);
  for (int i = 0; i < 3000; ++i) {
    double v = mantissa(rng) * std::exp2(exponent(rng));
    if (std::fabs(v) < 448) {
      EXPECT_EQ(float8_e4m3(v).bits, nearest<float8_e4m3>(v, 256).bits) << v;
    }
    EXPECT_EQ(float8_e5m2(v).bits, nearest<float8_e5m2>(v, 256).bits) << v;
  }
  for (double v : {248.0, 240.0, 256.0, 272.0, 304.0, 447.9, 463.9, 0.0009765625, -17.0, 0.0146484375})
    EXPECT_EQ(float8_e4m3(v).bits, nearest<float8_e4m3>(v, 256).bits) << v;
  EXPECT_EQ(float8_e4m3(1e9).bits, 0x7e);
  EXPECT_EQ(float8_e4m3(-1e9).bits, 0xfe);
  EXPECT_EQ(half(65520.0).bits, 0x7c00);  // tie with the next binade: to infinity
  EXPECT_EQ(half(65519.99).bits, 0x7bff);
  EXPECT_EQ(half(std::exp2(-25)).bits, 0);  // tie with the smallest subnormal: to even zero
  EXPECT_EQ(half(std::exp2(-25) * 1.01).bits, 1);
  EXPECT_EQ(bfloat16(1.0 + 1.0 / 256).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.0 + 3.0 / 256).bits, 0x3f82);
}

TEST(error, a_message_has_rule_where_why_and_hint) {
  BuildError e("tile must fit", Here{"k.cpp", 12}, "needs 300000 bytes, the device has 232448",
               "use fewer stages");
  EXPECT_STREQ(
      e.what(),
      "k.cpp:12: tile must fit\n  why:  needs 300000 bytes, the device has 232448\n  hint: use fewer stages");
  ParseError p("unknown instruction 'adx'", 3, 5, "  \tadx.f32 %f1, %f2;");
  EXPECT_NE(std::string(p.what()).find("  3 |   \tadx.f32 %f1, %f2;\n    |   \t ^"), std::string::npos)
      << p.what();
}

TEST(text, numbers_and_names) {
  EXPECT_EQ(text::grouped(1234567), "1,234,567");
  EXPECT_EQ(text::bytes(1536), "1.5 KiB");
  EXPECT_EQ(text::bytes(1 << 20), "1 MiB");
  EXPECT_EQ(text::closest("sotfmax", {"softmax", "gemm", "reduce"}), std::vector<std::string>{"softmax"});
  EXPECT_EQ(text::cat("a", 1, 'c', 2.5f, true), "a1c2.5true");
}

TEST(file, a_missing_file_is_named_with_the_reason) {
  try {
    read_file("no/such/file");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no/such/file"), std::string::npos);
    EXPECT_EQ(e.why(), "No such file or directory");
  }
}

// As root, a rename over /dev/null would be the end of it.
TEST(file, links_and_pipes_stay_what_they_are) {
  namespace fs = std::filesystem;
  const std::string folder = testing::TempDir() + "cgp_file_" + std::to_string(getpid());
  fs::create_directories(folder);
  write_file(folder + "/real", "old");
  fs::create_symlink("real", folder + "/link");
  write_file(folder + "/link", "new");
  EXPECT_TRUE(fs::is_symlink(folder + "/link"));
  EXPECT_EQ(read_file(folder + "/real"), "new");
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  const int pipe = open((folder + "/pipe").c_str(), O_RDWR | O_NONBLOCK);
  write_file(folder + "/pipe", "through");
  char got[16] = {};
  EXPECT_EQ(read(pipe, got, sizeof got), 7);
  EXPECT_STREQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(folder + "/pipe"));
  close(pipe);
  EXPECT_EQ(write_problem(folder + "/not yet"), "");
  EXPECT_EQ(write_problem(folder + "/real"), "");
  EXPECT_EQ(write_problem("a name without a folder"), "");
  EXPECT_EQ(write_problem(folder), "Is a directory");
  EXPECT_EQ(write_problem(folder + "/no/file"), "No such file or directory");
  EXPECT_EQ(write_problem(""), "No such file or directory");
  fs::remove_all(folder);
}

TEST(text, markup_has_no_characters_with_a_meaning) {
  EXPECT_EQ(text::escape_markup(R"(a<b> & "c" 'd')"), "a&lt;b&gt; &amp; &#34;c&#34; &#39;d&#39;");
  EXPECT_EQ(text::escape_markup(""), "");
}

TEST(dtype, integers_wrap_and_floats_round) {
  std::uint8_t b;
  store_from_double(DType::u8, &b, 0, 257);
  EXPECT_EQ(b, 1);
  store_from_double(DType::u8, &b, 0, -1);
  EXPECT_EQ(b, 255);
  for (int i = 0; i < kDTypeCount; ++i) EXPECT_EQ(parse_dtype(name(DType(i))), DType(i));
  EXPECT_FALSE(parse_dtype("f17"));
}
