// SPDX-License-Identifier: Apache-2.0
// Methods of strings and dicts.
#include <algorithm>
#include <map>

#include "cgp/model/template/template_text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model::jinja {

namespace {

using Method = Value (*)(const Value& self, Arguments& a, Named& named, Budget& budget);

const Value* at(const Arguments& a, std::size_t i) { return i < a.size() ? &a[i] : nullptr; }

bool has_affix(const Value& self, const Arguments& a, bool front, std::string_view of) {
  const Value* v = at(a, 0);
  auto one = [&](const Value& x) {
    const std::string& affix = need_string(&x, of);
    return front ? self.string().starts_with(affix) : self.string().ends_with(affix);
  };
  if (v && v->list()) return std::any_of(v->list()->begin(), v->list()->end(), one);
  need_string(v, of);
  return one(*v);
}

std::int64_t most_of(const Arguments& a, const Named& named) {
  const Value* v = given(a, named, 1, "maxsplit");
  return v ? need_integer(v, "split") : -1;
}

/// Characters before byte `at`.
std::int64_t place(std::string_view s, std::size_t at) {
  if (at == s.npos) return -1;
  std::int64_t n = 0;
  for (std::size_t i = 0; i < at; i += unicode::decode(s, i).size) ++n;
  return n;
}

const std::map<std::string_view, Method>& string_methods() {
  static const std::map<std::string_view, Method> table = {
      {"strip",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return stripped(s.string(), at(a, 0), true, true);
       }},
      {"lstrip",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return stripped(s.string(), at(a, 0), true, false);
       }},
      {"rstrip",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return stripped(s.string(), at(a, 0), false, true);
       }},
      {"lower", [](const Value& s, Arguments&, Named&, Budget&) -> Value { return lower(s.string()); }},
      {"upper", [](const Value& s, Arguments&, Named&, Budget&) -> Value { return upper(s.string()); }},
      {"capitalize",
       [](const Value& s, Arguments&, Named&, Budget&) -> Value { return capitalized(s.string()); }},
      {"title", [](const Value& s, Arguments&, Named&, Budget&) -> Value { return titled(s.string()); }},
      {"startswith",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return has_affix(s, a, true, "startswith");
       }},
      {"endswith",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return has_affix(s, a, false, "endswith");
       }},
      {"split",
       [](const Value& s, Arguments& a, Named& n, Budget&) -> Value {
         return split(s.string(), given(a, n, 0, "sep"), most_of(a, n), false);
       }},
      {"rsplit",
       [](const Value& s, Arguments& a, Named& n, Budget&) -> Value {
         return split(s.string(), given(a, n, 0, "sep"), most_of(a, n), true);
       }},
      {"splitlines",
       [](const Value& s, Arguments&, Named&, Budget&) -> Value { return lines_of(s.string()); }},
      {"replace",
       [](const Value& s, Arguments& a, Named&, Budget& b) -> Value {
         return replaced(s.string(), need_string(at(a, 0), "replace"), need_string(at(a, 1), "replace"),
                         at(a, 2) ? need_integer(at(a, 2), "replace") : -1, b);
       }},
      {"find",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return place(s.string(), s.string().find(need_string(at(a, 0), "find")));
       }},
      {"rfind",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         return place(s.string(), s.string().rfind(need_string(at(a, 0), "rfind")));
       }},
      {"count",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         const std::string& part = need_string(at(a, 0), "count");
         if (part.empty()) refuse("count needs a text");
         std::int64_t n = 0;
         for (std::size_t i = 0; (i = s.string().find(part, i)) != std::string::npos; i += part.size()) ++n;
         return n;
       }},
      {"join",
       [](const Value& s, Arguments& a, Named& n, Budget& b) -> Value {
         Arguments mark = {s};
         return apply_filter("join", at(a, 0) ? *at(a, 0) : Value(), mark, n, b);
       }},
      {"isdigit",
       [](const Value& s, Arguments&, Named&, Budget&) -> Value {
         return !s.string().empty() && s.string().find_first_not_of("0123456789") == std::string::npos;
       }},
      {"format",
       [](const Value& s, Arguments& a, Named& n, Budget& b) -> Value {
         return limited(brace_formatted(s.string(), a, n), b);
       }},
      {"removeprefix",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         const std::string& p = need_string(at(a, 0), "removeprefix");
         return s.string().starts_with(p) ? s.string().substr(p.size()) : s.string();
       }},
      {"removesuffix",
       [](const Value& s, Arguments& a, Named&, Budget&) -> Value {
         const std::string& p = need_string(at(a, 0), "removesuffix");
         return s.string().ends_with(p) ? s.string().substr(0, s.string().size() - p.size()) : s.string();
       }},
  };
  return table;
}

const std::map<std::string_view, Method>& dict_methods() {
  static const std::map<std::string_view, Method> table = {
      {"items", [](const Value& d, Arguments&, Named&, Budget&) -> Value { return items_of(d); }},
      {"keys", [](const Value& d, Arguments&, Named&, Budget& b) -> Value { return elements(d, "keys", b); }},
      {"values",
       [](const Value& d, Arguments&, Named&, Budget&) -> Value {
         ValueList out;
         for (const auto& [k, v] : *d.dict()) out.push_back(v);
         return out;
       }},
      {"get",
       [](const Value& d, Arguments& a, Named&, Budget&) -> Value {
         if (a.empty()) refuse("get needs a key");
         if (const Value* v = d.find(a[0])) return *v;
         return a.size() > 1 ? a[1] : Value();
       }},
  };
  return table;
}

}  // namespace

Value method_of(const Value& object, const std::string& name, Budget& budget) {
  const auto* table = object.is_string() ? &string_methods() : object.dict() ? &dict_methods() : nullptr;
  if (!table) return Value::undefined(name);
  auto it = table->find(name);
  if (it == table->end()) return Value::undefined(name);
  return ValueFunction{name, [method = it->second, object, &budget](Arguments& a, Named& named) {
                         if (object.is_string()) budget.string(object.string().size());
                         return method(object, a, named, budget);
                       }};
}

}  // namespace cgp::model::jinja
