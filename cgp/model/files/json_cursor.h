// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads JSON (RFC 8259) front to back without building a tree: the caller says what it expects next. Strict: no
// comments, no trailing commas, valid UTF-8 escapes. Errors are ParseError with the file and the byte.
#include <cstdint>
#include <string>
#include <string_view>

namespace cgp::model {

class JsonCursor {
 public:
  /// `text` must outlive the cursor; `base` is where it begins in the file.
  JsonCursor(std::string_view text, std::string file, std::uint64_t base = 0)
      : text_(text), file_(std::move(file)), base_(base) {}

  /// Calls each(key) for every member; it must read the value. The caller refuses keys that come twice.
  template <class F>
  void object(F&& each) {
    open('{');
    if (!close('}')) do {
        std::string key = string();
        expect(':');
        each(key);
      } while (more('}'));
    --depth_;
  }
  /// The same without a copy of the keys: views of the text, or of `buffer` where they have escapes.
  template <class F>
  void object(std::string& buffer, F&& each) {
    open('{');
    if (!close('}')) do {
        const std::string_view key = string(buffer);
        expect(':');
        each(key);
      } while (more('}'));
    --depth_;
  }
  /// Calls each() for every element; it must read the element.
  template <class F>
  void array(F&& each) {
    open('[');
    if (!close(']')) do
        each();
      while (more(']'));
    --depth_;
  }
  std::string string();
  /// The same without a copy where the text has no escape; otherwise a view of `buffer`.
  std::string_view string(std::string& buffer);
  /// A number without sign, fraction or exponent, below 2^64.
  std::uint64_t integer();
  /// Reads a value of any kind and forgets it.
  void skip();
  /// The text of a value of any kind.
  std::string_view raw();
  /// Whether the next value is an array.
  bool at_array() { return peek() == '['; }
  /// Nothing but white space may follow.
  void end();

  /// What errors name beside the byte: "tensor 'x'".
  void set_subject(std::string subject) { subject_ = std::move(subject); }
  [[noreturn]] void fail(std::string rule, std::string why = {}) const;

 private:
  char peek();
  void expect(char c);
  void open(char c);
  bool close(char c);
  bool more(char closing);
  unsigned hex4();
  /// Of a string behind its opening quote: the bytes before the next quote or backslash, which is passed.
  std::string_view plain();
  void escaped(std::string& out);

  std::string_view text_;
  std::string file_, subject_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

/// `s` between quotes, escaped as JSON demands.
std::string json_string(std::string_view s);
/// The same without the quotes.
std::string json_escaped(std::string_view s);

}  // namespace cgp::model
