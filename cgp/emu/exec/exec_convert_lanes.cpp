// SPDX-License-Identifier: Apache-2.0
// The frequent conversions as vector loops: integers to integers, 32-bit integers and f32 and f64 with the
// natural rounding, halves. Everything else is exec_convert.cpp. Compiled twice, see isa_begin.h.
#include <bit>
#include <type_traits>

#include "cgp/emu/core/handlers.h"

#include "cgp/emu/core/isa_begin.h"
namespace {
#include "cgp/emu/core/lanes_impl.h"
using ptx::Mod;
using u32 = std::uint32_t;

template <class To>
struct IntCast {
  template <class From>
  static inline To apply(From x) {
    return To(x);
  }
};

struct ToFloat {
  template <class From>
  static inline float apply(From x) {
    return float(x);
  }
};
struct ToDouble {
  static inline double apply(std::int32_t x) { return double(x); }
  static inline double apply(u32 x) { return double(x); }
  static inline double apply(float x) {
    return double(x);  // quiets a NaN and keeps its payload, as the hardware does
  }
};
struct DoubleToFloat {
  static inline float apply(double x) { return float(x); }  // as above
};
// Truncation that saturates, NaN gives 0.
struct FloatToS32 {
  static inline std::int32_t apply(float x) {
    const float c = x < 2147483648.0f ? x : 0.0f;
    const std::int32_t r = std::int32_t(c > -2147483648.0f ? c : -2147483648.0f);
    return x >= 2147483648.0f ? 0x7fffffff : x != x ? 0 : r;
  }
};
struct HalfToFloat {
  static inline float apply(std::uint16_t v) {
    const u32 h = v, sign = (h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    const float small = float(std::int32_t(m)) * 5.9604644775390625e-8f;
    const u32 normal = (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    const u32 r = sign | (e == 0 ? std::bit_cast<u32>(small) : normal);
    return std::bit_cast<float>((h & 0x7fff) > 0x7c00 ? 0x7fffffffu : r);
  }
};
struct Bf16ToFloat {
  static inline float apply(std::uint16_t v) { return std::bit_cast<float>(u32(v) << 16); }
};
static inline u32 to_half(float f) {
  const u32 bits = std::bit_cast<u32>(f), sign = bits >> 16 & 0x8000u, u = bits & 0x7fffffffu;
  const u32 small = std::bit_cast<u32>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
  const u32 normal = (u + 0xfff + (u >> 13 & 1) - (112u << 23)) >> 13;
  u32 h = u < 0x38800000u ? small : normal;
  h = (u >= 0x477ff000u ? 0x7c00u : h) | sign;
  return u > 0x7f800000u ? 0x7fffu : h;
}
static inline u32 to_bf16(float f) {
  const u32 u = std::bit_cast<u32>(f);
  return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
struct FloatToHalf {
  static inline std::uint16_t apply(float f) { return std::uint16_t(to_half(f)); }
};
struct FloatToBf16 {
  static inline std::uint16_t apply(float f) { return std::uint16_t(to_bf16(f)); }
};
struct PackHalf {
  static inline u32 apply(float hi, float lo) { return to_half(hi) << 16 | to_half(lo); }
};
struct PackBf16 {
  static inline u32 apply(float hi, float lo) { return to_bf16(hi) << 16 | to_bf16(lo); }
};

template <class To>
static Handler to_int(Mod from) {
  switch (from) {
    case Mod::u8:
      return unary<IntCast<To>, To, std::uint8_t>;
    case Mod::s8:
      return unary<IntCast<To>, To, std::int8_t>;
    case Mod::u16:
      return unary<IntCast<To>, To, std::uint16_t>;
    case Mod::s16:
      return unary<IntCast<To>, To, std::int16_t>;
    case Mod::u32:
      return unary<IntCast<To>, To, std::uint32_t>;
    case Mod::s32:
      return unary<IntCast<To>, To, std::int32_t>;
    case Mod::u64:
      return unary<IntCast<To>, To, std::uint64_t>;
    case Mod::s64:
      return unary<IntCast<To>, To, std::int64_t>;
    default:
      return nullptr;
  }
}
}  // namespace

Handler convert_handler(ptx::Mod to, ptx::Mod from) {
  switch (to) {
    case Mod::u8:
      return to_int<std::uint8_t>(from);
    case Mod::s8:
      return to_int<std::int8_t>(from);
    case Mod::u16:
      return to_int<std::uint16_t>(from);
    case Mod::s16:
      return to_int<std::int16_t>(from);
    case Mod::u32:
      return to_int<std::uint32_t>(from);
    case Mod::s32:
      if (from == Mod::f32) return unary<FloatToS32, std::int32_t, float>;
      return to_int<std::int32_t>(from);
    case Mod::u64:
      return to_int<std::uint64_t>(from);
    case Mod::s64:
      return to_int<std::int64_t>(from);
    case Mod::f32:
      switch (from) {
        case Mod::s32:
          return unary<ToFloat, float, std::int32_t>;
        case Mod::u32:
          return unary<ToFloat, float, std::uint32_t>;
        case Mod::s16:
          return unary<ToFloat, float, std::int16_t>;
        case Mod::u16:
          return unary<ToFloat, float, std::uint16_t>;
        case Mod::s8:
          return unary<ToFloat, float, std::int8_t>;
        case Mod::u8:
          return unary<ToFloat, float, std::uint8_t>;
        case Mod::f64:
          return unary<DoubleToFloat, float, double>;
        case Mod::f16:
          return unary<HalfToFloat, float, std::uint16_t>;
        case Mod::bf16:
          return unary<Bf16ToFloat, float, std::uint16_t>;
        default:
          return nullptr;
      }
    case Mod::f64:
      switch (from) {
        case Mod::s32:
          return unary<ToDouble, double, std::int32_t>;
        case Mod::u32:
          return unary<ToDouble, double, std::uint32_t>;
        case Mod::f32:
          return unary<ToDouble, double, float>;
        default:
          return nullptr;
      }
    case Mod::f16:
      return from == Mod::f32 ? Handler(unary<FloatToHalf, std::uint16_t, float>) : nullptr;
    case Mod::bf16:
      return from == Mod::f32 ? Handler(unary<FloatToBf16, std::uint16_t, float>) : nullptr;
    case Mod::f16x2:
      return from == Mod::f32 ? Handler(binary<PackHalf, u32, float, float>) : nullptr;
    case Mod::bf16x2:
      return from == Mod::f32 ? Handler(binary<PackBf16, u32, float, float>) : nullptr;
    default:
      return nullptr;
  }
}
#include "cgp/emu/core/isa_end.h"
