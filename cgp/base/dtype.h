// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element types of buffers and files, spelled as PTX spells them, and the host types that hold them.
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cgp/base/float16.h"

namespace cgp {

enum class DType : std::uint8_t { u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, f64, e4m3, e5m2 };
inline constexpr int kDTypeCount = 14;

constexpr std::string_view name(DType t) {
  constexpr std::string_view names[] = {"u8",  "s8",  "u16",  "s16", "u32", "s32",  "u64",
                                        "s64", "f16", "bf16", "f32", "f64", "e4m3", "e5m2"};
  return names[int(t)];
}
constexpr int bytes(DType t) {
  constexpr int size[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
  return size[int(t)];
}
constexpr bool is_float(DType t) { return t >= DType::f16; }
constexpr std::optional<DType> parse_dtype(std::string_view s) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name(DType(i)) == s) return DType(i);
  return std::nullopt;
}

/// DType of a host type: dtype_of<float> == DType::f32.
template <class T>
inline constexpr DType dtype_of = [] { static_assert(sizeof(T) == 0, "no DType for this host type"); }();
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::s8;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::s16;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::u32;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::s32;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::u64;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::s64;
template <>
inline constexpr DType dtype_of<half> = DType::f16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<float8_e4m3> = DType::e4m3;
template <>
inline constexpr DType dtype_of<float8_e5m2> = DType::e5m2;

/// Element i of a typed byte array as double, and back (rounded to nearest even; integers truncate modulo
/// 2^n).
double load_as_double(DType t, const void* base, std::size_t i);
void store_from_double(DType t, void* base, std::size_t i, double v);

}  // namespace cgp
