// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/template/template_text.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model::jinja {

using text::cat;

namespace {

bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

template <class F>
std::string mapped(std::string_view s, F&& f) {
  std::string out;
  for (std::size_t at = 0; at < s.size();) {
    unicode::Decoded d = unicode::decode(s, at);
    if (d.point == unicode::kReplacement && d.size == 1)
      out += s[at];
    else
      unicode::append(out, f(d.point));
    at += d.size;
  }
  return out;
}

/// The inverse of unicode::lower for letters that have one.
std::uint32_t upper_point(std::uint32_t p) {
  if (p < 128) return p >= 'a' && p <= 'z' ? p - 32 : p;
  static const std::map<std::uint32_t, std::uint32_t> table = [] {
    std::map<std::uint32_t, std::uint32_t> out;
    for (std::uint32_t c = 0x80; c < 0x1E944; ++c)
      if (unicode::category(c) == unicode::Lu) out.emplace(unicode::lower(c), c);
    return out;
  }();
  auto it = table.find(p);
  return it == table.end() ? p : it->second;
}
}  // namespace

void refuse(std::string why) { throw ArgumentError(std::move(why)); }

std::string limited(std::string s, Budget& budget) {
  budget.string(s.size());
  return s;
}

const Value* given(const Arguments& arguments, const Named& named, std::size_t place, std::string_view name) {
  if (place < arguments.size()) return &arguments[place];
  for (const auto& [n, v] : named)
    if (n == name) return &v;
  return nullptr;
}

const std::string& need_string(const Value* v, std::string_view of) {
  if (!v || !v->is_string()) refuse(cat(of, " needs a string", v ? cat(", not ", v->type_name()) : ""));
  return v->string();
}

std::int64_t need_integer(const Value* v, std::string_view of) {
  if (!v || !(v->is_integer() || v->is<bool>())) refuse(cat(of, " needs an integer"));
  return v->integer();
}

std::string stripped(std::string_view s, const Value* set, bool left, bool right) {
  auto in = [&](std::string_view c) {
    if (set && !set->is_none()) return need_string(set, "strip").find(c) != std::string::npos;
    return unicode::is_space(unicode::decode(c, 0).point);
  };
  while (left && !s.empty()) {
    std::size_t n = unicode::decode(s, 0).size;
    if (!in(s.substr(0, n))) break;
    s.remove_prefix(n);
  }
  while (right && !s.empty()) {
    std::size_t at = unicode::previous(s, 0, s.size());
    if (!in(s.substr(at))) break;
    s = s.substr(0, at);
  }
  return std::string(s);
}

std::string lower(std::string_view s) { return mapped(s, unicode::lower); }

std::string upper(std::string_view s) { return mapped(s, upper_point); }

std::string capitalized(std::string_view s) {
  if (s.empty()) return {};
  std::size_t n = unicode::decode(s, 0).size;
  return upper(s.substr(0, n)) + lower(s.substr(n));
}

/// Jinja's title: after white space and - ( { [ < a capital.
std::string titled(std::string_view s) {
  std::string out;
  bool start = true;
  for (std::size_t at = 0; at < s.size();) {
    std::size_t n = unicode::decode(s, at).size;
    out += start ? upper(s.substr(at, n)) : lower(s.substr(at, n));
    start = is_space(s[at]) || std::string_view("-({[<").find(s[at]) != std::string_view::npos;
    at += n;
  }
  return out;
}

std::string replaced(std::string_view s, std::string_view from, std::string_view to, std::int64_t count,
                     Budget& budget) {
  std::string out;
  std::size_t at = 0;
  if (from.empty()) refuse("replace needs a text to replace");
  while (count != 0) {
    std::size_t found = s.find(from, at);
    if (found == s.npos) break;
    budget.string(found - at + to.size());
    out += s.substr(at, found - at);
    out += to;
    at = found + from.size();
    --count;
  }
  out += s.substr(at);
  return limited(std::move(out), budget);
}

ValueList split(std::string_view s, const Value* by, std::int64_t most, bool from_right) {
  ValueList out;
  if (!by || by->is_none()) {
    std::size_t at = 0;
    while (true) {
      while (at < s.size() && is_space(s[at])) ++at;
      if (at == s.size()) return out;
      if (most >= 0 && std::int64_t(out.size()) == most) {
        out.emplace_back(stripped(s.substr(at), nullptr, false, true));
        return out;
      }
      std::size_t end = at;
      while (end < s.size() && !is_space(s[end])) ++end;
      out.emplace_back(s.substr(at, end - at));
      at = end;
    }
  }
  const std::string& mark = need_string(by, "split");
  if (mark.empty()) refuse("split needs a text to split at");
  if (from_right) {
    while (most != 0) {
      std::size_t found = s.rfind(mark);
      if (found == s.npos) break;
      out.emplace_back(s.substr(found + mark.size()));
      s = s.substr(0, found);
      --most;
    }
    out.emplace_back(s);
    std::reverse(out.begin(), out.end());
    return out;
  }
  while (most != 0) {
    std::size_t found = s.find(mark);
    if (found == s.npos) break;
    out.emplace_back(s.substr(0, found));
    s.remove_prefix(found + mark.size());
    --most;
  }
  out.emplace_back(s);
  return out;
}

ValueList lines_of(std::string_view s) {
  ValueList out;
  while (!s.empty()) {
    std::size_t end = std::min(s.find('\n'), s.size());
    std::string_view line = s.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.emplace_back(line);
    s.remove_prefix(std::min(end + 1, s.size()));
  }
  return out;
}

std::string formatted(std::string_view pattern, const Arguments& arguments) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      out += pattern[i];
      continue;
    }
    std::string spec = "%";
    while (++i < pattern.size() &&
           std::string_view("-+ 0#.123456789").find(pattern[i]) != std::string_view::npos)
      spec += pattern[i];
    if (i == pattern.size() || spec.size() > 8) refuse("format has a bad %");
    if (pattern[i] == '%') {
      out += '%';
      continue;
    }
    if (next == arguments.size()) refuse("format has too few arguments");
    const Value& v = arguments[next++];
    char buffer[512];
    auto digits = [&] {
      return std::atoi(spec.substr(std::min(spec.find_first_of("123456789"), spec.size())).c_str()) < 200;
    };
    if (!digits() || (spec.find('.') != spec.npos && std::atoi(spec.substr(spec.find('.') + 1).c_str()) > 50))
      refuse("format has a width over 200");
    if (pattern[i] == 's') {
      std::string text = v.str();
      if (spec == "%")
        out += text;
      else
        out.append(buffer, std::size_t(std::clamp(
                               std::snprintf(buffer, sizeof buffer, (spec + 's').c_str(), text.c_str()), 0,
                               int(sizeof buffer) - 1)));
    } else if ((pattern[i] == 'd' || pattern[i] == 'i' || pattern[i] == 'x') && v.is_number()) {
      spec += pattern[i] == 'x' ? "llx" : "lld";
      out.append(buffer, std::size_t(std::snprintf(
                             buffer, sizeof buffer, spec.c_str(),
                             v.is_float() ? (long long)(v.number()) : (long long)(v.integer()))));
    } else if (std::string_view("feg").find(pattern[i]) != std::string_view::npos && v.is_number()) {
      out.append(buffer, std::size_t(std::clamp(
                             std::snprintf(buffer, sizeof buffer, (spec + pattern[i]).c_str(), v.number()), 0,
                             int(sizeof buffer) - 1)));
    } else {
      refuse(cat("format has a bad %", pattern[i]));
    }
  }
  return out;
}

std::string brace_formatted(std::string_view s, const Arguments& a, const Named& named) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if ((s[i] == '{' || s[i] == '}') && s.substr(i + 1, 1) == s.substr(i, 1)) {
      out += s[i++];
    } else if (s[i] == '{') {
      std::size_t end = s.find('}', i);
      if (end == s.npos) refuse("format has a '{' without '}'");
      std::string_view field = s.substr(i + 1, end - i - 1);
      bool digits = field.find_first_not_of("0123456789") == field.npos;
      std::size_t place = field.empty() ? next++
                          : digits      ? std::size_t(std::atoi(std::string(field).c_str()))
                                        : a.size();
      const Value* v = given(a, named, place, digits ? "" : field);
      if (!v) refuse(cat("format has no value for '{", field, "}'"));
      out += v->str();
      i = end;
    } else {
      out += s[i];
    }
  }
  return out;
}

ValueList elements(const Value& v, std::string_view of, Budget& budget) {
  ValueList out;
  if (v.list()) {
    out = *v.list();
  } else if (v.dict()) {
    for (const auto& [k, x] : *v.dict()) out.push_back(k);
  } else if (v.is_string()) {
    for (std::size_t at = 0; at < v.string().size();) {
      std::size_t n = unicode::decode(v.string(), at).size;
      out.emplace_back(v.string().substr(at, n));
      at += n;
    }
  } else if (!v.is_undefined()) {
    refuse(cat(of, " needs a list, not ", v.type_name()));
  }
  budget.elements(out.size());
  return out;
}

ValueList items_of(const Value& v) {
  ValueList out;
  if (v.is_undefined()) return out;
  if (!v.dict()) refuse(cat("items needs a dict, not ", v.type_name()));
  for (const auto& [k, x] : *v.dict()) out.push_back(ValueList{k, x});
  return out;
}

}  // namespace cgp::model::jinja
