// SPDX-License-Identifier: Apache-2.0
#pragma once
// JSON input with errors that point: a Document keeps its text, a Node knows its path (/buffers/2/init/lo),
// and every complaint about a value shows path, line, column and a caret. Reading order: Document, Node.
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/dtype.h"

namespace cgp::spec {

/// `j` as text. What programs print and files are called need not be UTF-8, which JSON is: other bytes become
/// U+FFFD.
template <class Json>
std::string dumped(const Json& j, int indent = -1) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Where brackets of JSON are nested deeper than any file of ours, and than recursion over it survives; npos:
/// nowhere.
std::size_t too_deep(std::string_view text);

class Node;

class Document {
 public:
  /// Throws ParseError at the offending character. `name` is the file's path, for messages.
  Document(std::string text, std::string name);
  ~Document();
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Node root() const;
  const std::string& name() const { return name_; }
  /// Throws ParseError that shows the value at `pointer` (an RFC 6901 path).
  [[noreturn]] void fail(const std::string& pointer, std::string rule, std::string why,
                         std::string hint) const;

 private:
  std::string text_, name_;
  std::unique_ptr<nlohmann::json> json_;
};

/// One value of a Document. Accessors throw ParseError when the value is of another kind.
class Node {
 public:
  Node(const Document& document, const nlohmann::json& value, std::string pointer)
      : document_(&document), value_(&value), pointer_(std::move(pointer)) {}

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_number() const;
  bool is_integer() const;
  bool is_boolean() const;

  bool has(const std::string& key) const;  ///< an object with that key, and its value is not null
  Node at(const std::string& key) const;
  /// The first of several accepted spellings of a key that is present; throws naming the first if none is.
  Node any_of(const std::vector<std::string>& keys) const;
  std::vector<std::string> keys() const;
  std::vector<Node> items() const;  ///< elements of an array
  std::size_t size() const;

  std::string string() const;
  bool boolean() const;
  double number() const;
  std::uint64_t u64() const;  ///< a non-negative integer
  std::int64_t s64() const;   ///< an integer (above 2^63 as its two's complement pattern)
  std::uint32_t u32() const;
  DType dtype() const;

  /// An element value rounded to nearest even to `t`, stored as its bits. A string is the bit pattern in hex.
  std::uint64_t element_bits(DType t) const;

  /// Throws for keys outside `known`, with the closest known one.
  void only(const std::vector<std::string>& known) const;
  [[noreturn]] void fail(std::string rule, std::string why = {}, std::string hint = {}) const;
  const std::string& pointer() const { return pointer_; }
  const nlohmann::json& json() const { return *value_; }

 private:
  [[noreturn]] void expected(std::string_view what) const;
  const Document* document_;
  const nlohmann::json* value_;
  std::string pointer_;
};

}  // namespace cgp::spec
