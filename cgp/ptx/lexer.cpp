// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/lexer.h"

#include <algorithm>
#include <array>

#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

enum : std::uint8_t { kBlank = 1, kStart = 2, kWord = 4, kDigit = 8 };

constexpr auto kClass = [] {
  std::array<std::uint8_t, 256> t{};
  for (char c : {' ', '\t', '\r', '\n', '\f', '\v'}) t[std::uint8_t(c)] = kBlank;
  for (int c = 'a'; c <= 'z'; ++c) t[std::size_t(c)] = kStart | kWord;
  for (int c = 'A'; c <= 'Z'; ++c) t[std::size_t(c)] = kStart | kWord;
  for (int c = '0'; c <= '9'; ++c) t[std::size_t(c)] = kWord | kDigit;
  t['_'] = t['$'] = kStart | kWord;
  t['%'] = kStart;
  return t;
}();

bool has(char c, std::uint8_t what) { return kClass[std::uint8_t(c)] & what; }

std::string printable(char c) {
  const auto u = static_cast<unsigned char>(c);
  if (u >= 0x20 && u < 0x7f) return std::string("'") + c + "'";
  return text::cat("byte ", text::hex(u));
}

}  // namespace

void Lexer::fail(std::size_t position, std::string rule, std::string hint) const {
  position = std::min(position, text_.size());
  const std::string_view before = text_.substr(0, position);
  const std::size_t newline = before.rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  std::string_view line = text_.substr(start, std::min(text_.find('\n', start), text_.size()) - start);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  std::size_t column = position - start;
  std::string shown(line);
  // Long lines (tensor instructions, minified text): keep the neighbourhood of the error.
  const int number = int(std::count(before.begin(), before.end(), '\n')) + 1;
  if (shown.size() > 160) {
    const std::size_t from = column > 80 ? column - 80 : 0;
    shown = shown.substr(from, 160);
    if (hint.empty())
      hint = text::cat("this is column ", column + 1, " of a long line, shown from column ", from + 1);
    column -= from;
  }
  for (char& c : shown)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  throw ParseError(std::move(rule), number, int(column) + 1, shown, std::move(hint));
}

void Lexer::skip_blank() {
  for (;;) {
    while (at_ < text_.size() && has(text_[at_], kBlank)) line_ += text_[at_++] == '\n';
    if (at_ + 1 >= text_.size()) return;
    const char c = text_[at_], d = text_[at_ + 1];
    if (c == '/' && d == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '/' && d == '*') {
      const std::size_t close = text_.find("*/", at_ + 2);
      if (close == std::string_view::npos) fail(at_, "a comment /* must be closed by */");
      line_ += std::uint32_t(
          std::count(text_.begin() + std::ptrdiff_t(at_), text_.begin() + std::ptrdiff_t(close), '\n'));
      at_ = close + 2;
    } else if (c == '#' && (at_ == 0 || text_[at_ - 1] == '\n')) {  // a preprocessor's line marker
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

// Dots and double colons belong to the word when more of the word follows them.
std::string_view Lexer::scan_word() {
  const std::size_t from = at_;
  const std::size_t n = text_.size();
  ++at_;
  for (;;) {
    while (at_ < n && has(text_[at_], kWord)) ++at_;
    if (at_ + 1 < n && text_[at_] == '.' && has(text_[at_ + 1], kWord)) {
      ++at_;
    } else if (at_ + 2 < n && text_[at_] == ':' && text_[at_ + 1] == ':' && has(text_[at_ + 2], kWord)) {
      at_ += 2;
    } else {
      return text_.substr(from, at_ - from);
    }
  }
}

std::string_view Lexer::scan_number() {
  const std::size_t from = at_;
  const bool prefixed = text_[at_] == '0' && at_ + 1 < text_.size() &&
                        std::string_view("xXfFdDbB").find(text_[at_ + 1]) != std::string_view::npos;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    const bool exponent_sign =
        (c == '+' || c == '-') && !prefixed && at_ > from && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
    if (!has(c, kWord) && !(c == '.' && !prefixed) && !exponent_sign) break;
    ++at_;
  }
  return text_.substr(from, at_ - from);
}

Token Lexer::next() {
  skip_blank();
  Token t;
  t.line = line_;
  if (at_ >= text_.size()) {
    t.text = text_.substr(text_.size());
    return t;
  }
  const char c = text_[at_];
  if (has(c, kStart)) {
    // '%' alone is the remainder operator of constant expressions.
    if (c != '%' || (at_ + 1 < text_.size() && has(text_[at_ + 1], kWord))) {
      t.kind = TokenKind::word;
      t.text = scan_word();
      return t;
    }
  } else if (has(c, kDigit)) {
    t.kind = TokenKind::number;
    t.text = scan_number();
    return t;
  } else if (c == '.' && at_ + 1 < text_.size() && has(text_[at_ + 1], kWord)) {
    const std::size_t from = at_++;
    for (;;) {
      while (at_ < text_.size() && has(text_[at_], kWord)) ++at_;
      if (at_ + 2 >= text_.size() || text_[at_] != ':' || text_[at_ + 1] != ':' ||
          !has(text_[at_ + 2], kWord))
        break;
      at_ += 2;
    }
    t.kind = TokenKind::directive;
    t.text = text_.substr(from, at_ - from);
    return t;
  } else if (c == '"') {
    const std::size_t from = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size() || text_[at_] != '"') fail(from - 1, "a string must end on its line");
    t.kind = TokenKind::string;
    t.text = text_.substr(from, at_++ - from);
    return t;
  }
  if (std::string_view("{}()[]<>,;:@!|&^~+-*/%=?").find(c) == std::string_view::npos)
    fail(at_, text::cat("unexpected ", printable(c)));
  t.kind = TokenKind::punctuation;
  t.punctuation = c;
  t.text = text_.substr(at_++, 1);
  return t;
}

}  // namespace cgp::ptx
