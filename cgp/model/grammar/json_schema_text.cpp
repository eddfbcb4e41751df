// SPDX-License-Identifier: Apache-2.0
// Ranges of numbers and regular expressions as GBNF.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/grammar/grammar_rules.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

using text::cat;

std::string digits(std::size_t count) { return count == 0 ? "" : cat(" [0-9]{", count, "}"); }
std::string digit_range(char first, char last) {
  return first == last ? cat('"', first, '"') : cat('[', first, '-', last, ']');
}

/// Of equally many digits.
std::string same_length(std::string_view first, std::string_view last) {
  if (first.empty()) return "";
  const std::string_view first_rest = first.substr(1), last_rest = last.substr(1);
  if (first_rest.find_first_not_of('0') == first_rest.npos &&
      last_rest.find_first_not_of('9') == last_rest.npos)
    return digit_range(first[0], last[0]) + digits(first_rest.size());
  const std::string nines(first_rest.size(), '9'), zeros(first_rest.size(), '0');
  if (first[0] == last[0])
    return cat(digit_range(first[0], first[0]), " ", same_length(first_rest, last_rest));
  std::string out = cat("(", digit_range(first[0], first[0]), " ", same_length(first_rest, nines));
  if (first[0] + 1 < last[0])
    out += cat(" | ", digit_range(char(first[0] + 1), char(last[0] - 1)), digits(first_rest.size()));
  return cat(out, " | ", digit_range(last[0], last[0]), " ", same_length(zeros, last_rest), ")");
}

/// From `first` to `last`; null: up to 20 digits.
std::string not_negative(std::uint64_t first, const std::uint64_t* last) {
  const std::string low = std::to_string(first), high = last ? std::to_string(*last) : "";
  std::string out;
  const std::size_t most = last ? high.size() : low.size();
  for (std::size_t n = low.size(); n <= most; ++n) {
    const std::string from = n == low.size() ? low : "1" + std::string(n - 1, '0');
    const std::string to = last && n == high.size() ? high : std::string(n, '9');
    out += cat(out.empty() ? "" : " | ", same_length(from, to));
  }
  if (!last && low.size() < 20) out += cat(" | [1-9] [0-9]{", low.size(), ",19}");
  return cat("(", out, ")");
}
std::uint64_t magnitude(std::int64_t x) { return x < 0 ? 0 - std::uint64_t(x) : std::uint64_t(x); }

/// Characters of a regular expression, written as JSON writes them within a string.
using Ranges = GrammarExpr::Ranges;

std::string class_of(const Ranges& ranges) {
  std::string out = "[";
  const auto put = [&](std::uint32_t p) {
    std::string hex = text::hex(p).substr(2);
    out += cat("\\U", std::string(8 - hex.size(), '0'), hex);
  };
  for (auto [first, last] : ranges) {
    put(first);
    if (last != first) out += '-', put(last);
  }
  return out + "]";
}

std::string in_json(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges plain;
  std::string escaped;
  const auto has = [&](std::uint32_t p) {
    return std::any_of(ranges.begin(), ranges.end(), [&](auto r) { return r.first <= p && p <= r.second; });
  };
  const auto add = [&](std::uint32_t first, std::uint32_t last) {
    if (first <= last) plain.push_back({first, last});
  };
  for (auto [first, last] : ranges) {
    add(std::max(first, 0x20u), std::min(last, 0x21u));
    add(std::max(first, 0x23u), std::min(last, 0x5Bu));
    add(std::max(first, 0x5Du), std::min(last, 0xD7FFu));
    add(std::max(first, 0xE000u), last);
  }
  constexpr std::pair<std::uint32_t, char> kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  for (auto [point, name] : kEscapes)
    if (has(point)) escaped += name == '"' || name == '\\' ? cat("\\", name) : std::string(1, name);
  std::string out = plain.empty() ? "" : class_of(plain);
  if (!escaped.empty()) out += cat(out.empty() ? "" : " | ", "\"\\\\\" [", escaped, "]");
  return out.find(" | ") == out.npos ? out : cat("(", out, ")");
}

/// ECMA-262's: alternatives, groups, classes, the escapes \d \w \s \D \W \S \t \n \r \f \v \0 \xHH \uHHHH, quantifiers
/// (greedy or lazy: the texts are the same), ^ and $ at the ends.
class PatternWriter {
 public:
  PatternWriter(std::string_view pattern, const std::string& where) : text_(pattern), where_(where) {}

  std::string write() {
    std::string out = alternatives(0);
    if (at_ < text_.size()) fail("there is a ')' too many");
    return out;
  }

 private:
  static constexpr std::uint32_t kLast = 0x10FFFF;
  [[noreturn]] void fail(std::string why) const {
    throw ParseError(
        ErrorText{"a pattern is a regular expression", cat(where_, ", byte ", at_), std::move(why), {}});
  }
  [[noreturn]] void unsupported(std::string what) const {
    throw Unsupported(ErrorText{"a pattern has classes, groups, alternatives and quantifiers",
                                cat(where_, ", byte ", at_),
                                cat("it has ", what),
                                {}});
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  /// An alternative without ^ may begin anywhere in the text, one without $ end anywhere.
  std::string alternatives(int depth) {
    if (depth > 40) unsupported("groups nested more than 40 deep");
    std::string out;
    do {
      const std::string any = cat(in_json({{0, kLast}}), "*");
      const bool starts = depth == 0 && take('^');
      std::string one = sequence(depth);
      const bool ends = depth == 0 && take('$');
      if (depth == 0 && !starts) one = cat(any, " ", one);
      if (depth == 0 && !ends) one = cat(one, " ", any);
      out += cat(out.empty() ? "" : " | ", one.empty() ? "\"\"" : one);
    } while (take('|'));
    return cat("(", out, ")");
  }
  std::string sequence(int depth) {
    std::string out;
    while (at_ < text_.size() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$' && (at_ + 1 == text_.size() || peek(1) == '|')) break;
      out += cat(out.empty() ? "" : " ", quantified(depth));
    }
    return out;
  }
  std::string quantified(int depth) {
    std::string one = atom(depth);
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') {
      ++at_;
      one += c;
    } else if (c == '{') {
      const std::size_t end = text_.find('}', at_);
      const std::string_view inside = end == text_.npos ? "" : text_.substr(at_ + 1, end - at_ - 1);
      if (inside.empty() || inside[0] == ',' || inside.find_first_not_of("0123456789,") != inside.npos)
        fail("a quantifier is {m}, {m,} or {m,n}");
      one += cat('{', inside, '}');
      at_ = end + 1;
    } else {
      return one;
    }
    take('?');
    if (peek() == '*' || peek() == '+' || peek() == '{') fail("there is nothing to repeat");
    return one;
  }
  std::string atom(int depth) {
    const char c = peek();
    switch (c) {
      case '(': {
        ++at_;
        if (peek() == '?' && peek(1) == '<' && peek(2) != '=' && peek(2) != '!') {
          const std::size_t end = text_.find('>', at_);
          if (end == text_.npos) fail("a group's name ends with '>'");
          at_ = end + 1;
        } else if (peek() == '?') {
          if (peek(1) != ':') unsupported("a lookaround");
          at_ += 2;
        }
        std::string inner = alternatives(depth + 1);
        if (!take(')')) fail("a group ends with ')'");
        return inner;
      }
      case '[':
        return in_json(char_class());
      case '.':
        ++at_;
        return in_json(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
      case '\\':
        return in_json(escape(false));
      case '^':
      case '$':
        unsupported("'^' or '$' within it");
      case '*':
      case '+':
      case '?':
      case '{':
        fail("there is nothing to repeat");
      default: {
        const std::uint32_t p = point();
        return in_json({{p, p}});
      }
    }
  }
  std::uint32_t point() {
    const unicode::Decoded d = unicode::decode(text_, at_);
    at_ += d.size;
    return d.point;
  }
  static Ranges complement(Ranges in) {
    std::sort(in.begin(), in.end());
    Ranges out;
    std::uint32_t next = 0;
    for (auto [first, last] : in) {
      if (first > next) out.push_back({next, first - 1});
      next = std::max(next, last + 1);
    }
    if (next <= kLast) out.push_back({next, kLast});
    return out;
  }
  std::uint32_t hexadecimal(std::size_t count) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < count; ++i, ++at_) {
      const char c = peek();
      const bool alphabetic = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!alphabetic && (c < '0' || c > '9')) fail(cat("the escape has ", count, " hexadecimal digits"));
      out = out * 16 + std::uint32_t(alphabetic ? (c | 32) - 'a' + 10 : c - '0');
    }
    if (out >= 0xD800 && out < 0xE000) unsupported("half of a surrogate pair");
    return out;
  }
  Ranges escape(bool in_class) {
    ++at_;
    const char c = peek();
    if (at_ < text_.size()) ++at_;
    const Ranges digit = {{'0', '9'}}, word = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                 space = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                          {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const auto one = [](std::uint32_t p) { return Ranges{{p, p}}; };
    switch (c) {
      case 'd':
        return digit;
      case 'D':
        return complement(digit);
      case 'w':
        return word;
      case 'W':
        return complement(word);
      case 's':
        return space;
      case 'S':
        return complement(space);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one(11);
      case 'x':
        return one(hexadecimal(2));
      case 'u':
        return one(hexadecimal(4));
      case 'b':
        if (in_class) return one(8);
        break;
      case '0':
        if (peek() < '0' || peek() > '9') return one(0);
        break;
      default:
        break;
    }
    const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '\0' || alphanumeric || static_cast<unsigned char>(c) >= 128) {
      --at_;
      unsupported(c == '\0' ? std::string("a '\\' at its end") : cat("the escape \\", c));
    }
    return one(static_cast<unsigned char>(c));
  }
  Ranges char_class() {
    ++at_;
    const bool negated = take('^');
    Ranges out;
    const auto one = [&] {
      if (peek() == '\\') return escape(true);
      const std::uint32_t p = point();
      return Ranges{{p, p}};
    };
    while (!take(']')) {
      if (at_ == text_.size()) fail("a class ends with ']'");
      Ranges first = one();
      if (peek() == '-' && at_ + 1 < text_.size() && peek(1) != ']') {
        ++at_;
        const Ranges last = one();
        const auto single = [](const Ranges& r) { return r.size() == 1 && r[0].first == r[0].second; };
        if (!single(first) || !single(last) || last[0].first < first[0].first)
          fail("a range of characters ascends");
        first[0].second = last[0].first;
      }
      out.insert(out.end(), first.begin(), first.end());
    }
    if (negated) out = complement(std::move(out));
    if (in_json(out).empty()) unsupported("a class of no character that JSON can write short");
    return out;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace

std::string gbnf_of_integers(const std::int64_t* first, const std::int64_t* last) {
  std::vector<std::string> ways;
  if (!last || *last >= 0) {
    const std::uint64_t to = last ? magnitude(*last) : 0;
    ways.push_back(not_negative(first && *first > 0 ? magnitude(*first) : 0, last ? &to : nullptr));
  }
  if (!first || *first < 0) {
    const std::uint64_t from = last && *last < 0 ? magnitude(*last) : 1, to = first ? magnitude(*first) : 0;
    ways.push_back(cat("\"-\" ", not_negative(from, first ? &to : nullptr)));
  }
  return cat("(", text::join(ways, " | "), ")");
}

std::string gbnf_of_pattern(std::string_view pattern, const std::string& where) {
  return PatternWriter(pattern, where).write();
}

}  // namespace cgp::model
