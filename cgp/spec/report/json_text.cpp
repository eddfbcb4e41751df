// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/report/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/spec/generate.h"

namespace cgp::spec {
namespace {

using nlohmann::json;
using text::cat;

/// Walks valid JSON text to the value a pointer names; returns its offset.
class Locator {
 public:
  explicit Locator(std::string_view text) : s_(text) {}

  std::size_t find(const std::string& pointer) {
    space();
    std::string_view rest = pointer;
    while (!rest.empty()) {
      rest.remove_prefix(1);  // '/'
      const auto end = rest.find('/');
      const std::string token(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
      if (at_ >= s_.size() || !enter(token)) break;
    }
    return std::min(at_, s_.size());
  }

 private:
  void space() {
    while (at_ < s_.size() && std::strchr(" \t\r\n", s_[at_])) ++at_;
  }
  std::string quoted() {
    std::string out;
    for (++at_; at_ < s_.size() && s_[at_] != '"'; ++at_) {
      if (s_[at_] == '\\') ++at_;
      out.push_back(s_[at_]);
    }
    ++at_;
    return out;
  }
  void skip_value() {
    if (at_ < s_.size() && s_[at_] == '"') {
      quoted();
      return;
    }
    int depth = 0;
    for (; at_ < s_.size(); ++at_) {
      const char c = s_[at_];
      if (c == '"') {
        quoted();
        --at_;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (depth == 0) return;
        if (--depth == 0) {
          ++at_;
          return;
        }
      } else if (depth == 0 && (c == ',' || std::strchr(" \t\r\n", c))) {
        return;
      }
    }
  }
  bool enter(const std::string& token) {
    const bool object = s_[at_] == '{';
    if (!object && s_[at_] != '[') return false;
    ++at_;
    for (std::size_t index = 0;; ++index) {
      space();
      if (at_ >= s_.size() || s_[at_] == '}' || s_[at_] == ']') return false;
      std::string key = std::to_string(index);
      if (object) {
        key = quoted();
        space();
        ++at_;  // ':'
        space();
      }
      if (key == token) return true;
      skip_value();
      space();
      if (at_ < s_.size() && s_[at_] == ',') ++at_;
    }
  }

  std::string_view s_;
  std::size_t at_ = 0;
};

struct Place {
  int line = 1, column = 1;
  std::string source;
};

Place place_of(const std::string& text, std::size_t offset) {
  offset = std::min(offset, text.size());
  Place p;
  std::size_t start = 0;
  for (std::size_t i = 0; i < offset; ++i)
    if (text[i] == '\n') ++p.line, start = i + 1;
  p.column = int(offset - start) + 1;
  p.source = text.substr(start, text.find('\n', start) - start);
  constexpr std::size_t kShown = 100;  // specs written by programs may be one line of megabytes
  if (p.source.size() > kShown) {
    const std::size_t from = std::min(offset - start, p.source.size()) > 40 ? offset - start - 40 : 0;
    p.source = p.source.substr(from, kShown);
    p.column -= int(from);
  }
  return p;
}

}  // namespace

std::size_t too_deep(std::string_view text) {
  constexpr int kDeepest = 200;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text.npos;
}

Document::Document(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {
  if (const std::size_t at = too_deep(text_); at != text_.npos) {
    const Place p = place_of(text_, at);
    throw ParseError(cat(name_, " must be JSON of at most 200 levels"), p.line, p.column, p.source, {});
  }
  try {
    json_ = std::make_unique<json>(json::parse(text_));
  } catch (const json::parse_error& e) {
    const Place p = place_of(text_, e.byte ? e.byte - 1 : 0);
    std::string why = e.what();
    const auto colon = why.rfind(": ");  // nlohmann's text: "[...] parse error at ...: <reason>"
    if (colon != std::string::npos) why = why.substr(colon + 2);
    throw ParseError(
        cat(name_, " must be JSON: ", why), p.line, p.column, p.source,
        "NaN, Infinity, comments and trailing commas are not JSON; a float's bits may be given in hex");
  }
}

Document::~Document() = default;

Node Document::root() const { return Node(*this, *json_, ""); }

void Document::fail(const std::string& pointer, std::string rule, std::string why, std::string hint) const {
  const Place p = place_of(text_, Locator(text_).find(pointer));
  std::string at = cat(name_, ": ", pointer.empty() ? "(top)" : pointer, ": ", rule);
  if (!why.empty()) text::append(at, cat(" (", why, ")"));
  throw ParseError(at, p.line, p.column, p.source, std::move(hint));
}

bool Node::is_null() const { return value_->is_null(); }
bool Node::is_object() const { return value_->is_object(); }
bool Node::is_array() const { return value_->is_array(); }
bool Node::is_string() const { return value_->is_string(); }
bool Node::is_number() const { return value_->is_number(); }
bool Node::is_integer() const { return value_->is_number_integer(); }
bool Node::is_boolean() const { return value_->is_boolean(); }

void Node::fail(std::string rule, std::string why, std::string hint) const {
  document_->fail(pointer_, std::move(rule), std::move(why), std::move(hint));
}

void Node::expected(std::string_view what) const {
  fail(cat("must be ", what), cat("it is ", value_->is_number() ? "a number" : value_->type_name(), ": ",
                                  value_->dump().substr(0, 60)));
}

bool Node::has(const std::string& key) const {
  if (!value_->is_object()) return false;
  auto it = value_->find(key);
  return it != value_->end() && !it->is_null();
}

Node Node::at(const std::string& key) const {
  if (!value_->is_object()) expected("an object");
  auto it = value_->find(key);
  if (it == value_->end()) {
    const auto near = text::closest(key, keys(), 1);
    fail(cat("needs the field \"", key, "\""), cat("it has: ", text::join(keys(), ", ")),
         near.empty() ? "" : cat("did you mean \"", key, "\" where it says \"", near[0], "\"?"));
  }
  return Node(*document_, *it, cat(pointer_, "/", key));
}

Node Node::any_of(const std::vector<std::string>& keys) const {
  for (const auto& key : keys)
    if (has(key)) return at(key);
  return at(keys.front());
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> out;
  if (value_->is_object())
    for (auto it = value_->begin(); it != value_->end(); ++it) out.push_back(it.key());
  return out;
}

std::vector<Node> Node::items() const {
  if (!value_->is_array()) expected("a list");
  std::vector<Node> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    out.emplace_back(*document_, (*value_)[i], cat(pointer_, "/", i));
  return out;
}

std::size_t Node::size() const { return value_->size(); }

std::string Node::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}
bool Node::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}
double Node::number() const {
  if (!value_->is_number()) expected("a number");
  return value_->get<double>();
}

std::int64_t Node::s64() const {
  if (value_->is_number_float()) {  // writers in other languages print 7 as 7.0
    const double d = value_->get<double>();
    if (d == std::floor(d) && std::fabs(d) < 9007199254740992.0) return std::int64_t(d);
  }
  if (!value_->is_number_integer()) expected("an integer");
  return value_->is_number_unsigned() ? std::int64_t(value_->get<std::uint64_t>())
                                      : value_->get<std::int64_t>();
}
std::uint64_t Node::u64() const {
  const std::int64_t v = s64();
  if (v < 0 && !value_->is_number_unsigned()) expected("zero or more");
  return std::uint64_t(v);
}
std::uint32_t Node::u32() const {
  const std::uint64_t v = u64();
  if (v > 0xffffffffull) expected("below 2^32");
  return std::uint32_t(v);
}

DType Node::dtype() const {
  const std::string word = string();
  if (auto t = parse_dtype(word)) return *t;
  std::vector<std::string> names;
  for (int i = 0; i < kDTypeCount; ++i) names.emplace_back(name(DType(i)));
  const auto near = text::closest(word, names, 1);
  fail(cat("unknown element type \"", word, "\""), cat("known: ", text::join(names, " ")),
       near.empty() ? "" : cat("did you mean ", near[0], "?"));
}

std::uint64_t Node::element_bits(DType t) const {
  const int width = 8 * bytes(t);
  std::uint64_t out = 0;
  if (value_->is_string()) {
    std::string word = string();
    if (word.rfind("0x", 0) == 0 || word.rfind("0X", 0) == 0) word = word.substr(2);
    auto r = std::from_chars(word.data(), word.data() + word.size(), out, 16);
    if (word.empty() || r.ec != std::errc() || r.ptr != word.data() + word.size())
      fail(cat("a string must be the bits of a ", name(t), " in hex"), cat("it is \"", string(), "\""));
    if (width < 64 && out >> width)
      fail(cat("the bit pattern must fit in ", width, " bits"), cat("it is \"", string(), "\""));
    return out;
  }
  if (value_->is_boolean()) {
    store_from_double(t, &out, 0, boolean() ? 1 : 0);
    return out;
  }
  if (!value_->is_number()) expected("a number, or a string with the bits in hex");
  if (!is_float(t) && value_->is_number_integer()) {
    out = std::uint64_t(s64());
    return width == 64 ? out : out & ((1ull << width) - 1);
  }
  store_rounded(t, &out, 0, number());
  return out;
}

void Node::only(const std::vector<std::string>& known) const {
  if (!value_->is_object()) expected("an object");
  for (const auto& key : keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto near = text::closest(key, known, 1);
    Node(*document_, (*value_)[key], cat(pointer_, "/", key))
        .fail(cat("unknown field \"", key, "\""), cat("known here: ", text::join(known, ", ")),
              near.empty() ? "" : cat("did you mean \"", near[0], "\"?"));
  }
}

}  // namespace cgp::spec
