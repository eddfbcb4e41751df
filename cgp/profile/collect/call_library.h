// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls a function of a shared library that nothing but its name and its arguments is known of, by the
// calling convention of x86-64 Linux: integers and pointers in one sequence, floating-point numbers in
// another.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cgp::profile {

/// "i32:7", "f64:1.5", "f32*:4096" (a buffer of so many elements), "str:text", joined by commas. Types: i32,
/// u32, i64, u64, f32, f64; pointers of these and of u8, zeroed or, for floats, filled with numbers around 1.
class CallArguments {
 public:
  /// Throws ArgumentError with the word that is none, and for more than the convention's registers and
  /// sixteen integers can hold.
  explicit CallArguments(const std::string& text);
  std::size_t count() const { return count_; }
  std::uint64_t buffer_bytes() const;

 private:
  friend class LibraryCall;
  void add(const std::string& type, const std::string& value);
  std::vector<std::uint64_t> integers_, reals_;  ///< as their registers hold them
  std::vector<std::unique_ptr<std::uint64_t[]>> buffers_;
  std::vector<std::uint64_t> sizes_;
  std::size_t count_ = 0;
};

class LibraryCall {
 public:
  /// Throws Unsupported when the library cannot be loaded, ArgumentError when it has no such symbol (with
  /// similar ones, as far as the dynamic table tells).
  LibraryCall(const std::string& library, const std::string& symbol, CallArguments arguments);
  void operator()() const;

 private:
  void* function_ = nullptr;
  CallArguments arguments_;
};

}  // namespace cgp::profile
