// SPDX-License-Identifier: Apache-2.0
// GBNF to expressions.
#include <algorithm>
#include <unordered_map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/grammar/grammar.h"
#include "cgp/model/grammar/grammar_rules.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

using text::cat;
using Kind = GrammarExpr::Kind;

constexpr std::size_t kMaxGrammar = 1 << 20;
constexpr int kMaxGroups = 200;
constexpr std::uint32_t kLastPoint = 0x10FFFF;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

/// All characters but those of `in`.
GrammarExpr::Ranges complement(GrammarExpr::Ranges in) {
  std::sort(in.begin(), in.end());
  GrammarExpr::Ranges out;
  std::uint32_t next = 0;
  for (auto [first, last] : in) {
    if (first > next) out.push_back({next, first - 1});
    next = std::max(next, last + 1);
  }
  if (next <= kLastPoint) out.push_back({next, kLastPoint});
  return out;
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const std::string& name) : text_(text), name_(name) {
    if (text.size() > kMaxGrammar)
      fail("a grammar has at most 1 MB of text", cat("it has ", text.size(), " bytes"));
    for (; at_ < text.size(); at_ += unicode::decode(text, at_).size)
      if (static_cast<unsigned char>(text[at_]) >= 0x80 && unicode::decode(text, at_).size == 1)
        fail("a grammar is UTF-8", "this byte is no part of a character");
    at_ = 0;
  }

  GrammarRules rules() {
    for (skip(true); at_ < text_.size(); skip(true)) {
      const std::size_t begin = at_;
      const std::uint32_t rule = rule_index(rule_name());
      if (defined_[rule]) {
        at_ = begin;
        fail("a rule is defined once", cat("'", rules_[rule].name, "' has a definition above"));
      }
      defined_[rule] = true;
      rules_[rule].where = place(begin);
      skip(false);
      if (!text_.substr(at_).starts_with("::="))
        fail("a rule has ::= behind its name", cat("after '", rules_[rule].name, "'"));
      at_ += 3;
      skip(true);
      GrammarExpr expr = alternatives(0);
      rules_[rule].expr = std::move(expr);
      if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
        fail("a rule ends with its line", cat("there is '", text_[at_], "'"));
    }
    for (std::size_t i = 0; i < rules_.size(); ++i)
      if (!defined_[i]) {
        std::vector<std::string> names;
        for (std::size_t j = 0; j < rules_.size() && j < 1000; ++j)
          if (defined_[j]) names.push_back(rules_[j].name);
        const auto near = text::closest(rules_[i].name, names, 1);
        throw ParseError(ErrorText{"a rule is defined where it is used", rules_[i].where,
                                   cat("there is no '", rules_[i].name, "'"),
                                   near.empty() ? "" : cat("is '", near[0], "' meant?")});
      }
    const auto root = index_.find("root");
    if (root == index_.end())
      throw ParseError(
          ErrorText{"a grammar has a rule 'root'", name_, cat("it has ", rules_.size(), " rules"), {}});
    GrammarRules out = compile_rules(rules_, root->second);
    out.text = std::string(text_);
    return out;
  }

 private:
  std::string place(std::size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t begin = before.rfind('\n') + 1;
    return cat(name_, ", line ", line, ", column ", at - begin + 1);
  }
  [[noreturn]] void fail(std::string rule, std::string why = {}) const {
    throw ParseError(ErrorText{std::move(rule), place(at_), std::move(why), {}});
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  /// White space and comments.
  void skip(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_ == text_.size() || !lines) return;
      } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
        return;
      }
    }
  }
  std::string_view rule_name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    if (at_ == begin) fail("a rule has a name of letters, digits and '-'");
    return text_.substr(begin, at_ - begin);
  }
  std::uint32_t rule_index(std::string_view name) {
    const auto [it, added] = index_.try_emplace(std::string(name), std::uint32_t(rules_.size()));
    if (added) {
      rules_.push_back({std::string(name), {}, place(at_ - name.size())});
      defined_.push_back(false);
    }
    return it->second;
  }

  std::uint32_t hexadecimal(int digits) {
    std::uint32_t out = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail(cat("the escape has ", digits, " hexadecimal digits"));
      out = out * 16 + std::uint32_t(digit);
    }
    if (out > kLastPoint || (out >= 0xD800 && out < 0xE000))
      fail("an escape is a character", cat("it is ", text::hex(out)));
    return out;
  }
  /// One character of a literal or a class.
  std::uint32_t character() {
    if (peek() != '\\') {
      const unicode::Decoded d = unicode::decode(text_, at_);
      at_ += d.size;
      return d.point;
    }
    ++at_;
    const char c = peek();
    if (at_ < text_.size()) ++at_;
    switch (c) {
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      case 'U':
        return hexadecimal(8);
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<unsigned char>(c);
      default:
        --at_;
        fail("an escape is one of \\n \\r \\t \\\\ \\\" \\[ \\] \\x \\u \\U");
    }
  }
  GrammarExpr literal() {
    GrammarExpr out{.kind = Kind::text, .text = {}, .ranges = {}, .children = {}};
    const std::size_t begin = at_++;
    while (peek() != '"') {
      if (at_ == text_.size()) {
        at_ = begin;
        fail("a text ends with '\"'");
      }
      unicode::append(out.text, character());
    }
    ++at_;
    return out;
  }
  GrammarExpr characters() {
    GrammarExpr out{.kind = Kind::characters, .text = {}, .ranges = {}, .children = {}};
    const std::size_t begin = at_++;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    while (peek() != ']') {
      if (at_ == text_.size()) {
        at_ = begin;
        fail("a class of characters ends with ']'");
      }
      const std::uint32_t first = character();
      std::uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
        if (last < first)
          fail("a range of characters ascends", cat(text::hex(first), " to ", text::hex(last)));
      }
      out.ranges.push_back({first, last});
    }
    ++at_;
    if (negated) out.ranges = complement(std::move(out.ranges));
    return out;
  }
  std::uint32_t count() {
    std::uint64_t out = 0;
    const std::size_t begin = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      out = out * 10 + std::uint64_t(peek() - '0');
      if (out > 1'000'000) fail("a repetition is at most 1000000 times");
    }
    if (at_ == begin) fail("a repetition in braces has a number");
    return std::uint32_t(out);
  }
  void repeat(GrammarExpr& out) {
    if (out.children.empty()) fail(cat("'", peek(), "' has something to repeat before it"));
    GrammarExpr expr{
        .kind = Kind::repeat, .max = GrammarExpr::kUnlimited, .text = {}, .ranges = {}, .children = {}};
    switch (text_[at_++]) {
      case '?':
        expr.max = 1;
        break;
      case '+':
        expr.min = 1;
        break;
      case '{':
        skip(true);
        expr.min = count();
        skip(true);
        if (peek() == ',') {
          ++at_;
          skip(true);
          if (peek() != '}') expr.max = count();
          skip(true);
        } else {
          expr.max = expr.min;
        }
        if (peek() != '}') fail("a repetition in braces ends with '}'");
        if (expr.max < expr.min) fail("a repetition's numbers ascend", cat(expr.min, " to ", expr.max));
        ++at_;
        break;
      default:
        break;
    }
    expr.children.push_back(std::move(out.children.back()));
    out.children.back() = std::move(expr);
  }

  GrammarExpr sequence(int groups) {
    GrammarExpr out;
    for (;; skip(groups > 0)) {
      const char c = peek();
      if (c == '"') {
        out.children.push_back(literal());
      } else if (c == '[') {
        out.children.push_back(characters());
      } else if (c == '.') {
        ++at_;
        out.children.push_back(
            {.kind = Kind::characters, .text = {}, .ranges = complement({}), .children = {}});
      } else if (c == '(') {
        if (groups == kMaxGroups) fail(cat("groups are nested at most ", kMaxGroups, " deep"));
        const std::size_t begin = at_++;
        skip(true);
        GrammarExpr inner = alternatives(groups + 1);
        if (peek() != ')') {
          if (at_ == text_.size()) at_ = begin;
          fail("a group ends with ')'");
        }
        ++at_;
        out.children.push_back(std::move(inner));
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        repeat(out);
      } else if (is_name(c)) {
        const std::uint32_t rule = rule_index(rule_name());
        out.children.push_back({.kind = Kind::rule, .rule = rule, .text = {}, .ranges = {}, .children = {}});
      } else if (c == '<' || c == '!') {
        throw Unsupported(
            ErrorText{"a grammar is of text", place(at_), "here it names a token", "write the token's text"});
      } else {
        return out;
      }
    }
  }
  GrammarExpr alternatives(int groups) {
    GrammarExpr out{.kind = Kind::alternatives, .text = {}, .ranges = {}, .children = {}};
    for (;;) {
      out.children.push_back(sequence(groups));
      // The next line may go on with '|'.
      const std::size_t end = at_;
      skip(true);
      if (peek() != '|') {
        at_ = end;
        break;
      }
      ++at_;
      skip(true);
    }
    if (out.children.size() > 1) return out;
    GrammarExpr only = std::move(out.children[0]);
    return only;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::vector<GrammarRuleText> rules_;
  std::vector<bool> defined_;
  std::unordered_map<std::string, std::uint32_t> index_;
};

}  // namespace

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += cat('\\', c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out + '"';
}

Grammar Grammar::parse_gbnf(std::string_view text, const std::string& name) {
  return Grammar(std::make_shared<const GrammarRules>(GbnfParser(text, name).rules()));
}

Grammar Grammar::from_json_schema(std::string_view text, const std::string& name) {
  return parse_gbnf(gbnf_of_json_schema(text, name), name);
}

Grammar Grammar::json() { return from_json_schema(R"({"type": "object"})"); }

const std::string& Grammar::text() const { return rules_->text; }

}  // namespace cgp::model
