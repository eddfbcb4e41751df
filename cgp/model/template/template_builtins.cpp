// SPDX-License-Identifier: Apache-2.0
// Filters, tests and global functions, by name.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/markup.h"
#include "cgp/base/text.h"
#include "cgp/model/template/template_text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model::jinja {

using text::cat;

namespace {

/// "a.b.0" of a value.
Value path(const Value& v, const Value& name) {
  if (name.is_integer()) {
    const ValueList* list = v.list();
    bool has = list && name.integer() >= 0 && std::size_t(name.integer()) < list->size();
    return has ? (*list)[std::size_t(name.integer())] : Value::undefined(name.str());
  }
  Value out = v;
  for (std::string_view part : text::split(need_string(&name, "an attribute"), '.')) {
    const Value* found = out.find(Value(part));
    Value next = found ? *found : Value::undefined(std::string(part));
    out = next;
  }
  return out;
}

ValueList sorted(ValueList list, const Value* by, bool reverse, bool with_case) {
  auto key = [&](const Value& v) {
    Value out = by && !by->is_none() ? path(v, *by) : v;
    return out.is_string() && !with_case ? Value(lower(out.string())) : out;
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& v : list) keyed.emplace_back(key(v), v);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? b.first.less(a.first) : a.first.less(b.first);
  });
  ValueList out;
  for (auto& [k, v] : keyed) out.push_back(std::move(v));
  return out;
}

std::string indented(const std::string& s, const Value* width, bool first, bool blank) {
  std::string with =
      width && width->is_string()
          ? width->string()
          : std::string(
                std::size_t(std::clamp<std::int64_t>(width ? need_integer(width, "indent") : 4, 0, 1000)),
                ' ');
  std::string out;
  std::size_t at = 0;
  for (int line = 0;; ++line) {
    std::size_t end = std::min(s.find('\n', at), s.size());
    if ((line > 0 || first) && (blank || end > at)) out += with;
    out += s.substr(at, end - at);
    if (end == s.size()) return out;
    out += '\n';
    at = end + 1;
  }
}

Value rounded(const Value& v, std::int64_t digits, const std::string& how) {
  double scale = std::pow(10.0, double(digits)), x = v.number() * scale;
  x = how == "ceil" ? std::ceil(x) : how == "floor" ? std::floor(x) : std::nearbyint(x);
  return x / scale;
}

Value to_integer(const Value& v, Value otherwise) {
  if (v.is_float())
    return std::isfinite(v.number()) && std::abs(v.number()) < 9e18 ? Value(std::int64_t(v.number()))
                                                                    : otherwise;
  if (v.is_number()) return v.integer();
  if (!v.is_string()) return otherwise;
  std::string s = stripped(v.string(), nullptr, true, true);
  char* end = nullptr;
  errno = 0;
  long long n = std::strtoll(s.c_str(), &end, 10);
  if (!s.empty() && *end == 0 && errno == 0) return std::int64_t(n);
  double x = std::strtod(s.c_str(), &end);
  return !s.empty() && *end == 0 && std::abs(x) < 9e18 ? Value(std::int64_t(x)) : otherwise;
}

Value to_float(const Value& v, Value otherwise) {
  if (v.is_number()) return v.number();
  if (!v.is_string()) return otherwise;
  std::string s = stripped(v.string(), nullptr, true, true);
  char* end = nullptr;
  double x = std::strtod(s.c_str(), &end);
  return !s.empty() && *end == 0 ? Value(x) : otherwise;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& in, Arguments& a, Named& named, Budget& budget) {
  auto arg = [&](std::size_t place, std::string_view n) { return given(a, named, place, n); };
  auto flag = [&](std::size_t place, std::string_view n, bool otherwise) {
    const Value* v = arg(place, n);
    return v ? v->truthy() : otherwise;
  };
  if (in.is_string()) budget.string(in.string().size());
  if (name == "default" || name == "d") {
    bool use = in.is_undefined() || (flag(1, "boolean", false) && !in.truthy());
    const Value* v = arg(0, "default_value");
    return use ? (v ? *v : Value("")) : in;
  }
  if (name == "tojson") {
    const Value* indent = arg(0, "indent");
    return limited(
        in.json(indent && indent->is_integer() ? int(std::clamp<std::int64_t>(indent->integer(), 0, 64))
                                               : -1),
        budget);
  }
  if (name == "trim") return stripped(in.str(), arg(0, "chars"), true, true);
  if (name == "lower") return lower(in.str());
  if (name == "upper") return upper(in.str());
  if (name == "capitalize") return capitalized(in.str());
  if (name == "title") return titled(in.str());
  if (name == "string" || name == "safe") return limited(in.str(), budget);
  if (name == "escape" || name == "e") return limited(text::escape_markup(in.str()), budget);
  if (name == "replace") {
    const Value* count = arg(2, "count");
    return replaced(in.str(), need_string(arg(0, "old"), "replace"), need_string(arg(1, "new"), "replace"),
                    count && count->is_integer() ? count->integer() : -1, budget);
  }
  if (name == "indent")
    return limited(indented(in.str(), arg(0, "width"), flag(1, "first", false), flag(2, "blank", false)),
                   budget);
  if (name == "format") return limited(formatted(in.str(), a), budget);
  if (name == "int") return to_integer(in, arg(0, "default") ? *arg(0, "default") : Value(0));
  if (name == "float") return to_float(in, arg(0, "default") ? *arg(0, "default") : Value(0.0));
  if (name == "abs" || name == "round") {
    if (!in.is_number()) refuse(cat(name, " needs a number, not ", in.type_name()));
    if (name == "abs")
      return in.is_float()
                 ? Value(std::abs(in.number()))
                 : Value(in.integer() < 0 ? std::int64_t(0 - std::uint64_t(in.integer())) : in.integer());
    return rounded(in, arg(0, "precision") ? need_integer(arg(0, "precision"), name) : 0,
                   arg(1, "method") ? arg(1, "method")->str() : "common");
  }
  if (name == "length" || name == "count") {
    if (in.dict()) return std::int64_t(in.dict()->size());
    if (in.is_none() || in.is_number() || in.function())
      refuse(cat(name, " needs a list, not ", in.type_name()));
    return std::int64_t(elements(in, name, budget).size());
  }
  if (name == "wordcount") return std::int64_t(split(in.str(), nullptr, -1, false).size());
  if (name == "items") return items_of(in);
  if (name == "dictsort") {
    ValueList list = items_of(in);
    Value by = arg(1, "by") && arg(1, "by")->str() == "value" ? 1 : 0;
    return sorted(std::move(list), &by, flag(2, "reverse", false), flag(0, "case_sensitive", false));
  }
  if (name == "list") return elements(in, name, budget);
  if (name == "first" || name == "last" || name == "random") {
    ValueList list = elements(in, name, budget);
    if (name == "random") throw Unsupported("chat templates cannot draw random values");
    if (list.empty()) return Value::undefined(name);
    return name == "first" ? list.front() : list.back();
  }
  if (name == "reverse") {
    ValueList list = elements(in, name, budget);
    std::reverse(list.begin(), list.end());
    if (!in.is_string()) return list;
    std::string out;
    for (const Value& v : list) out += v.string();
    return out;
  }
  if (name == "join") {
    std::string out, mark = arg(0, "d") ? arg(0, "d")->str() : "";
    bool first = true;
    for (const Value& v : elements(in, name, budget)) {
      std::string part =
          (first ? "" : mark) + (arg(1, "attribute") ? path(v, *arg(1, "attribute")) : v).str();
      budget.string(part.size());
      out += part;
      first = false;
    }
    return out;
  }
  if (name == "sort")
    return sorted(elements(in, name, budget), arg(2, "attribute"), flag(0, "reverse", false),
                  flag(1, "case_sensitive", false));
  if (name == "unique") {
    ValueList out;
    for (Value& v : elements(in, name, budget)) {
      budget.elements(out.size());
      auto same = [&](const Value& o) {
        return v.is_string() && o.is_string() ? lower(v.string()) == lower(o.string()) : v == o;
      };
      if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(v));
    }
    return out;
  }
  if (name == "min" || name == "max") {
    ValueList list = sorted(elements(in, name, budget), arg(1, "attribute"), false, false);
    if (list.empty()) return Value::undefined(name);
    return name == "min" ? list.front() : list.back();
  }
  if (name == "sum") {
    Value out = 0;
    for (const Value& v : elements(in, name, budget)) {
      Value x = arg(0, "attribute") ? path(v, *arg(0, "attribute")) : v;
      if (!x.is_number()) refuse(cat("sum needs numbers, not ", x.type_name()));
      std::int64_t n = 0;
      if (out.is_float() || x.is_float() || __builtin_add_overflow(out.integer(), x.integer(), &n))
        out = out.number() + x.number();
      else
        out = n;
    }
    return out;
  }
  if ((name == "map" || name.starts_with("select") || name.starts_with("reject")) && !in.truthy())
    return ValueList{};
  if (name == "map") {
    ValueList out;
    const Value* attribute = given({}, named, 0, "attribute");
    const Value* otherwise = given({}, named, 0, "default");
    for (const Value& v : elements(in, name, budget)) {
      if (attribute) {
        Value x = path(v, *attribute);
        out.push_back(x.is_undefined() && otherwise ? *otherwise : x);
      } else {
        if (a.empty()) refuse("map needs a filter or attribute=");
        Arguments rest(a.begin() + 1, a.end());
        out.push_back(apply_filter(need_string(&a[0], name), v, rest, named, budget));
      }
    }
    return out;
  }
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    const bool by_attribute = name.ends_with("attr"), keep = name.starts_with("select");
    const std::size_t test = by_attribute ? 1 : 0;
    if (by_attribute && a.empty()) refuse(cat(name, " needs an attribute"));
    Arguments rest(a.begin() + std::ptrdiff_t(std::min(a.size(), test + 1)), a.end());
    ValueList out;
    for (Value& v : elements(in, name, budget)) {
      Value x = by_attribute ? path(v, a[0]) : v;
      bool is = a.size() > test ? apply_test(need_string(&a[test], name), x, rest) : x.truthy();
      if (is == keep) out.push_back(std::move(v));
    }
    return out;
  }
  if (name == "groupby") {
    ValueList out;
    const Value* by = arg(0, "attribute");
    if (!by) refuse("groupby needs an attribute");
    for (Value& v : sorted(elements(in, name, budget), by, false, false)) {
      Value key = path(v, *by);
      if (out.empty() || !((*out.back().list())[0] == key)) {
        out.push_back(ValueList{key, ValueList{v}});
      } else {
        ValueList group = *(*out.back().list())[1].list();
        group.push_back(v);
        budget.elements(group.size());
        out.back() = ValueList{key, std::move(group)};
      }
    }
    return out;
  }
  refuse(cat("there is no filter '", name, "'"));
}

bool apply_test(const std::string& name, const Value& v, const Arguments& a) {
  auto other = [&]() -> const Value& {
    if (a.empty()) refuse(cat("the test '", name, "' needs a value"));
    return a[0];
  };
  if (name == "defined") return !v.is_undefined();
  if (name == "undefined") return v.is_undefined();
  if (name == "none") return v.is_none();
  if (name == "string") return v.is_string();
  if (name == "number") return v.is_number();
  if (name == "integer") return v.is_integer();
  if (name == "float") return v.is_float();
  if (name == "boolean") return v.is<bool>();
  if (name == "true") return v.is<bool>() && v.truthy();
  if (name == "false") return v.is<bool>() && !v.truthy();
  if (name == "mapping") return v.dict();
  if (name == "sequence") return v.list() || v.dict() || v.is_string();
  if (name == "iterable") return v.list() || v.dict() || v.is_string() || v.is_undefined();
  if (name == "callable") return v.function();
  if (name == "eq" || name == "equalto" || name == "==") return v == other();
  if (name == "ne" || name == "!=") return !(v == other());
  if (name == "lt" || name == "lessthan" || name == "<") return v.less(other());
  if (name == "gt" || name == "greaterthan" || name == ">") return other().less(v);
  if (name == "le" || name == "<=") return !other().less(v);
  if (name == "ge" || name == ">=") return !v.less(other());
  if (name == "sameas") return v.type_name() == other().type_name() && v == other();
  if (name == "odd") return need_integer(&v, name) % 2 != 0;
  if (name == "even") return need_integer(&v, name) % 2 == 0;
  if (name == "divisibleby") {
    std::int64_t by = need_integer(&other(), name);
    if (by == 0) refuse("division by zero");
    return by == -1 || need_integer(&v, name) % by == 0;
  }
  if (name == "lower")
    return v.is_string() && lower(v.string()) == v.string() && upper(v.string()) != v.string();
  if (name == "upper")
    return v.is_string() && upper(v.string()) == v.string() && lower(v.string()) != v.string();
  if (name == "in") {
    const Value& in = other();
    if (in.is_string()) return in.string().find(need_string(&v, "'in' of a string")) != std::string::npos;
    if (in.list()) return std::find(in.list()->begin(), in.list()->end(), v) != in.list()->end();
    if (in.dict() || in.namespace_attributes()) return in.find(v) != nullptr;
    if (in.is_undefined()) return false;
    refuse(cat("'in' needs a list, a dict or a string, not ", in.type_name()));
  }
  refuse(cat("there is no test '", name, "'"));
}

Value global_function(const std::string& name, std::time_t now, Budget& budget,
                      std::vector<Value>& namespaces) {
  auto dict = [](Arguments& a, Named& named) {
    ValueDict out;
    if (!a.empty() && a[0].dict()) out = *a[0].dict();
    for (auto& [n, v] : named) set_key(out, n, v);
    return out;
  };
  if (name == "namespace")
    return ValueFunction{name, [dict, &namespaces](Arguments& a, Named& named) {
                           return namespaces.emplace_back(Value::make_namespace(dict(a, named)));
                         }};
  if (name == "dict")
    return ValueFunction{name, [dict](Arguments& a, Named& named) -> Value { return dict(a, named); }};
  if (name == "raise_exception")
    return ValueFunction{
        name, [](Arguments& a, Named&) -> Value {
          throw ArgumentError(a.empty() ? "the template refuses this conversation" : a[0].str());
        }};
  if (name == "range")
    return ValueFunction{name, [&budget](Arguments& a, Named&) -> Value {
                           std::int64_t from = 0, to = 0, step = 1;
                           if (a.size() == 1) {
                             to = need_integer(&a[0], "range");
                           } else {
                             from = need_integer(given(a, {}, 0, ""), "range");
                             to = need_integer(given(a, {}, 1, ""), "range");
                             if (a.size() > 2) step = need_integer(&a[2], "range");
                           }
                           if (step == 0) refuse("the step of a range is not 0");
                           ValueList out;
                           while (step > 0 ? from < to : from > to) {
                             budget.step();
                             out.emplace_back(from);
                             if (__builtin_add_overflow(from, step, &from)) break;
                           }
                           return out;
                         }};
  if (name == "strftime_now")
    return ValueFunction{name, [now](Arguments& a, Named&) -> Value {
                           std::tm local{};
                           localtime_r(&now, &local);
                           char buffer[256];
                           std::size_t n = std::strftime(
                               buffer, sizeof buffer,
                               need_string(given(a, {}, 0, ""), "strftime_now").c_str(), &local);
                           return std::string(buffer, n);
                         }};
  if (name == "joiner")
    return ValueFunction{name, [](Arguments& a, Named&) -> Value {
                           auto used = std::make_shared<bool>(false);
                           std::string mark = a.empty() ? ", " : a[0].str();
                           return ValueFunction{"joiner", [used, mark](Arguments&, Named&) -> Value {
                                                  return std::exchange(*used, true) ? mark : std::string();
                                                }};
                         }};
  return Value::undefined(name);
}

}  // namespace cgp::model::jinja
