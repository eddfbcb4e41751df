// SPDX-License-Identifier: Apache-2.0
// JSON schema to GBNF.
#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <unordered_map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/grammar/grammar_rules.h"
#include "cgp/model/template/value.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

using text::cat;

constexpr std::size_t kMaxRules = 20'000, kMaxSchema = 1 << 20;
constexpr std::size_t kMaxMerges = 100'000, kMaxKeys = 64 << 20, kMaxPropertyName = 500;
constexpr int kMaxHops = 64;

/// What every schema may use. A number has a bounded length, so that a model cannot write digits for ever.
constexpr std::pair<std::string_view, std::string_view> kShared[] = {
    {"ws", R"(( " " | "\n" [ \t]{0,20} )?)"},
    {"hex", "[0-9a-fA-F]"},
    {"char",
     R"([^"\\\x00-\x1F] | "\\" ( ["\\/bfnrt] | "u" ( [0-9abcefABCEF] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2} ) ))"},
    {"string", R"("\"" char* "\"")"},
    {"integer", R"("-"? ( "0" | [1-9] [0-9]{0,19} ))"},
    {"number", R"(integer ( "." [0-9]{1,20} )? ( [eE] [-+]? [0-9]{1,3} )?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"value", "object | array | string | number | boolean | null"},
    {"member", R"(string ":" ws value)"},
    {"object", R"("{" ws ( member ( "," ws member )* ws )? "}")"},
    {"array", R"("[" ws ( value ( "," ws value )* ws )? "]")"},
    {"year-date",
     R"([0-9]{3} [1-9] "-" ( "02-" ( "0" [1-9] | "1" [0-9] | "2" [0-8] ) | ( "0" [469] | "11" ) "-" ( "0" [1-9] | [12] [0-9] | "30" ) | ( "0" [13578] | "1" [02] ) "-" ( "0" [1-9] | [12] [0-9] | "3" [01] ) ))"},
    {"day-time",
     R"(( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] ":" [0-5] [0-9] ( "." [0-9]{1,9} )? ( "Z" | [-+] ( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] ))"},
    {"date", R"("\"" year-date "\"")"},
    {"time", R"("\"" day-time "\"")"},
    {"date-time", R"("\"" year-date "T" day-time "\"")"},
    {"uuid", R"("\"" hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12} "\"")"},
};

constexpr std::string_view kAnnotations[] = {
    "title",    "description", "default",          "examples",       "example",     "$schema",
    "$id",      "$comment",    "$anchor",          "$defs",          "definitions", "deprecated",
    "readOnly", "writeOnly",   "contentMediaType", "contentEncoding"};
constexpr std::string_view kKeywords[] = {"type",
                                          "properties",
                                          "required",
                                          "additionalProperties",
                                          "items",
                                          "prefixItems",
                                          "minItems",
                                          "maxItems",
                                          "minLength",
                                          "maxLength",
                                          "pattern",
                                          "format",
                                          "minimum",
                                          "maximum",
                                          "exclusiveMinimum",
                                          "exclusiveMaximum",
                                          "enum",
                                          "const",
                                          "anyOf",
                                          "oneOf",
                                          "allOf",
                                          "$ref"};
constexpr std::string_view kSchemaTypes[] = {"object",  "array",   "string", "number",
                                             "integer", "boolean", "null"};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// As JSON writes it, with the fewest escapes.
std::string json_text(std::string_view s) {
  std::string out = "\"";
  constexpr std::string_view kFrom = "\"\\\b\f\n\r\t", kTo = "\"\\bfnrt";
  for (char c : s) {
    if (const std::size_t i = kFrom.find(c); i != kFrom.npos)
      out += cat('\\', kTo[i]);
    else if (static_cast<unsigned char>(c) < 32)
      out += cat("\\u00", c < 16 ? "0" : "1", "0123456789abcdef"[c & 15]);
    else
      out += c;
  }
  return out + '"';
}

class SchemaWriter {
 public:
  SchemaWriter(std::string_view schema, const std::string& name) : name_(name) {
    if (schema.size() > kMaxSchema)
      fail("a schema has at most 1 MB of text", "", cat("it has ", schema.size(), " bytes"));
    for (std::size_t at = 0; at < schema.size(); at += unicode::decode(schema, at).size)
      if (static_cast<unsigned char>(schema[at]) >= 0x80 && unicode::decode(schema, at).size == 1)
        throw ParseError(
            ErrorText{"a schema is UTF-8", cat(name_, ", byte ", at), "it is no part of a character", {}});
    root_ = Value::from_json(schema, name);
  }

  std::string write() {
    std::string out = cat("root ::= ", reference(root_, "#"), "\n");
    while (!pending_.empty()) {
      Pending p = std::move(pending_.front());
      pending_.pop_front();
      const std::string body = body_of(p.schema, p.place);
      rules_ += cat(p.rule, " ::= ", body, "\n");
      if (rules_.size() > kMaxSchema)
        fail("the grammar of a schema has at most 1 MB of text", p.place, "it is larger");
    }
    out += rules_;
    // What is used of the shared rules, in their order: each uses others before or behind it.
    std::vector<std::string_view> open(shared_.begin(), shared_.end());
    while (!open.empty()) {
      const std::string_view one = open.back();
      open.pop_back();
      const auto found =
          std::find_if(std::begin(kShared), std::end(kShared), [&](const auto& s) { return s.first == one; });
      for (const auto& [other, text] : kShared)
        if (contains_name(found->second, other) && !among(shared_, other))
          shared_.push_back(other), open.push_back(other);
    }
    for (const auto& [rule, text] : kShared)
      if (among(shared_, rule)) out += cat(rule, " ::= ", text, "\n");
    return out;
  }

 private:
  struct Pending {
    std::string rule, place;
    Value schema;
  };

  [[noreturn]] void fail(std::string rule, const std::string& place, std::string why = {}) const {
    throw ParseError(
        ErrorText{std::move(rule), cat(name_, place.empty() ? "" : ", ", place), std::move(why), {}});
  }
  [[noreturn]] void unsupported(std::string what, const std::string& place) const {
    throw Unsupported(ErrorText{"a schema says what a grammar can say", cat(name_, ", ", place),
                                std::move(what), "docs/cli.md lists the keywords"});
  }
  static bool contains_name(std::string_view text, std::string_view name) {
    const auto is_name = [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); };
    for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1))
      if ((at == 0 || !is_name(text[at - 1])) &&
          (at + name.size() == text.size() || !is_name(text[at + name.size()])))
        return true;
    return false;
  }
  std::string shared(std::string_view rule) {
    if (!among(shared_, rule))
      shared_.push_back(std::find_if(std::begin(kShared), std::end(kShared), [&](const auto& s) {
                          return s.first == rule;
                        })->first);
    return std::string(rule);
  }
  std::string new_rule(std::string_view place) {
    if (++rule_count_ > kMaxRules)
      fail(cat("the grammar of a schema has at most ", kMaxRules, " rules"), std::string(place));
    std::string out = "s";
    const std::string_view last =
        place.substr(place.rfind('/') == place.npos ? place.size() : place.rfind('/') + 1);
    for (char c : last.substr(0, 40))
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) out += c;
    return cat(out, "-", rule_count_);
  }
  std::string helper(std::string_view place, std::string_view body) {
    std::string rule = new_rule(place);
    rules_ += cat(rule, " ::= ", body, "\n");
    return rule;
  }

  /// A name for what the schema admits.
  std::string reference(const Value& schema, const std::string& place) {
    const Value whole = resolved(schema, place);
    if (whole.dict()->empty()) return shared("value");
    const std::string key = whole.json();
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    key_bytes_ += key.size();
    if (key_bytes_ > kMaxKeys) fail("a schema is of moderate size once its parts are merged", place);
    std::string rule = new_rule(place);
    known_.emplace(key, rule);
    pending_.push_back({rule, place, whole});
    return rule;
  }

  const Value& target(const std::string& ref, const std::string& place) const {
    if (ref.empty() || ref[0] != '#')
      unsupported(cat("$ref to '", ref, "', which is not within the schema"), place);
    if (ref.size() > 1 && ref[1] != '/') unsupported(cat("$ref to an anchor, '", ref, "'"), place);
    const Value* at = &root_;
    for (std::size_t begin = 2; begin <= ref.size() && ref.size() > 1;) {
      const std::size_t end = std::min(ref.find('/', begin), ref.size());
      std::string key;
      for (std::size_t i = begin; i < end; ++i) {
        const std::string_view rest = std::string_view(ref).substr(i, end - i);
        if (rest.starts_with("~1"))
          key += '/', ++i;
        else if (rest.starts_with("~0"))
          key += '~', ++i;
        else if (rest.starts_with("%20"))
          key += ' ', i += 2;
        else
          key += ref[i];
      }
      if (const ValueList* list = at->list()) {
        const bool number = !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == key.npos;
        const std::size_t i = number ? std::size_t(std::stoul(key)) : list->size();
        at = i < list->size() ? &(*list)[i] : nullptr;
      } else {
        at = at->dict() ? at->find(key) : nullptr;
      }
      if (!at) fail("a $ref is a place of the schema", place, cat("there is no '", ref, "'"));
      begin = end + 1;
    }
    return *at;
  }

  /// The schema without annotations, $ref and allOf.
  Value resolved(const Value& schema, const std::string& place, int hops = 0) {
    if (++merges_ > kMaxMerges) fail(cat("a schema has at most ", kMaxMerges, " parts to merge"), place);
    if (hops > kMaxHops) fail("a schema does not refer to itself at the same place", place);
    if (schema.is<bool>()) {
      if (!schema.truthy()) unsupported("the schema false, which admits nothing", place);
      return ValueDict{};
    }
    if (!schema.dict()) fail("a schema is an object or a boolean", place, cat("it is ", schema.type_name()));
    Value out = ValueDict{};
    ValueDict own;
    for (const auto& [key, value] : *schema.dict()) {
      const std::string& k = key.string();
      if (among(kAnnotations, k) || k.starts_with("x-")) continue;
      if ((k == "uniqueItems" || k == "nullable") && value.is<bool>() && !value.truthy()) continue;
      if (!among(kKeywords, k)) unsupported(cat("the keyword '", k, "'"), place);
      if (k == "$ref") {
        if (!value.is_string()) fail("$ref is a string", place);
        out = merged(out, resolved(target(value.string(), place), value.string(), hops + 1), place);
      } else if (k == "allOf") {
        const ValueList* list = value.list();
        if (!list || list->empty()) fail("allOf is a list of schemas", place);
        for (std::size_t i = 0; i < list->size(); ++i)
          out = merged(out, resolved((*list)[i], cat(place, "/allOf/", i), hops + 1), place);
      } else {
        own.push_back({key, value});
      }
    }
    return merged(out, Value(std::move(own)), place);
  }

  static Value both(const Value& a, const Value& b) {
    return ValueDict{{Value("allOf"), Value(ValueList{a, b})}};
  }
  std::vector<std::string> types_of(const Value& type, const std::string& place) const {
    std::vector<std::string> out;
    const auto add = [&](const Value& t) {
      if (!t.is_string() || !among(kSchemaTypes, t.string()))
        fail("a type is one of JSON schema's", place, cat("it is ", t.json()));
      if (!among(out, t.string())) out.push_back(t.string());
    };
    if (const ValueList* list = type.list())
      for (const Value& t : *list) add(t);
    else
      add(type);
    if (out.empty()) fail("a list of types has one", place);
    return out;
  }
  /// What both admit.
  Value merged(const Value& a, const Value& b, const std::string& place) {
    if (a.dict()->empty()) return b;
    if (b.dict()->empty()) return a;
    ValueDict out = *a.dict();
    for (const auto& [key, value] : *b.dict()) {
      const std::string& k = key.string();
      const Value* there = a.find(key);
      if (!there) {
        // In which of the two properties stand matters to what is additional.
        if (k == "additionalProperties" && a.find("properties"))
          unsupported("additionalProperties in a part of allOf", place);
        set_key(out, key, value);
        continue;
      }
      if (*there == value && k != "additionalProperties") continue;
      if (k == "properties") {
        if (!there->dict() || !value.dict()) fail("properties is an object", place);
        ValueDict all = *there->dict();
        for (const auto& [name, schema] : *value.dict()) {
          const Value* old = there->find(name);
          set_key(all, name, old ? both(*old, schema) : schema);
        }
        set_key(out, key, Value(std::move(all)));
      } else if (k == "required") {
        if (!there->list() || !value.list()) fail("required is a list of names", place);
        ValueList all = *there->list();
        all.insert(all.end(), value.list()->begin(), value.list()->end());
        set_key(out, key, Value(std::move(all)));
      } else if (k == "type") {
        const auto x = types_of(*there, place), y = types_of(value, place);
        ValueList shared;
        for (const std::string& t : x)
          if (among(y, t) || (t == "integer" && among(y, "number"))) shared.push_back(Value(t));
        if (among(x, "number") && !among(x, "integer") && among(y, "integer") && !among(y, "number"))
          shared.push_back(Value("integer"));
        if (shared.empty()) unsupported("types of allOf that exclude one another", place);
        set_key(out, key, Value(std::move(shared)));
      } else if (k == "items") {
        set_key(out, key, both(*there, value));
      } else if (k.starts_with("min") || k == "exclusiveMinimum" || k.starts_with("max") ||
                 k == "exclusiveMaximum") {
        if (!there->is_number() || !value.is_number()) fail(cat(k, " is a number"), place);
        const bool least = k.starts_with("min") || k == "exclusiveMinimum";
        set_key(out, key, (there->number() < value.number()) == least ? value : *there);
      } else {
        unsupported(cat("two of '", k, "' at one place"), place);
      }
    }
    if (const Value* p = a.find("additionalProperties");
        p && b.find("properties") && !(p->is<bool>() && p->truthy()))
      unsupported("additionalProperties in a part of allOf", place);
    return Value(std::move(out));
  }

  std::string body_of(const Value& s, const std::string& place) {
    for (const char* k : {"anyOf", "oneOf"})
      if (const Value* ways = s.find(k)) return alternatives(s, k, *ways, place);
    if (s.find("const") || s.find("enum")) return constants(s, place);
    std::vector<std::string> types;
    if (const Value* type = s.find("type")) {
      types = types_of(*type, place);
    } else {
      const auto has = [&](std::initializer_list<const char*> keys) {
        return std::any_of(keys.begin(), keys.end(), [&](const char* k) { return s.find(k) != nullptr; });
      };
      if (has({"properties", "required", "additionalProperties"})) types.push_back("object");
      if (has({"items", "prefixItems", "minItems", "maxItems"})) types.push_back("array");
      if (has({"minLength", "maxLength", "pattern", "format"})) types.push_back("string");
      if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) types.push_back("number");
    }
    std::vector<std::string> ways;
    for (const std::string& t : types) ways.push_back(of_type(t, s, place));
    return text::join(ways, " | ");
  }

  std::string alternatives(const Value& s, const std::string& keyword, const Value& ways,
                           const std::string& place) {
    const ValueList* list = ways.list();
    if (!list || list->empty()) fail(cat(keyword, " is a list of schemas"), place);
    ValueDict rest;
    for (const auto& [key, value] : *s.dict())
      if (key.string() != keyword) rest.push_back({key, value});
    std::vector<std::string> out;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string at = cat(place, "/", keyword, "/", i);
      out.push_back(reference(rest.empty() ? (*list)[i] : both(Value(rest), (*list)[i]), at));
    }
    return text::join(out, " | ");
  }

  static bool is_type(const Value& v, const std::string& type) {
    if (type == "null") return v.is_none();
    if (type == "boolean") return v.is<bool>();
    if (type == "string") return v.is_string();
    if (type == "object") return v.dict();
    if (type == "array") return v.list();
    if (v.is<bool>()) return false;
    return v.is_integer() || (v.is_float() && (type == "number" || v.number() == std::floor(v.number())));
  }
  std::string constants(const Value& s, const std::string& place) {
    ValueList values;
    if (const Value* list = s.find("enum")) {
      if (!list->list() || list->list()->empty()) fail("enum is a list of values", place);
      values = *list->list();
    }
    if (const Value* one = s.find("const")) {
      if (s.find("enum") && std::find(values.begin(), values.end(), *one) == values.end())
        unsupported("const that enum does not have", place);
      values = {*one};
    }
    std::vector<std::string> types;
    for (const auto& [key, value] : *s.dict()) {
      const std::string& k = key.string();
      if (k == "type") types = types_of(value, place);
      if (k != "type" && k != "enum" && k != "const")
        unsupported(cat("'", k, "' beside const or enum"), place);
    }
    std::vector<std::string> out;
    for (const Value& v : values)
      if (types.empty() ||
          std::any_of(types.begin(), types.end(), [&](const std::string& t) { return is_type(v, t); }))
        out.push_back(constant(v));
    if (out.empty()) unsupported("const or enum without a value of the type", place);
    return text::join(out, " | ");
  }
  std::string constant(const Value& v) {
    if (v.is_string()) return gbnf_literal(json_text(v.string()));
    if (!v.dict() && !v.list()) return gbnf_literal(v.json());
    const std::string ws = shared("ws");
    std::vector<std::string> members;
    if (const ValueDict* dict = v.dict())
      for (const auto& [key, value] : *dict)
        members.push_back(cat(gbnf_literal(json_text(key.string()) + ":"), " ", ws, " ", constant(value)));
    else
      for (const Value& value : *v.list()) members.push_back(constant(value));
    const char *open = v.dict() ? "\"{\" " : "\"[\" ", *close = v.dict() ? " \"}\"" : " \"]\"";
    if (members.empty()) return cat(open, ws, close);
    return cat(open, ws, " ", text::join(members, cat(" \",\" ", ws, " ")), " ", ws, close);
  }

  std::string of_type(const std::string& type, const Value& s, const std::string& place) {
    if (type == "object") return object(s, place);
    if (type == "array") return array(s, place);
    if (type == "string") return string(s, place);
    if (type == "number" || type == "integer") return number(s, type == "integer", place);
    return shared(type);
  }

  /// Of a keyword that counts.
  std::optional<std::size_t> count(const Value& s, const char* keyword, const std::string& place) const {
    const Value* v = s.find(keyword);
    if (!v) return {};
    const double n = v->is_number() && !v->is<bool>() ? v->number() : -1;
    if (n < 0 || n != std::floor(n))
      fail(cat(keyword, " is a whole number, at least 0"), place, cat("it is ", v->json()));
    if (n > 100'000) unsupported(cat(keyword, " above 100000"), place);
    return std::size_t(n);
  }
  static std::string times(std::string_view what, std::size_t least, std::optional<std::size_t> most) {
    if (most) return cat(what, "{", least, ",", *most, "}");
    return least == 0 ? cat(what, "*") : cat(what, "{", least, ",}");
  }

  std::string string(const Value& s, const std::string& place) {
    const auto least = count(s, "minLength", place), most = count(s, "maxLength", place);
    if (most && least.value_or(0) > *most) fail("minLength is at most maxLength", place);
    const Value *pattern = s.find("pattern"), *format = s.find("format");
    if (format && !format->is_string()) fail("format is a string", place);
    const bool known_format =
        format &&
        among(std::initializer_list<std::string_view>{"date", "time", "date-time", "uuid"}, format->string());
    if (int(least || most) + int(pattern != nullptr) + int(known_format) > 1)
      unsupported("two of lengths, pattern and format at one place", place);
    if (pattern) {
      if (!pattern->is_string()) fail("pattern is a string", place);
      return cat("\"\\\"\" ", gbnf_of_pattern(pattern->string(), cat(name_, ", ", place, ", pattern")),
                 " \"\\\"\"");
    }
    if (known_format) return shared(format->string());
    if (!least && !most) return shared("string");
    return cat("\"\\\"\" ", times(shared("char"), least.value_or(0), most), " \"\\\"\"");
  }

  /// A bound as a whole number, and whether it is itself excluded.
  struct Bound {
    std::int64_t value = 0;
    bool excluded = false;
  };
  std::optional<Bound> bound(const Value& s, bool low, bool integer, const std::string& place) const {
    std::optional<Bound> out;
    for (const bool excluded : {false, true}) {
      const char* keyword = low        ? (excluded ? "exclusiveMinimum" : "minimum")
                            : excluded ? "exclusiveMaximum"
                                       : "maximum";
      const Value* v = s.find(keyword);
      if (!v) continue;
      if (!v->is_number() || v->is<bool>())
        fail(cat(keyword, " is a number"), place, cat("it is ", v->json()));
      double x = v->number();
      if (!(std::fabs(x) < 1e15)) unsupported(cat(keyword, " of 1e15 and more"), place);
      Bound one{0, excluded};
      if (integer) {
        // The nearest whole number that is admitted.
        one.value = std::int64_t(low ? std::ceil(x) : std::floor(x));
        if (excluded && double(one.value) == x) one.value += low ? 1 : -1;
        one.excluded = false;
      } else {
        if (x != std::floor(x)) unsupported(cat(keyword, " of a number with a fraction"), place);
        one.value = std::int64_t(x);
      }
      const bool tighter = !out || (low ? one.value > out->value : one.value < out->value) ||
                           (one.value == out->value && excluded);
      if (tighter) out = one;
    }
    return out;
  }
  std::string number(const Value& s, bool integer, const std::string& place) {
    const auto low = bound(s, true, integer, place), high = bound(s, false, integer, place);
    if (!low && !high) return shared(integer ? "integer" : "number");
    const auto empty = [&] { fail("minimum is at most maximum", place); };
    if (low && high &&
        (low->value > high->value || (low->value == high->value && (low->excluded || high->excluded))))
      empty();
    const std::int64_t* const from = low ? &low->value : nullptr;
    const std::int64_t* const to = high ? &high->value : nullptr;
    if (integer) return gbnf_of_integers(from, to);
    // Numbers of each sign by their size: from `a` to `b`.
    std::vector<std::string> ways;
    const auto side = [&](std::string_view sign, std::optional<Bound> a, std::optional<Bound> b) {
      const Bound first = a && a->value >= 0 ? *a : Bound{};
      constexpr std::string_view kFraction = "( \".\" [0-9]{1,20} )?";
      const auto add = [&](std::string_view whole, std::string_view fraction) {
        ways.push_back(cat(sign, whole, " ", fraction));
      };
      std::int64_t begin = first.value;
      if (first.excluded && (!b || b->value > begin)) {
        add(cat('"', begin, '"'), "\".\" [0-9]{0,19} [1-9]");
        ++begin;
      }
      const std::int64_t last = b ? b->value - 1 : 0;
      if (!b || begin <= last) add(gbnf_of_integers(&begin, b ? &last : nullptr), kFraction);
      if (b && !b->excluded && b->value >= begin) add(cat('"', b->value, '"'), "( \".\" \"0\"{1,20} )?");
    };
    const auto negated = [](const std::optional<Bound>& b) {
      return b ? std::optional(Bound{-b->value, b->excluded}) : std::nullopt;
    };
    if (!high || high->value > 0 || (high->value == 0 && !high->excluded)) side("", low, high);
    if (!low || low->value < 0)
      side("\"-\" ", high && high->value <= 0 ? negated(high) : std::nullopt, negated(low));
    return text::join(ways, " | ");
  }

  std::string object(const Value& s, const std::string& place) {
    const Value *properties = s.find("properties"), *required = s.find("required"),
                *more = s.find("additionalProperties");
    if (properties && !properties->dict()) fail("properties is an object", place);
    if (required && !required->list()) fail("required is a list of names", place);
    ValueDict named = properties ? *properties->dict() : ValueDict{};
    std::vector<std::string> needed;
    if (required)
      for (const Value& name : *required->list()) {
        if (!name.is_string()) fail("required is a list of names", place);
        needed.push_back(name.string());
        if (properties && properties->find(name)) continue;
        if (more && more->is<bool>() && !more->truthy())
          fail("what is required is a property", place, cat("there is no '", name.string(), "'"));
        set_key(named, name, more && !more->is<bool>() ? *more : Value(true));
      }
    const bool open = more ? !(more->is<bool>() && !more->truthy()) : named.empty();
    const std::string ws = shared("ws");
    if (named.empty() && open && (!more || more->is<bool>())) return shared("object");
    std::vector<std::string> members;  // of each property: its name and value
    std::vector<bool> must;
    std::vector<std::string> names;
    for (const auto& [key, schema] : named) {
      names.push_back(key.string());
      must.push_back(among(needed, key.string()));
      const std::string value = reference(schema, cat(place, "/properties/", key.string()));
      members.push_back(cat(gbnf_literal(json_text(key.string()) + ":"), " ", ws, " ", value));
    }
    std::string other;
    if (open) {
      const std::string value =
          more && !more->is<bool>() ? reference(*more, cat(place, "/additionalProperties")) : shared("value");
      const std::string key =
          names.empty() ? shared("string") : cat("\"\\\"\" ", other_names(names, 0, place), " \"\\\"\"");
      other = helper(place, cat(key, " \":\" ", ws, " ", value));
    }
    // rest[i]: what may follow once a member has come, from property i on.
    std::vector<std::string> rest(members.size() + 1);
    if (open) rest.back() = helper(place, cat("( \",\" ", ws, " ", other, " )*"));
    for (std::size_t i = members.size(); i-- > 0;) {
      const std::string one = cat("\",\" ", ws, " ", members[i]);
      rest[i] = helper(place, cat(must[i] ? one : cat("( ", one, " )?"), " ", rest[i + 1]));
    }
    std::vector<std::string> ways;
    bool may_be_empty = true;
    for (std::size_t i = 0; i < members.size() && may_be_empty; ++i) {
      ways.push_back(cat(members[i], " ", rest[i + 1]));
      may_be_empty = !must[i];
    }
    if (may_be_empty && open) ways.push_back(cat(other, " ", rest.back()));
    if (ways.empty()) return cat("\"{\" ", ws, " \"}\"");
    return cat("\"{\" ", ws, " ( ( ", text::join(ways, " | "), " ) ", ws, " )", may_be_empty ? "?" : "",
               " \"}\"");
  }

  /// Keys without escapes that are none of `names`, which all begin with the same `depth` bytes.
  std::string other_names(const std::vector<std::string>& names, std::size_t depth,
                          const std::string& place) {
    constexpr std::string_view kNot = R"("\\\x00-\x1F)";
    if (depth > kMaxPropertyName)
      unsupported(cat("a name of more than ", kMaxPropertyName, " bytes beside additionalProperties"), place);
    bool is_name = false;
    std::vector<std::pair<std::string, std::vector<std::string>>> by_next;  // character, names
    for (const std::string& n : names) {
      if (n.size() == depth) {
        is_name = true;
        continue;
      }
      const std::string next = n.substr(depth, unicode::decode(n, depth).size);
      if (next == "\"" || next == "\\" || static_cast<unsigned char>(next[0]) < 32) continue;
      auto it = std::find_if(by_next.begin(), by_next.end(), [&](const auto& p) { return p.first == next; });
      if (it == by_next.end()) it = by_next.insert(it, {next, {}});
      it->second.push_back(n);
    }
    std::string others = cat("[^", kNot), body;
    for (const auto& [next, below] : by_next) {
      const std::uint32_t point = unicode::decode(next, 0).point;
      const std::string hex = text::hex(point).substr(2);
      const std::string escape = cat("\\U", std::string(8 - hex.size(), '0'), hex);
      others += escape;
      body += cat("[", escape, "] ", other_names(below, depth + next.size(), place), " | ");
    }
    body += cat(others, "] [^", kNot, "]*");
    return helper(place, is_name ? body : cat("( ", body, " )?"));
  }

  std::string array(const Value& s, const std::string& place) {
    const Value *items = s.find("items"), *prefix = s.find("prefixItems");
    const auto least = count(s, "minItems", place), most = count(s, "maxItems", place);
    const std::size_t from = least.value_or(0);
    if (most && from > *most) fail("minItems is at most maxItems", place);
    const std::string ws = shared("ws");
    if (most && *most == 0) return cat("\"[\" ", ws, " \"]\"");
    if (prefix && (!prefix->list() || prefix->list()->empty()))
      fail("prefixItems is a list of schemas", place);
    if (!prefix) {
      const std::string item = items ? reference(*items, cat(place, "/items")) : shared("value");
      if (items == nullptr && !least && !most) return shared("array");
      const std::string more = times(cat("( \",\" ", ws, " ", item, " )"), from > 0 ? from - 1 : 0,
                                     most ? std::optional(*most - 1) : std::nullopt);
      return cat("\"[\" ", ws, " ( ", item, " ", more, " ", ws, " )", from == 0 ? "?" : "", " \"]\"");
    }
    // Items behind the first ones: as `items` says, none without it.
    const ValueList& first = *prefix->list();
    const bool goes_on = items && !(items->is<bool>() && !items->truthy());
    if (!goes_on && from > first.size()) unsupported("more minItems than prefixItems, without items", place);
    const std::size_t taken = most ? std::min(first.size(), *most) : first.size();
    std::string rest;
    if (goes_on && (!most || *most > taken)) {
      const std::string item = reference(*items, cat(place, "/items"));
      rest = times(cat("( \",\" ", ws, " ", item, " )"), from > taken ? from - taken : 0,
                   most ? std::optional(*most - taken) : std::nullopt);
    }
    for (std::size_t i = taken; i-- > 0;) {
      const std::string one = cat(i > 0 ? cat("\",\" ", ws, " ") : "",
                                  reference(first[i], cat(place, "/prefixItems/", i)), " ", rest);
      rest = helper(place, i >= from ? cat("( ", one, i == 0 ? cat(" ", ws) : "", " )?")
                                     : cat(one, i == 0 ? cat(" ", ws) : ""));
    }
    return cat("\"[\" ", ws, " ", rest, " \"]\"");
  }

  const std::string& name_;
  Value root_;
  std::string rules_;
  std::size_t rule_count_ = 0, merges_ = 0, key_bytes_ = 0;
  std::deque<Pending> pending_;
  std::unordered_map<std::string, std::string> known_;  ///< rules by the schema's text
  std::vector<std::string_view> shared_;
};

}  // namespace

std::string gbnf_of_json_schema(std::string_view schema, const std::string& name) {
  return SchemaWriter(schema, name).write();
}

}  // namespace cgp::model
