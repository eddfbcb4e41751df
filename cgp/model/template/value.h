// SPDX-License-Identifier: Apache-2.0
#pragma once
// The values of chat templates: JSON's kinds, with Python's ways of comparing and printing them.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cgp::model {

class Value;
using ValueList = std::vector<Value>;
using ValueDict = std::vector<std::pair<Value, Value>>;  ///< in order of insertion; no key twice

/// What a template can call. `named`: arguments by name.
struct ValueFunction {
  using Named = std::vector<std::pair<std::string, Value>>;
  std::string name;
  std::function<Value(std::vector<Value>& arguments, Named& named)> call;
};
/// namespace(…): the only value whose attributes can be set.
struct ValueNamespace;

class Value {
 public:
  struct Undefined {
    std::string name;
  };
  struct None {};

  Value() : held_(None{}) {}
  Value(bool b) : held_(b) {}
  Value(int n) : held_(std::int64_t(n)) {}
  Value(std::int64_t n) : held_(n) {}
  Value(double x) : held_(x) {}
  Value(std::string s) : held_(std::move(s)) {}
  Value(std::string_view s) : held_(std::string(s)) {}
  Value(const char* s) : held_(std::string(s)) {}
  Value(ValueList list);
  Value(ValueDict dict);
  Value(ValueFunction function) : held_(std::make_shared<const ValueFunction>(std::move(function))) {}
  static Value undefined(std::string name) { return Value(Held(Undefined{std::move(name)})); }
  static Value make_namespace(ValueDict attributes);
  /// RFC 8259; numbers without fraction and exponent are integers. Throws ParseError with the byte.
  static Value from_json(std::string_view text, const std::string& name);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_integer() const { return is<std::int64_t>(); }
  bool is_float() const { return is<double>(); }
  bool is_number() const { return is_integer() || is_float() || is<bool>(); }
  const std::string& string() const { return std::get<std::string>(held_); }
  std::int64_t integer() const { return is<bool>() ? std::get<bool>(held_) : std::get<std::int64_t>(held_); }
  double number() const { return is_float() ? std::get<double>(held_) : double(integer()); }
  /// Null where it is none.
  const ValueList* list() const;
  const ValueDict* dict() const;
  ValueDict* namespace_attributes() const;
  const ValueFunction* function() const;
  const std::string& undefined_name() const { return std::get<Undefined>(held_).name; }

  bool truthy() const;
  /// "dict", "str", … as Python calls it.
  std::string_view type_name() const;
  /// Null where the dict has no such key.
  const Value* find(const Value& key) const;
  bool operator==(const Value& other) const;
  /// Numbers with numbers, strings with strings, lists with lists; ArgumentError for others.
  bool less(const Value& other) const;
  /// str() and repr() of Python.
  std::string str() const;
  std::string repr() const;
  /// json.dumps(ensure_ascii=False). indent < 0: one line.
  std::string json(int indent = -1) const;

 private:
  using Held = std::variant<Undefined, None, bool, std::int64_t, double, std::string,
                            std::shared_ptr<const ValueList>, std::shared_ptr<const ValueDict>,
                            std::shared_ptr<ValueNamespace>, std::shared_ptr<const ValueFunction>>;
  explicit Value(Held held) : held_(std::move(held)) {}
  void write_repr(std::string& out, int depth) const;
  void write_json(std::string& out, int indent, int depth) const;
  Held held_;
};

struct ValueNamespace {
  ValueDict attributes;
};

/// Sets a key, or adds it at the end.
void set_key(ValueDict& dict, const Value& key, Value value);

}  // namespace cgp::model
