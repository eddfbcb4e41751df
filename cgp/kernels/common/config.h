// SPDX-License-Identifier: Apache-2.0
#pragma once
// The configuration of a kernel variant as a value. A config lists its fields once; name, parser, equality, hash
// and JSON are made from that list.
//   struct DecodeConfig {
//     DType type = DType::bf16;
//     int d = 128;
//     bool lse = false;
//     template <class Self, class V>
//     static void visit(Self& c, V& v) {  // in the order of the name
//       v.type("type", "", c.type);
//       v.number("d", "d", c.d);
//       v.flag("lse", c.lse);
//     }
//   };
//   config_name("decode", DecodeConfig{})                     "decode_bf16_d128"
//   parse_config<DecodeConfig>("decode", "decode_bf16_d64_lse")
// Names have [A-Za-z0-9_] alone: they are entry symbols of PTX too. A field with its default leaves no trace in
// the name, unless it has no default.
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::kernels {

/// Marks a number that is always part of the name.
inline constexpr int kAlways = std::numeric_limits<int>::min();

namespace config_visitors {

class Namer {
 public:
  explicit Namer(std::string_view family) : name_(family) {}
  /// One that is `same_as` leaves no trace.
  void type(std::string_view, std::string_view prefix, const DType& t, std::optional<DType> same_as = {}) {
    if (t != same_as) add(prefix, cgp::name(t));
  }
  /// The type of an operand that there may be: the word, and the type where it is not `usual`.
  void operand(std::string_view word, const std::optional<DType>& t, DType usual) {
    if (t) add(word);
    if (t && t != usual) add(cgp::name(*t));
  }
  /// As many types as there are.
  void types(std::string_view, std::string_view word, const std::vector<DType>& all) {
    add(word);
    for (const DType t : all) add(cgp::name(t));
  }
  /// Of two operands and a result: one where all are alike, else three.
  void operand_types(const DType& a, const DType& b, const DType& c) {
    add(cgp::name(a));
    if (b != a || c != a) add(cgp::name(b)), add(cgp::name(c));
  }
  void number(std::string_view, std::string_view prefix, const int& n, int absent = kAlways) {
    if (n != absent) add(prefix), add_number(n);
  }
  /// A x B x ..., as many as are not 0.
  template <class... N>
  void extents(std::initializer_list<std::string_view>, std::string_view prefix, const N&... n) {
    bool first = true;
    for (const int value : {n...}) {
      if (!value) return;
      first ? add(prefix) : void(name_ += 'x');
      add_number(value), first = false;
    }
  }
  /// A x B; (0, 0) leaves no trace.
  void extent(std::string_view, std::string_view prefix, const int& a, const int& b) {
    if (a || b) add(prefix), add_number(a), name_ += 'x', add_number(b);
  }
  void flag(std::string_view word, const bool& on) {
    if (on) add(word);
  }
  /// `words[i]` names enumerator i; "" leaves no trace.
  template <class E>
  void choice(std::string_view, std::span<const std::string_view> words, const E& e) {
    const auto word = words[std::size_t(e)];
    if (!word.empty()) add(word);
  }
  /// The rest of the name; last.
  void rest(std::string_view, std::string_view prefix, const std::string& s) {
    if (!s.empty()) add(prefix, s);
  }
  std::string take() && { return std::move(name_); }

 private:
  void add(std::string_view a, std::string_view b = {}) { name_ += '_', name_ += a, name_ += b; }
  void add_number(int n) {
    char digits[12];
    name_.append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
  }
  std::string name_;
};

/// Fields in the order of the name; what a field does not find belongs to the fields behind it.
class Parser {
 public:
  Parser(std::string_view name, std::size_t at) : name_(name), at_(at) {}
  void type(std::string_view key, std::string_view prefix, DType& t, std::optional<DType> same_as = {}) {
    if (const auto word = begins(prefix); !word.empty())
      if (const auto found = parse_dtype(word)) return t = *found, accept(prefix.size() + word.size());
    if (same_as) t = *same_as;
    missed(text::cat(prefix, "<", key, ": an element type>"), !same_as);
  }
  void operand(std::string_view word, std::optional<DType>& t, DType usual) {
    t.reset();
    if (!is(word)) return missed(std::string(word), false);
    accept(word.size());
    t = usual;
    if (const auto named = begins(""); const auto found = parse_dtype(named))
      t = *found, accept(named.size());
  }
  void types(std::string_view key, std::string_view word, std::vector<DType>& all) {
    all.clear();
    if (!is(word)) return missed(text::cat(word, " <", key, ": element types>"), true);
    accept(word.size());
    for (;;) {
      const auto named = begins("");
      const auto found = parse_dtype(named);
      if (!found) return;
      all.push_back(*found), accept(named.size());
    }
  }
  void operand_types(DType& a, DType& b, DType& c) {
    type("a", "", a);
    b = c = a;
    if (failed_) return;
    if (const auto word = begins(""); const auto found = parse_dtype(word)) {
      b = *found, accept(word.size());
      type("c", "", c);
    }
  }
  template <class... N>
  void extents(std::initializer_list<std::string_view> keys, std::string_view prefix, N&... n) {
    const auto word = begins(prefix);
    const std::array<int*, sizeof...(N)> to{&n...};
    std::size_t count = 0;
    bool good = true;
    for (auto rest = word; !rest.empty() && good; ++count) {
      const auto x = rest.find('x');
      good =
          count < to.size() && digits(rest.substr(0, x), to[count]) && *to[count] > 0 && x + 1 != rest.size();
      rest = x == rest.npos ? std::string_view() : rest.substr(x + 1);
    }
    if (good && count) {
      for (; count < to.size(); ++count) *to[count] = 0;
      return accept(prefix.size() + word.size());
    }
    for (int* v : to) *v = 0;
    std::string shown(prefix);
    for (const auto key : keys) shown += text::cat(shown == prefix ? "<" : "x<", key, ">");
    missed(std::move(shown), false);
  }
  void number(std::string_view key, std::string_view prefix, int& n, int absent = kAlways) {
    if (const auto word = begins(prefix); digits(word, &n) && n != absent)
      return accept(prefix.size() + word.size());
    if (absent != kAlways) n = absent;
    missed(text::cat(prefix, "<", key, ">"), absent == kAlways);
  }
  void extent(std::string_view key, std::string_view prefix, int& a, int& b) {
    const auto word = begins(prefix);
    if (const auto x = word.find('x'); x != word.npos)
      if (digits(word.substr(0, x), &a) && digits(word.substr(x + 1), &b))
        return accept(prefix.size() + word.size());
    a = b = 0;
    missed(text::cat(prefix, "<", key, ": A x B>"), false);
  }
  void flag(std::string_view word, bool& on) {
    on = is(word);
    if (on)
      accept(word.size());
    else
      missed(std::string(word), false);
  }
  template <class E>
  void choice(std::string_view key, std::span<const std::string_view> words, E& e) {
    std::size_t best = words.size();  // the longest of those that fit
    for (std::size_t i = 0; i < words.size(); ++i)
      if ((words[i].empty() || is(words[i])) &&
          (best == words.size() || words[i].size() > words[best].size()))
        best = i;
    std::string all;
    for (const auto w : words)
      if (!w.empty()) all += text::cat(all.empty() ? "" : " or ", w);
    if (best == words.size()) return missed(text::cat(key, " ", all), true);
    e = E(best);
    if (words[best].empty())
      missed(std::move(all), false);
    else
      accept(words[best].size());
  }
  void rest(std::string_view key, std::string_view prefix, std::string& s) {
    s.clear();
    if (failed_ || at_ >= name_.size() || name_.substr(at_ + 1, prefix.size()) != prefix)
      return missed(text::cat(prefix, "<", key, ">"), false);
    s = name_.substr(at_ + 1 + prefix.size());
    at_ = name_.size();
  }
  /// ArgumentError unless the whole name has been read.
  void finish() const {
    if (!failed_ && at_ == name_.size()) return;
    const auto here = name_.substr(at_);
    throw ArgumentError(text::cat(name_, ": ", here.empty() ? "the name ends" : text::cat("at ", here),
                                  ", where one of these may stand: ", possible_));
  }

 private:
  /// What stands behind "_prefix" up to the next "_"; empty where that is not here.
  std::string_view begins(std::string_view prefix) const {
    if (failed_ || at_ >= name_.size() || name_[at_] != '_' || name_.substr(at_ + 1, prefix.size()) != prefix)
      return {};
    const auto word = name_.substr(at_ + 1 + prefix.size());
    return word.substr(0, word.find('_'));
  }
  bool is(std::string_view word) const {
    if (failed_ || at_ >= name_.size() || name_[at_] != '_' || name_.substr(at_ + 1, word.size()) != word)
      return false;
    const auto end = at_ + 1 + word.size();
    return end == name_.size() || name_[end] == '_';
  }
  static bool digits(std::string_view s, int* n) {
    int value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (s.empty() || error != std::errc{} || end != s.data() + s.size()) return false;
    if (s.size() > 1 && s[0] == '0') return false;  // another spelling of the same number
    return *n = value, true;
  }
  void accept(std::size_t length) {
    at_ += 1 + length;
    possible_.clear();
  }
  void missed(std::string what, bool must) {
    if (failed_) return;
    possible_ += text::cat(possible_.empty() ? "" : ", ", what);
    failed_ = must;
  }
  std::string_view name_;
  std::size_t at_;
  bool failed_ = false;
  std::string possible_;
};

class JsonWriter {
 public:
  void type(std::string_view key, std::string_view, const DType& t, std::optional<DType> = {}) {
    quoted(key, cgp::name(t));
  }
  void operand(std::string_view word, const std::optional<DType>& t, DType) {
    if (t)
      quoted(word, cgp::name(*t));
    else
      add(word, "null");
  }
  void types(std::string_view key, std::string_view, const std::vector<DType>& all) {
    std::string list;
    for (const DType t : all) list += text::cat(list.empty() ? "" : ", ", "\"", cgp::name(t), "\"");
    add(key, text::cat("[", list, "]"));
  }
  void operand_types(const DType& a, const DType& b, const DType& c) {
    add("types", text::cat("[\"", cgp::name(a), "\", \"", cgp::name(b), "\", \"", cgp::name(c), "\"]"));
  }
  template <class... N>
  void extents(std::initializer_list<std::string_view> keys, std::string_view, const N&... n) {
    auto key = keys.begin();
    for (const int value : {n...}) add(*key++, text::cat(value));
  }
  void number(std::string_view key, std::string_view, const int& n, int = kAlways) { add(key, text::cat(n)); }
  void extent(std::string_view key, std::string_view, const int& a, const int& b) {
    add(key, text::cat("[", a, ", ", b, "]"));
  }
  void flag(std::string_view word, const bool& on) { add(word, on ? "true" : "false"); }
  template <class E>
  void choice(std::string_view key, std::span<const std::string_view> words, const E& e) {
    quoted(key, words[std::size_t(e)]);
  }
  void rest(std::string_view key, std::string_view, const std::string& s) { quoted(key, s); }
  std::string take() && { return text::cat("{", json_, "}"); }

 private:
  void quoted(std::string_view key, std::string_view v) { add(key, text::cat("\"", v, "\"")); }
  void add(std::string_view key, std::string_view value) {
    json_ += text::cat(json_.empty() ? "" : ", ", "\"", key, "\": ", value);
  }
  std::string json_;
};

}  // namespace config_visitors

template <class C>
std::string config_name(std::string_view family, const C& c) {
  config_visitors::Namer n(family);
  C::visit(c, n);
  return std::move(n).take();
}
/// ArgumentError names the part of the name that does not fit, and what may stand there.
template <class C>
C parse_config(std::string_view family, std::string_view name) {
  if (name.substr(0, family.size()) != family)
    throw ArgumentError(text::cat(name, ": the name begins with ", family));
  C c;
  config_visitors::Parser p(name, family.size());
  C::visit(c, p);
  p.finish();
  return c;
}
template <class C>
std::string config_json(const C& c) {
  config_visitors::JsonWriter j;
  C::visit(c, j);
  return std::move(j).take();
}
/// Names are told apart by every field, so they stand for the value.
template <class C>
bool same_config(const C& a, const C& b) {
  return config_name("", a) == config_name("", b);
}
template <class C>
std::size_t config_hash(const C& c) {
  return std::hash<std::string>{}(config_name("", c));
}

}  // namespace cgp::kernels
