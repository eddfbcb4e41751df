// SPDX-License-Identifier: Apache-2.0
#pragma once
// The members of a JSON object that lies in a file, by key; null counts as absent. Errors are ParseError and name the file
// and the key.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cgp/base/error.h"
#include "cgp/model/template/value.h"

namespace cgp::model {

class JsonObject {
 public:
  /// `where` names the file and, of an inner object, the key: "config.json", "config.json, key 'rope_scaling'".
  /// Throws ParseError where `value` is no object.
  JsonObject(Value value, std::string where);
  static JsonObject read(const std::string& path);

  const std::string& where() const { return where_; }
  const ValueDict& members() const { return *value_.dict(); }
  const Value* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// Throw where the value is there and has another type; integers are 0 to 2^53.
  std::optional<std::uint64_t> find_integer(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<JsonObject> find_object(std::string_view key) const;
  /// Null where there is none.
  const ValueList* find_list(std::string_view key) const;

  /// Throw where the key is missing, too.
  std::uint64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  std::string string(std::string_view key) const;

  [[noreturn]] void fail(std::string_view key, std::string rule, std::string why) const;
  [[noreturn]] void unsupported(std::string_view key, std::string rule, std::string why) const;

 private:
  [[noreturn]] void wrong_type(std::string_view key, const Value& value, std::string_view want) const;
  [[noreturn]] void missing(std::string_view key) const;
  Value value_;
  std::string where_;
};

}  // namespace cgp::model
