// SPDX-License-Identifier: Apache-2.0
#pragma once
// The metadata values of a GGUF file. Strings and arrays are views into the file's bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace cgp::model {

/// Numbers as in the file.
enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

/// "u8", "string", "array", …
std::string_view name_of(GgufType type);
/// Bytes of a scalar; 0 for strings and arrays.
std::size_t size_of(GgufType type);
/// The GgufType of a C++ scalar or string_view.
template <class T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::is_same_v<T, std::string_view>)
    return GgufType::string;
  else if constexpr (std::is_same_v<T, bool>)
    return GgufType::boolean;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? GgufType::f32 : GgufType::f64;
  else if constexpr (sizeof(T) == 1)
    return std::is_signed_v<T> ? GgufType::i8 : GgufType::u8;
  else if constexpr (sizeof(T) == 2)
    return std::is_signed_v<T> ? GgufType::i16 : GgufType::u16;
  else if constexpr (sizeof(T) == 4)
    return std::is_signed_v<T> ? GgufType::i32 : GgufType::u32;
  else
    return std::is_signed_v<T> ? GgufType::i64 : GgufType::u64;
}

struct GgufArray {
  GgufType element = GgufType::u8;
  std::uint64_t count = 0;
  std::span<const std::byte> data;        ///< scalars: count of them, little endian, at any address
  std::vector<std::string_view> strings;  ///< for element == string
  std::vector<GgufArray> arrays;          ///< for element == array

  /// The scalar at `i`; T must be the type of the elements.
  template <class T>
  T at(std::size_t i) const {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    return value;
  }
};

/// Unsigned types are held as uint64, signed ones as int64, floats as double.
struct GgufValue {
  GgufType type = GgufType::u8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> held;
};

}  // namespace cgp::model
