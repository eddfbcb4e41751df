// SPDX-License-Identifier: Apache-2.0
#pragma once
// PTX text to tokens. An opcode with its modifiers is one word token ("ld.global.v4.f32"), a directive is a
// word that starts with a dot. Tokens are views into the text, which must outlive them.
#include <cstdint>
#include <string_view>

#include "cgp/base/error.h"

namespace cgp::ptx {

enum class TokenKind : std::uint8_t { word, directive, number, string, punctuation, end };

struct Token {
  TokenKind kind = TokenKind::end;
  char punctuation = 0;    ///< the character of a punctuation token
  std::uint32_t line = 1;  ///< 1-based
  std::string_view text;   ///< a string token is without its quotes
  bool is(char c) const { return kind == TokenKind::punctuation && punctuation == c; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();
  std::string_view text() const { return text_; }
  std::size_t position() const { return at_; }
  /// Continues at a position that next() returned a token of: its line must come along.
  void seek(std::size_t position, std::uint32_t line) { at_ = position, line_ = line; }
  [[noreturn]] void fail(std::size_t position, std::string rule, std::string hint = {}) const;

 private:
  void skip_blank();
  std::string_view scan_word();
  std::string_view scan_number();

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace cgp::ptx
