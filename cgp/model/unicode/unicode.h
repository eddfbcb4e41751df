// SPDX-License-Identifier: Apache-2.0
#pragma once
// Code points of UTF-8 text and their properties in Unicode 16.0: what pre-tokenizers and normalizers ask.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cgp::model::unicode {

/// General categories, in alphabetical order of their names.
enum Category : std::uint8_t {
  Cc,
  Cf,
  Cn,
  Co,
  Cs,
  Ll,
  Lm,
  Lo,
  Lt,
  Lu,
  Mc,
  Me,
  Mn,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Pe,
  Pf,
  Pi,
  Po,
  Ps,
  Sc,
  Sk,
  Sm,
  So,
  Zl,
  Zp,
  Zs
};
inline constexpr int kCategories = 30;

/// Bit c is set for category c.
using CategorySet = std::uint32_t;
/// Of "L", "Lu", "N", …; 0 for an unknown name.
CategorySet category_set(std::string_view name);

Category category(std::uint32_t point);
/// White_Space of the Unicode Character Database.
bool is_space(std::uint32_t point);
/// Simple lower case, one code point for one.
std::uint32_t lower(std::uint32_t point);

inline constexpr std::uint32_t kReplacement = 0xFFFD;

struct Decoded {
  std::uint32_t point;  ///< U+FFFD for a byte that is no part of a character
  std::uint32_t size;   ///< bytes, at least 1
};
/// The character at `at` < text.size(). A byte that begins no valid character (RFC 3629) counts alone.
Decoded decode(std::string_view text, std::size_t at);
/// Where the character that ends at `end` begins, as decode() from `from` finds it.
std::size_t previous(std::string_view text, std::size_t from, std::size_t end);
void append(std::string& out, std::uint32_t point);
/// Bytes at the end of `text` that begin a character whose rest is missing: 0 to 3.
std::size_t incomplete_suffix(std::string_view text);
/// `text` with every byte that decode() refuses as U+FFFD.
std::string valid(std::string_view text);

/// Canonical decomposition, and composition after it.
std::string nfd(std::string_view text);
std::string nfc(std::string_view text);

}  // namespace cgp::model::unicode
