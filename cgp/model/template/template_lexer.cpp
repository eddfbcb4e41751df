// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/template/template_lexer.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model::jinja {

namespace {

bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return c == '_' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 128;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : name_(name) {
    for (std::size_t i = 0; i < source.size(); ++i) {  // \r\n and \r are \n
      if (source[i] != '\r')
        source_ += source[i];
      else if (i + 1 == source.size() || source[i + 1] != '\n')
        source_ += '\n';
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Word> run() {
    const std::string_view all(source_);
    while (at_ < all.size()) {
      const std::size_t open = next_tag(at_);
      data(all.substr(at_, open - at_), open);
      if (open == all.size()) break;
      at_ = open + 2;
      const char kind = all[open + 1];
      if (at_ < all.size() && (all[at_] == '-' || all[at_] == '+')) ++at_;
      if (kind == '#') {
        std::size_t close = all.find("#}", at_);
        if (close == all.npos) fail("a comment has no end");
        count_lines(at_, close);
        bool strip = close > at_ && all[close - 1] == '-';
        at_ = close + 2;
        after_tag(strip, true);
      } else if (kind == '%' && is_raw()) {
        raw();
      } else {
        inside(kind == '{');
      }
    }
    add(Word::end, "");
    return std::move(words_);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw ParseError(
        ErrorText{"a chat template must be Jinja", text::cat(name_, ", line ", line_), std::string(why), {}});
  }
  void add(Word::Kind kind, std::string text) { words_.push_back({kind, std::move(text), line_}); }
  void count_lines(std::size_t from, std::size_t to) {
    line_ +=
        int(std::count(source_.begin() + std::ptrdiff_t(from), source_.begin() + std::ptrdiff_t(to), '\n'));
  }
  std::size_t next_tag(std::size_t from) const {
    for (std::size_t i = from; i + 1 < source_.size(); ++i)
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    return source_.size();
  }

  /// Text before the tag at `open`, which may take white space from it.
  void data(std::string_view text, std::size_t open) {
    const std::size_t begin = at_;
    if (open < source_.size()) {
      char mode = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (mode == '-') {
        while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
      } else if (mode != '+' && source_[open + 1] != '{') {
        std::size_t keep = text.size();
        while (keep > 0 && is_space(text[keep - 1]) && text[keep - 1] != '\n') --keep;
        bool line_start = keep > 0 ? text[keep - 1] == '\n' : begin == 0 || source_[begin - 1] == '\n';
        if (line_start) text = text.substr(0, keep);
      }
    }
    if (!text.empty()) add(Word::data, std::string(text));
    count_lines(begin, open);
    at_ = open;
  }
  /// What the end of a tag takes from the text after it.
  void after_tag(bool strip, bool trim) {
    std::size_t begin = at_;
    if (strip) {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
    } else if (trim && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    count_lines(begin, at_);
  }

  bool is_raw() const {
    std::size_t i = at_;
    while (i < source_.size() && is_space(source_[i])) ++i;
    return source_.compare(i, 3, "raw") == 0 && (i + 3 == source_.size() || !is_name(source_[i + 3]));
  }
  void raw() {
    const std::string_view all(source_);
    std::size_t close = all.find("%}", at_);
    if (close == all.npos) fail("a tag has no end");
    bool strip = all[close - 1] == '-';
    at_ = close + 2;
    after_tag(strip, true);
    for (std::size_t open = at_; (open = all.find("{%", open)) != all.npos; ++open) {
      std::size_t i = open + 2;
      while (i < all.size() && (is_space(all[i]) || all[i] == '-')) ++i;
      if (all.substr(i, 6) != "endraw") continue;
      data(all.substr(at_, open - at_), open);
      std::size_t end = all.find("%}", i);
      if (end == all.npos) break;
      at_ = end + 2;
      after_tag(all[end - 1] == '-', true);
      return;
    }
    fail("raw has no endraw");
  }

  /// The words of a tag up to its end.
  void inside(bool output) {
    const std::string_view all(source_), close = output ? "}}" : "%}";
    add(output ? Word::begin_output : Word::begin_block, "");
    int braces = 0;
    while (true) {
      while (at_ < all.size() && is_space(all[at_])) line_ += all[at_++] == '\n';
      if (at_ == all.size()) fail("a tag has no end");
      if (braces == 0) {
        char sign = all[at_];
        std::size_t skip = sign == '-' || sign == '+' ? 1 : 0;
        if (all.substr(at_ + skip, 2) == close) {
          at_ += skip + 2;
          add(output ? Word::end_output : Word::end_block, "");
          after_tag(sign == '-', !output && sign != '+');
          return;
        }
      }
      const char c = all[at_];
      if (is_digit(c)) {
        number();
      } else if (is_name(c)) {
        std::size_t begin = at_;
        while (at_ < all.size() && is_name(all[at_])) ++at_;
        add(Word::name, std::string(all.substr(begin, at_ - begin)));
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        static constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "//", "**"};
        std::string_view word = all.substr(at_, 1);
        for (std::string_view two : kTwo)
          if (all.substr(at_, 2) == two) word = two;
        if (word.size() == 1 && std::string_view("+-*/%~<>=()[]{},.:|").find(c) == std::string_view::npos)
          fail(text::cat("'", word, "' has no meaning here"));
        braces += c == '{' || c == '(' || c == '[';
        braces -= c == '}' || c == ')' || c == ']';
        if (braces < 0) fail(text::cat("'", word, "' closes nothing"));
        at_ += word.size();
        add(Word::op, std::string(word));
      }
    }
  }
  void number() {
    std::size_t begin = at_;
    bool whole = true;
    while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) ++at_;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      whole = false;
      for (++at_; at_ < source_.size() && is_digit(source_[at_]);) ++at_;
    }
    if (std::size_t i = at_; i < source_.size() && (source_[i] == 'e' || source_[i] == 'E')) {
      if (++i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      if (i < source_.size() && is_digit(source_[i])) {
        whole = false;
        for (at_ = i; at_ < source_.size() && is_digit(source_[at_]);) ++at_;
      }
    }
    std::string text = source_.substr(begin, at_ - begin);
    std::erase(text, '_');
    add(whole ? Word::integer : Word::number, text);
  }
  void string(char quote) {
    std::string out;
    for (++at_;; ++at_) {
      if (at_ >= source_.size()) fail("a string has no end");
      char c = source_[at_];
      if (c == quote) break;
      line_ += c == '\n';
      if (c != '\\' || at_ + 1 == source_.size()) {
        out += c;
        continue;
      }
      char e = source_[++at_];
      constexpr std::string_view kFrom = "nrtbfv0\\'\"", kTo("\n\r\t\b\f\v\0\\'\"", 10);
      if (std::size_t i = kFrom.find(e); i != kFrom.npos) {
        out += kTo[i];
      } else if (e == 'x' || e == 'u') {
        std::uint32_t point = 0;
        std::size_t digits = e == 'x' ? 2 : 4;
        for (std::size_t i = 0; i < digits; ++i) {
          char h = ++at_ < source_.size() ? source_[at_] : ' ';
          std::size_t value = std::string_view("0123456789abcdefABCDEF").find(h);
          if (value == std::string_view::npos) fail("a string has a bad escape");
          point = point * 16 + std::uint32_t(value > 15 ? value - 6 : value);
        }
        unicode::append(out, point >= 0xD800 && point < 0xE000 ? unicode::kReplacement : point);
      } else {
        out += {'\\', e};
      }
    }
    ++at_;
    add(Word::string, std::move(out));
  }

  const std::string& name_;
  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Word> words_;
};

}  // namespace

std::vector<Word> lex(std::string_view source, const std::string& name) { return Lexer(source, name).run(); }

}  // namespace cgp::model::jinja
