// SPDX-License-Identifier: Apache-2.0
#pragma once
// The regular expressions of pre-tokenizers, over UTF-8 text with Unicode classes.
//
// Of Oniguruma's and fancy-regex's syntax: alternation, groups (?:…), (…) and (?i:…), classes [a-z\p{L}…], \p{…} and
// \P{…} of general categories, \s \S \d \D \w \W \b \B, the quantifiers ? * + {m,n} greedy or possessive, (?=…) and
// (?!…), ^ and $ (the text's ends), and escapes \r \n \t \x{…} \u…. Matching is leftmost and by order of the
// alternatives, with backtracking. What else a pattern has is Unsupported; a malformed pattern is a ParseError.
//
// A byte that is no part of a character matches what U+FFFD matches.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cgp/model/unicode/unicode.h"

namespace cgp::model::unicode {

struct CharClass {
  std::array<std::uint64_t, 2> ascii{};  ///< bit of each code point below 128, `negated` included
  CategorySet categories = 0;
  bool spaces = false, not_spaces = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;  ///< first and last
  bool negated = false;

  bool has_ascii(unsigned char c) const { return ascii[c >> 6] >> (c & 63) & 1; }
  bool has(std::uint32_t point) const {
    return point < 128 ? has_ascii(static_cast<unsigned char>(point)) : has_wide(point);
  }
  bool has_wide(std::uint32_t point) const;
  /// Whether no character is in both; false where that is not obvious.
  bool disjoint(const CharClass& other) const;
};

class Regex {
 public:
  explicit Regex(std::string_view pattern);

  /// The end of the match that begins at `at`, if there is one. Throws Error where it would take more than
  /// 64 steps a byte of the text, and a million.
  std::optional<std::size_t> match(std::string_view text, std::size_t at) const;

  /// Calls piece(begin, end) for each part of text: the matches, and what lies between them. A match of nothing cuts.
  template <class F>
  void split(std::string_view text, F&& piece) const {
    std::size_t begin = 0;  // of the part that no match has taken
    for (std::size_t at = 0; at < text.size();) {
      std::optional<std::size_t> end;
      if (may_begin(static_cast<unsigned char>(text[at]))) end = match(text, at);
      if (!end || (*end == at && at == begin)) {
        at += decode(text, at).size;
        continue;
      }
      if (at > begin) piece(begin, at);
      begin = at;
      if (*end > at) {
        piece(at, *end);
        begin = at = *end;
      } else {
        at += decode(text, at).size;
      }
    }
    if (begin < text.size()) piece(begin, text.size());
  }

  enum class Op : std::uint8_t {
    span,
    possessive,
    split,
    jump,
    mark,
    progress,
    ahead,
    not_ahead,
    start,
    end,
    word,
    not_word,
    accept
  };
  struct Instruction {
    Op op;
    std::uint32_t cls = 0, min = 0, max = 0;  ///< span; cls is a slot for mark and progress
    std::uint32_t target = 0;                 ///< where split goes second; jump; the end of a lookahead
  };

 private:
  friend class RegexCompiler;
  bool may_begin(unsigned char c) const { return c >= 128 || (first_[c >> 6] >> (c & 63) & 1); }
  struct Matcher;

  std::vector<Instruction> program_;
  std::vector<CharClass> classes_;
  std::vector<std::uint32_t> alternatives_;           ///< where each of the outermost ones begins
  std::array<std::uint32_t, 256> candidates_{};       ///< of alternatives_, by first byte
  std::array<std::uint64_t, 2> first_{~0ull, ~0ull};  ///< ASCII bytes that some match begins with
  std::uint32_t slots_ = 0;
};

}  // namespace cgp::model::unicode
