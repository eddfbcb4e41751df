// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/files/json_cursor.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

using text::cat;

namespace {

constexpr int kMaxJsonDepth = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void put_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += char(0xc0 | c >> 6);
    out += char(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += char(0xe0 | c >> 12);
    out += char(0x80 | (c >> 6 & 63));
    out += char(0x80 | (c & 63));
  } else {
    out += char(0xf0 | c >> 18);
    out += char(0x80 | (c >> 12 & 63));
    out += char(0x80 | (c >> 6 & 63));
    out += char(0x80 | (c & 63));
  }
}

}  // namespace

void JsonCursor::fail(std::string rule, std::string why) const {
  throw ParseError(ErrorText{std::move(rule),
                             cat(file_, ", byte ", base_ + at_, subject_.empty() ? "" : ", ", subject_),
                             std::move(why),
                             {}});
}

char JsonCursor::peek() {
  constexpr std::string_view kIndentation = "        ";
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    at_ += text_.substr(at_, kIndentation.size()) == kIndentation ? kIndentation.size() : 1;
  if (at_ == text_.size()) fail("JSON must be complete", "the text ends here");
  return text_[at_];
}

void JsonCursor::expect(char c) {
  if (char found = peek(); found != c) fail(cat("JSON must have '", c, "' here"), cat("found '", found, "'"));
  ++at_;
}

void JsonCursor::open(char c) {
  expect(c);
  if (++depth_ > kMaxJsonDepth) fail(cat("JSON must be nested at most ", kMaxJsonDepth, " deep"));
}

bool JsonCursor::close(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

bool JsonCursor::more(char closing) {
  if (close(closing)) return false;
  expect(',');
  return true;
}

unsigned JsonCursor::hex4() {
  unsigned value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    char c = at_ < text_.size() ? text_[at_] : '\0';
    int digit = is_digit(c)            ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) fail("\\u must be followed by four hexadecimal digits");
    value = value * 16 + unsigned(digit);
  }
  return value;
}

std::string_view JsonCursor::plain() {
  const std::size_t begin = at_;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"' || c == '\\') return text_.substr(begin, at_++ - begin);
    if (static_cast<unsigned char>(c) < 0x20) fail("a string must have its control characters escaped");
  }
  fail("a string must end", "there is no closing quote");
}

/// Appends what an escape stands for, behind its backslash.
void JsonCursor::escaped(std::string& out) {
  char c = at_ < text_.size() ? text_[at_++] : '\0';
  constexpr std::string_view kNames = "\"\\/bfnrt", kMeans = "\"\\/\b\f\n\r\t";
  if (c == 'u') {
    std::uint32_t code = hex4();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      std::uint32_t low = hex4();
      if (low < 0xdc00 || low > 0xdfff) fail("the halves of a surrogate pair must follow one another");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code < 0xe000) {
      fail("the halves of a surrogate pair must follow one another");
    }
    put_utf8(out, code);
  } else if (std::size_t i = kNames.find(c); c != '\0' && i != std::string_view::npos) {
    out += kMeans[i];
  } else {
    fail("an escape must be one of JSON's");
  }
}

std::string_view JsonCursor::string(std::string& buffer) {
  expect('"');
  std::string_view first = plain();
  if (text_[at_ - 1] == '"') return first;
  buffer = first;
  for (;;) {
    escaped(buffer);
    buffer += plain();
    if (text_[at_ - 1] == '"') return buffer;
  }
}

std::string JsonCursor::string() {
  std::string buffer;
  return std::string(string(buffer));
}

std::string_view JsonCursor::raw() {
  peek();
  const std::size_t begin = at_;
  skip();
  return text_.substr(begin, at_ - begin);
}

std::uint64_t JsonCursor::integer() {
  if (!is_digit(peek())) fail("a whole number must stand here", "it does not begin with a digit");
  std::size_t start = at_;
  std::uint64_t value = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_)
    if (__builtin_mul_overflow(value, std::uint64_t(10), &value) ||
        __builtin_add_overflow(value, std::uint64_t(text_[at_] - '0'), &value))
      fail("a whole number must be below 2^64");
  if (text_[start] == '0' && at_ > start + 1) fail("a number must not begin with 0");
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E'))
    fail("a whole number must stand here", "it has a fraction or an exponent");
  return value;
}

void JsonCursor::skip() {
  auto digits = [&] {
    if (at_ == text_.size() || !is_digit(text_[at_])) fail("a number must have digits");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  char c = peek();
  if (c == '{') {
    open('{');
    if (!close('}')) do {
        if (peek() != '"') expect('"');
        skip();
        expect(':');
        skip();
      } while (more('}'));
    --depth_;
    return;
  }
  if (c == '[') return array([&] { skip(); });
  if (c == '"') {
    for (++at_, plain(); text_[at_ - 1] != '"'; plain())
      if (at_++ == text_.size()) fail("a string must end", "there is no closing quote");
    return;
  }
  for (std::string_view word : {"true", "false", "null"})
    if (text_.substr(at_, word.size()) == word) {
      at_ += word.size();
      return;
    }
  if (c == '-') ++at_;
  digits();
  if (at_ < text_.size() && text_[at_] == '.') ++at_, digits();
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    digits();
  }
}

void JsonCursor::end() {
  while (at_ < text_.size())
    if (char c = text_[at_++]; c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      --at_;
      fail("nothing may follow the JSON text");
    }
}

std::string json_escaped(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out;
}

std::string json_string(std::string_view s) { return '"' + json_escaped(s) + '"'; }

}  // namespace cgp::model
