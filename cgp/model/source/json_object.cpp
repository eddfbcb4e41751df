// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/source/json_object.h"

#include <cmath>

#include "cgp/base/file.h"
#include "cgp/base/text.h"

namespace cgp::model {

using text::cat;

JsonObject::JsonObject(Value value, std::string where) : value_(std::move(value)), where_(std::move(where)) {
  if (!value_.dict())
    throw ParseError(ErrorText{"the value must be an object", where_, cat("it is ", value_.type_name()), {}});
}

JsonObject JsonObject::read(const std::string& path) {
  return {Value::from_json(read_file(path), path), path};
}

void JsonObject::fail(std::string_view key, std::string rule, std::string why) const {
  throw ParseError(ErrorText{std::move(rule), cat(where_, ", key '", key, "'"), std::move(why), {}});
}

void JsonObject::unsupported(std::string_view key, std::string rule, std::string why) const {
  throw Unsupported(ErrorText{std::move(rule), cat(where_, ", key '", key, "'"), std::move(why), {}});
}

void JsonObject::wrong_type(std::string_view key, const Value& value, std::string_view want) const {
  fail(key, cat("the value must be ", want), cat("it is ", value.json().substr(0, 60)));
}

void JsonObject::missing(std::string_view key) const {
  fail(key, "the file must have this key", "it is not there");
}

const Value* JsonObject::find(std::string_view key) const {
  const Value* found = value_.find(Value(key));
  return found && !found->is_none() ? found : nullptr;
}

std::optional<std::uint64_t> JsonObject::find_integer(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return {};
  const bool number = v->is_integer() || v->is_float();
  const double n = number ? v->number() : -1;
  if (!(n >= 0 && n <= 9007199254740992.0 && n == std::floor(n)))
    wrong_type(key, *v, "an integer from 0 to 2^53");
  return std::uint64_t(n);
}

std::optional<double> JsonObject::find_number(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return {};
  if (!(v->is_integer() || v->is_float()) || !std::isfinite(v->number())) wrong_type(key, *v, "a number");
  return v->number();
}

std::optional<bool> JsonObject::find_bool(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return {};
  if (!v->is<bool>()) wrong_type(key, *v, "true or false");
  return v->truthy();
}

std::optional<std::string> JsonObject::find_string(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return {};
  if (!v->is_string()) wrong_type(key, *v, "a string");
  return v->string();
}

std::optional<JsonObject> JsonObject::find_object(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return {};
  return JsonObject(*v, cat(where_, ", key '", key, "'"));
}

const ValueList* JsonObject::find_list(std::string_view key) const {
  const Value* v = find(key);
  if (v && !v->list()) wrong_type(key, *v, "a list");
  return v ? v->list() : nullptr;
}

std::uint64_t JsonObject::integer(std::string_view key) const {
  if (const auto found = find_integer(key)) return *found;
  missing(key);
}

double JsonObject::number(std::string_view key) const {
  if (const auto found = find_number(key)) return *found;
  missing(key);
}

std::string JsonObject::string(std::string_view key) const {
  if (auto found = find_string(key)) return *std::move(found);
  missing(key);
}

}  // namespace cgp::model
