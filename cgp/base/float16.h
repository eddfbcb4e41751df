// SPDX-License-Identifier: Apache-2.0
#pragma once
// Host storage types for the small floating-point formats and their conversions, to the bit.
// Rounding is to nearest even unless a name says otherwise. Formats: IEEE 754 binary16, bfloat16,
// OCP 8-bit floating point (e4m3 has no infinity; 0x7f/0xff is NaN). Oracles and the emulator share these.
#include <bit>
#include <cmath>
#include <cstdint>

namespace cgp {

/// Rounds a double to a binary format with `ebits` exponent and `mbits` mantissa bits, to nearest even, once
/// (never through float, which would round twice). Overflow gives infinity; NaN gives the canonical NaN.
constexpr std::uint32_t encode_float(double v, int ebits, int mbits) {
  const std::uint64_t u = std::bit_cast<std::uint64_t>(v);
  const std::uint32_t sign = std::uint32_t(u >> 63) << (ebits + mbits);
  const int bias = (1 << (ebits - 1)) - 1;
  const std::uint32_t inf = std::uint32_t((1 << ebits) - 1) << mbits;
  const std::uint64_t magnitude = u & 0x7fffffffffffffffull;
  if (magnitude > 0x7ff0000000000000ull) return inf | ((1u << mbits) - 1);  // PTX's canonical NaN: all ones
  if (magnitude == 0x7ff0000000000000ull) return sign | inf;
  if (magnitude == 0) return sign;
  int e = int(magnitude >> 52) - 1023;
  std::uint64_t m = (magnitude & 0xfffffffffffffull) | (e == -1023 ? 0 : 1ull << 52);
  if (e == -1023) e = -1022;
  int shift = 52 - mbits;
  if (e < 1 - bias) shift += (1 - bias) - e;  // subnormal in the target
  if (shift > 54) return sign;                // below half of the smallest subnormal
  std::uint64_t q = m >> shift;
  const std::uint64_t rest = m & ((1ull << shift) - 1), half_way = 1ull << (shift - 1);
  if (rest > half_way || (rest == half_way && (q & 1))) ++q;
  // Adding the exponent lets a carry out of the mantissa bump it, also from subnormal to normal.
  std::uint64_t r = e < 1 - bias ? q : (std::uint64_t(e + bias - 1) << mbits) + q;
  if (r >= inf) return sign | inf;
  return sign | std::uint32_t(r);
}

/// The value of a binary format's bits, exactly. `ieee` formats have infinities in the top exponent.
constexpr double decode_float(std::uint32_t bits, int ebits, int mbits, bool ieee = true) {
  const int bias = (1 << (ebits - 1)) - 1;
  const bool negative = bits >> (ebits + mbits) & 1;
  const int e = int(bits >> mbits & ((1u << ebits) - 1));
  const std::uint32_t m = bits & ((1u << mbits) - 1);
  double v = 0;
  if (ieee && e == (1 << ebits) - 1) {
    v = m ? std::bit_cast<double>(0x7fffffff'ffffffffull) : std::bit_cast<double>(0x7ff0000000000000ull);
    return negative && !m ? -v : v;
  }
  // m * 2^(e - bias - mbits) built from bits so that it stays constexpr.
  auto power = [](int n) { return std::bit_cast<double>(std::uint64_t(n + 1023) << 52); };
  if (e == 0)
    v = double(m) * power(1 - bias - mbits);
  else
    v = double(m | 1u << mbits) * power(e - bias - mbits);
  return negative ? -v : v;
}

struct half {
  std::uint16_t bits = 0;
  half() = default;
  explicit half(double v) : bits(std::uint16_t(encode_float(v, 5, 10))) {}
  explicit operator float() const { return float(decode_float(bits, 5, 10)); }
  explicit operator double() const { return decode_float(bits, 5, 10); }
  static half from_bits(std::uint16_t b) {
    half h;
    h.bits = b;
    return h;
  }
  friend bool operator==(half a, half b) {
    return a.bits == b.bits;
  }  // bit equality, for containers and tests
};

struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(double v) : bits(std::uint16_t(encode_float(v, 8, 7))) {}
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
  explicit operator double() const { return double(float(*this)); }
  static bfloat16 from_bits(std::uint16_t b) {
    bfloat16 h;
    h.bits = b;
    return h;
  }
  friend bool operator==(bfloat16 a, bfloat16 b) { return a.bits == b.bits; }
};

/// OCP e4m3: 448 is the largest value, no infinity. Construction saturates (as cvt...satfinite does).
struct float8_e4m3 {
  std::uint8_t bits = 0;
  float8_e4m3() = default;
  explicit float8_e4m3(double v) {
    const double magnitude = std::fabs(v);
    // The binade 256..448 uses the exponent that IEEE formats keep for infinity: steps of 32 by hand.
    if (v != v)
      bits = 0x7f;
    else if (magnitude < 256)
      bits = std::uint8_t(encode_float(magnitude, 4, 3));
    else
      bits = std::uint8_t(0x78 + int(std::fmin(std::nearbyint((magnitude - 256) / 32), 6)));
    if (std::signbit(v) && v == v) bits |= 0x80;
  }
  explicit operator double() const {
    if ((bits & 0x7f) == 0x7f) return std::bit_cast<double>(0x7fffffff'ffffffffull);
    return decode_float(bits, 4, 3, /*ieee=*/false);
  }
  explicit operator float() const { return float(double(*this)); }
  static float8_e4m3 from_bits(std::uint8_t b) {
    float8_e4m3 h;
    h.bits = b;
    return h;
  }
  friend bool operator==(float8_e4m3 a, float8_e4m3 b) { return a.bits == b.bits; }
};

/// OCP e5m2: binary16's top byte. Construction saturates at 57344 (as cvt...satfinite does); infinity too.
struct float8_e5m2 {
  std::uint8_t bits = 0;
  float8_e5m2() = default;
  explicit float8_e5m2(double v) : bits(std::uint8_t(encode_float(v, 5, 2))) {
    if (v == v && (bits & 0x7f) == 0x7c) bits = std::uint8_t((bits & 0x80) | 0x7b);
  }
  explicit operator double() const { return decode_float(bits, 5, 2); }
  explicit operator float() const { return float(decode_float(bits, 5, 2)); }
  static float8_e5m2 from_bits(std::uint8_t b) {
    float8_e5m2 h;
    h.bits = b;
    return h;
  }
  friend bool operator==(float8_e5m2 a, float8_e5m2 b) { return a.bits == b.bits; }
};

}  // namespace cgp
