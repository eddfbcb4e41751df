// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/unicode/unicode.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/model/unicode/regex.h"

namespace cgp::model::unicode {
namespace {

TEST(Unicode, Properties) {
  EXPECT_EQ(category('a'), Ll);
  EXPECT_EQ(category(0x4E00), Lo);
  EXPECT_EQ(category(0x1F999), So);
  EXPECT_EQ(category(0x10FFFF), Cn);
  EXPECT_EQ(category(0x110000), Cn);
  EXPECT_EQ(category_set("L"), 1u << Ll | 1u << Lm | 1u << Lo | 1u << Lt | 1u << Lu);
  EXPECT_EQ(category_set("Xx"), 0u);
  for (std::uint32_t p : {0x20, 0x85, 0xA0, 0x3000, 0x2028}) EXPECT_TRUE(is_space(p)) << p;
  EXPECT_FALSE(is_space(0x200B));
  EXPECT_EQ(lower(0xC4), 0xE4u);
  EXPECT_EQ(lower(0x410), 0x430u);
}

TEST(Unicode, BytesThatAreNoCharacterCountAlone) {
  for (std::string_view bad :
       {"\xFF", "\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    Decoded d = decode(bad, 0);
    EXPECT_EQ(d.point, kReplacement);
    EXPECT_EQ(d.size, 1u);
  }
  EXPECT_EQ(decode("\xF0\x9F\xA6\x99", 0).point, 0x1F999u);
  EXPECT_EQ(previous("a\x80\x80", 0, 3), 2u);
  EXPECT_EQ(previous("a€", 0, 4), 1u);
  EXPECT_EQ(incomplete_suffix("a\xF0\x9F\xA6"), 3u);
  EXPECT_EQ(incomplete_suffix("a\xE0"), 1u);
  EXPECT_EQ(incomplete_suffix("a\xE0\x80"), 0u) << "no character begins so";
  EXPECT_EQ(incomplete_suffix("€"), 0u);
  EXPECT_EQ(valid("a\xFF€"), "a\uFFFD€");
}

TEST(Unicode, Normalization) {
  EXPECT_EQ(nfd("é"), "e\u0301");
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfd("한"), "\u1112\u1161\u11AB");
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "한");
  EXPECT_EQ(nfc("a\u0323\u0307"), "\u1EA1\u0307");
  EXPECT_EQ(nfc("a\u0307\u0323"), "\u1EA1\u0307") << "marks are put in canonical order first";
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C") << "an excluded composition";
  EXPECT_EQ(nfc("\u1E9B\u0323"), "\u1E9B\u0323");
}

std::string cut(std::string_view pattern, std::string_view text) {
  std::string out;
  Regex(pattern).split(text, [&](std::size_t b, std::size_t e) {
    out += text.substr(b, e - b);
    out += '|';
  });
  return out;
}

TEST(Regex, CutsAsWritten) {
  EXPECT_EQ(cut("b", "abc"), "a|b|c|");
  EXPECT_EQ(cut("\\p{N}{1,3}", "a12345"), "a|123|45|");
  EXPECT_EQ(cut("\\s+(?!\\S)|\\s+", "a   b"), "a|  | |b|");
  EXPECT_EQ(cut("(?i:'s|'ll)", "it'S he'LL"), "it|'S| he|'LL|");
  EXPECT_EQ(cut("(?i:'s)", "x'\u017F"), "x|'\u017F|") << "long s folds to s";
  EXPECT_EQ(cut("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "été 1"), "été| 1|");
  EXPECT_EQ(cut("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12"), "1|234|567| |12|");
  EXPECT_EQ(cut("(?=(\\d{3})+(?!\\d))", "1234567"), "1|234|567|");
  EXPECT_EQ(cut("\\s+$", "a  "), "a|  |");
  EXPECT_EQ(cut("[一-龥]+", "a一二b"), "a|一二|b|");
  EXPECT_EQ(cut("a++b|a", "aab"), "aab|");
  EXPECT_EQ(cut("a++a|b", "aab"), "aa|b|") << "possessive: nothing is given back";
  EXPECT_EQ(cut("(?:ab|a)c", "abcac"), "abc|ac|");
  EXPECT_EQ(cut("(?:a|ab)*c", "aababc"), "aababc|");
  EXPECT_EQ(cut("(?:a*)*b", "aab"), "aab|") << "an empty turn of a loop ends it";
  EXPECT_EQ(cut("\\p{Lu}*\\p{Ll}+", "HTMLPage"), "HTMLPage|");
  EXPECT_EQ(cut("[\\]\\-x]+", "a]-xb"), "a|]-x|b|");
  EXPECT_EQ(cut("\\xE9|\\u00E8|\\x{1F999}", "éè🦙a"), "é|è|🦙|a|");
  EXPECT_EQ(cut(".", "\xFF\x80"), "\xFF|\x80|") << "each byte that is no character stands alone";
}

TEST(Regex, WhatItLacksIsNamed) {
  for (std::string_view p : {"a+?", "(?<=a)b", "\\p{Han}", "[a&&b]", "(?<n>a)", "\\1"})
    EXPECT_THROW(Regex{p}, Unsupported) << p;
  for (std::string_view p : {"(a", "a)", "[a", "*a", "a{3,2}", "\\", "[z-a]", "\\x{110000}"})
    EXPECT_THROW(Regex{p}, ParseError) << p;
  std::string deep(1000, '(');
  EXPECT_THROW(Regex{deep}, ParseError);
}

TEST(Regex, ExponentialPatternsAreStopped) {
  std::string text(40, 'a');
  EXPECT_THROW(Regex("(?:a|a)*(?:a|a)*b").match(text, 0), Error);
}

}  // namespace
}  // namespace cgp::model::unicode
