// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/template/value.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {

using text::cat;

namespace {

constexpr int kMaxValueDepth = 64;

/// repr() of Python: shortest digits, ".0" for whole numbers, exponents from 1e16 on.
std::string float_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[40];
  double size = std::abs(x);
  bool exponent = size != 0 && (size >= 1e16 || size < 1e-4);
  auto end = std::to_chars(buffer, buffer + sizeof buffer, x,
                           exponent ? std::chars_format::scientific : std::chars_format::fixed)
                 .ptr;
  std::string out(buffer, end);
  if (!exponent && out.find('.') == out.npos) out += ".0";
  return out;
}

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}
  Value run() {
    Value out = value(0);
    space();
    if (at_ < text_.size()) fail("nothing may follow");
    return out;
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw ParseError(ErrorText{"a text must be JSON", cat(name_, ", byte ", at_), std::string(why), {}});
  }
  void space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_]) ++at_;
  }
  char peek() {
    space();
    if (at_ == text_.size()) fail("it ends here");
    return text_[at_];
  }
  bool has(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  Value value(int depth) {
    if (depth > kMaxValueDepth) fail(cat("it is nested more than ", kMaxValueDepth, " deep"));
    switch (peek()) {
      case '{': {
        ++at_;
        ValueDict out;
        if (peek() != '}') {
          do {
            if (peek() != '"') fail("a key is needed");
            std::string key = string();
            if (peek() != ':') fail("':' is needed");
            ++at_;
            out.push_back({Value(std::move(key)), value(depth + 1)});
          } while (more('}'));
        } else {
          ++at_;
        }
        return unique(std::move(out));
      }
      case '[': {
        ++at_;
        ValueList out;
        if (peek() != ']') {
          do out.push_back(value(depth + 1));
          while (more(']'));
        } else {
          ++at_;
        }
        return out;
      }
      case '"':
        return string();
      default:
        if (has("true")) return true;
        if (has("false")) return false;
        if (has("null")) return {};
        return number();
    }
  }
  /// Of keys that come twice the last value counts.
  static ValueDict unique(ValueDict in) {
    if (in.size() > 1000) return in;
    ValueDict out;
    for (auto& [key, value] : in) set_key(out, key, std::move(value));
    return out;
  }
  bool more(char closing) {
    char c = peek();
    ++at_;
    if (c == closing) return false;
    if (c != ',') fail(cat("',' or '", closing, "' is needed"));
    return true;
  }
  Value number() {
    std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] && std::strchr("+-.0123456789eE", text_[at_])) ++at_;
    std::string_view s = text_.substr(begin, at_ - begin);
    std::int64_t whole = 0;
    auto end = s.data() + s.size();
    if (auto r = std::from_chars(s.data(), end, whole); r.ec == std::errc() && r.ptr == end) return whole;
    double x = 0;
    if (auto r = std::from_chars(s.data(), end, x);
        r.ec != std::errc() || r.ptr != end || s.empty() || s[0] == '+')
      fail("a value is needed");
    return x;
  }
  std::uint32_t hex4() {
    std::uint32_t out = 0;
    auto r = std::from_chars(text_.data() + at_, text_.data() + std::min(text_.size(), at_ + 4), out, 16);
    if (r.ptr != text_.data() + at_ + 4) fail("four hexadecimal digits are needed");
    at_ += 4;
    return out;
  }
  std::string string() {
    std::string out;
    for (++at_;;) {
      if (at_ == text_.size()) fail("a string has no end");
      char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 32) fail("a string has a control character");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ == text_.size()) fail("a string has no end");
      char e = text_[at_++];
      constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      if (std::size_t i = kFrom.find(e); i != kFrom.npos) {
        out += kTo[i];
      } else if (e == 'u') {
        std::uint32_t p = hex4();
        if (p >= 0xD800 && p < 0xDC00 && has("\\u")) {
          std::uint32_t low = hex4();
          p = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((p - 0xD800) << 10) + (low - 0xDC00)
                                            : unicode::kReplacement;
        }
        unicode::append(out, p >= 0xD800 && p < 0xE000 ? unicode::kReplacement : p);
      } else {
        fail("there is no such escape");
      }
    }
  }
  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

Value::Value(ValueList list) : held_(std::make_shared<const ValueList>(std::move(list))) {}
Value::Value(ValueDict dict) : held_(std::make_shared<const ValueDict>(std::move(dict))) {}

Value Value::make_namespace(ValueDict attributes) {
  return Value(Held(std::make_shared<ValueNamespace>(ValueNamespace{std::move(attributes)})));
}
Value Value::from_json(std::string_view text, const std::string& name) {
  return JsonReader(text, name).run();
}

const ValueList* Value::list() const {
  auto p = std::get_if<std::shared_ptr<const ValueList>>(&held_);
  return p ? p->get() : nullptr;
}
const ValueDict* Value::dict() const {
  auto p = std::get_if<std::shared_ptr<const ValueDict>>(&held_);
  return p ? p->get() : nullptr;
}
ValueDict* Value::namespace_attributes() const {
  auto p = std::get_if<std::shared_ptr<ValueNamespace>>(&held_);
  return p ? &(*p)->attributes : nullptr;
}
const ValueFunction* Value::function() const {
  auto p = std::get_if<std::shared_ptr<const ValueFunction>>(&held_);
  return p ? p->get() : nullptr;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_string()) return !string().empty();
  if (list()) return !list()->empty();
  if (dict()) return !dict()->empty();
  return true;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"undefined", "None", "bool", "int",       "float",
                                                "str",       "list", "dict", "namespace", "function"};
  return kNames[held_.index()];
}

const Value* Value::find(const Value& key) const {
  const ValueDict* d = dict();
  if (!d) d = namespace_attributes();
  if (d)
    for (const auto& [k, v] : *d)
      if (k == key) return &v;
  return nullptr;
}

bool Value::operator==(const Value& o) const {
  if (is_number() && o.is_number())
    return is_float() || o.is_float() ? number() == o.number() : integer() == o.integer();
  if (held_.index() != o.held_.index()) return false;
  if (is_string()) return string() == o.string();
  if (list()) return *list() == *o.list();
  if (dict()) {
    if (dict()->size() != o.dict()->size()) return false;
    for (const auto& [k, v] : *dict())
      if (const Value* other = o.find(k); !other || !(*other == v)) return false;
    return true;
  }
  if (namespace_attributes()) return namespace_attributes() == o.namespace_attributes();
  if (function()) return function() == o.function();
  return true;
}

bool Value::less(const Value& o) const {
  if (is_number() && o.is_number())
    return is_float() || o.is_float() ? number() < o.number() : integer() < o.integer();
  if (is_string() && o.is_string()) return string() < o.string();
  if (list() && o.list()) {
    for (std::size_t i = 0; i < list()->size() && i < o.list()->size(); ++i)
      if (!((*list())[i] == (*o.list())[i])) return (*list())[i].less((*o.list())[i]);
    return list()->size() < o.list()->size();
  }
  throw ArgumentError(
      ErrorText{"values are compared with their like", {}, cat(type_name(), " with ", o.type_name()), {}});
}

std::string Value::str() const {
  if (is_undefined()) return "";
  if (is_string()) return string();
  return repr();
}

std::string Value::repr() const {
  std::string out;
  write_repr(out, 0);
  return out;
}

void Value::write_repr(std::string& out, int depth) const {
  if (depth > kMaxValueDepth) throw ArgumentError(cat("values are printed to a depth of ", kMaxValueDepth));
  if (is_undefined()) {
    out += "Undefined";
  } else if (is_none()) {
    out += "None";
  } else if (is<bool>()) {
    out += truthy() ? "True" : "False";
  } else if (is_integer()) {
    text::append(out, integer());
  } else if (is_float()) {
    out += float_text(number());
  } else if (is_string()) {
    const std::string& s = string();
    const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
    out += quote;
    for (char c : s) {
      if (c == quote || c == '\\') {
        out += {'\\', c};
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\r') {
        out += "\\r";
      } else if (c == '\t') {
        out += "\\t";
      } else if (static_cast<unsigned char>(c) < 32 || c == 127) {
        out += {'\\', 'x', "0123456789abcdef"[c >> 4 & 15], "0123456789abcdef"[c & 15]};
      } else {
        out += c;
      }
    }
    out += quote;
  } else if (list()) {
    out += '[';
    for (const Value& v : *list()) {
      if (&v != list()->data()) out += ", ";
      v.write_repr(out, depth + 1);
    }
    out += ']';
  } else if (dict()) {
    out += '{';
    for (const auto& entry : *dict()) {
      if (&entry != dict()->data()) out += ", ";
      entry.first.write_repr(out, depth + 1);
      out += ": ";
      entry.second.write_repr(out, depth + 1);
    }
    out += '}';
  } else {
    out += cat('<', type_name(), '>');
  }
}

std::string Value::json(int indent) const {
  std::string out;
  write_json(out, indent, 0);
  return out;
}

void Value::write_json(std::string& out, int indent, int depth) const {
  if (depth > kMaxValueDepth) throw ArgumentError(cat("values are written to a depth of ", kMaxValueDepth));
  auto line = [&](int level) {
    if (indent >= 0) out += '\n' + std::string(std::size_t(indent) * std::size_t(level), ' ');
  };
  auto put_string = [&](std::string_view s) {
    out += '"';
    for (char c : s) {
      constexpr std::string_view kFrom = "\"\\\b\f\n\r\t", kTo = "\"\\bfnrt";
      if (std::size_t i = kFrom.find(c); i != kFrom.npos)
        out += {'\\', kTo[i]};
      else if (static_cast<unsigned char>(c) < 32)
        out += {'\\', 'u', '0', '0', c < 16 ? '0' : '1', "0123456789abcdef"[c & 15]};
      else
        out += c;
    }
    out += '"';
  };
  const std::string_view comma = indent >= 0 ? "," : ", ";
  if (is_none()) {
    out += "null";
  } else if (is<bool>()) {
    out += truthy() ? "true" : "false";
  } else if (is_number()) {
    write_repr(out, 0);
  } else if (is_string()) {
    put_string(string());
  } else if (list()) {
    out += '[';
    for (const Value& v : *list()) {
      if (&v != list()->data()) out += comma;
      line(depth + 1);
      v.write_json(out, indent, depth + 1);
    }
    if (!list()->empty()) line(depth);
    out += ']';
  } else if (dict()) {
    out += '{';
    for (const auto& entry : *dict()) {
      if (&entry != dict()->data()) out += comma;
      line(depth + 1);
      put_string(entry.first.is_string() ? entry.first.string() : entry.first.json());
      out += ": ";
      entry.second.write_json(out, indent, depth + 1);
    }
    if (!dict()->empty()) line(depth);
    out += '}';
  } else {
    throw ArgumentError(ErrorText{"tojson takes what JSON has", {}, cat("it was given ", type_name()), {}});
  }
}

void set_key(ValueDict& dict, const Value& key, Value value) {
  for (auto& [k, v] : dict)
    if (k == key) {
      v = std::move(value);
      return;
    }
  dict.push_back({key, std::move(value)});
}

}  // namespace cgp::model
