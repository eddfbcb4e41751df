// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rounding an exact value to a binary format in any direction, once.
#include <bit>
#include <cmath>
#include <cstdint>

namespace cgp::emu {

/// rna: to nearest, halves away from zero.
enum class Round : std::uint8_t { rn, rz, rm, rp, rna };

/// Whether a positive remainder `rest` of `unit` rounds the magnitude up.
constexpr bool rounds_up(Round mode, bool negative, bool odd, std::uint64_t rest, std::uint64_t half_unit) {
  switch (mode) {
    case Round::rn:
      return rest > half_unit || (rest == half_unit && odd);
    case Round::rna:
      return rest >= half_unit;
    case Round::rm:
      return negative && rest != 0;
    case Round::rp:
      return !negative && rest != 0;
    case Round::rz:
      break;
  }
  return false;
}

/// (-1)^negative * m * 2^e as the bits of a format with `ebits` exponent and `mbits` mantissa bits that has
/// infinities. Overflow gives infinity or, by direction, the largest finite value.
constexpr std::uint64_t encode_exact(bool negative, std::uint64_t m, int e, int ebits, int mbits,
                                     Round mode) {
  const std::uint64_t sign = std::uint64_t(negative) << (ebits + mbits);
  if (m == 0) return sign;
  const int bias = (1 << (ebits - 1)) - 1, up = std::countl_zero(m);
  m <<= up;
  e -= up;
  int exponent = e + 63;  // of the leading bit
  int drop = 63 - mbits;
  if (exponent < 1 - bias) drop += (1 - bias) - exponent;
  std::uint64_t q = 0, rest = 0, half_unit = 0;
  if (drop >= 65) {
    rest = 1;
    half_unit = 2;
  } else if (drop == 64) {
    rest = m;
    half_unit = 1ull << 63;
  } else {
    q = m >> drop;
    rest = m & ((1ull << drop) - 1);
    half_unit = 1ull << (drop - 1);
  }
  if (rounds_up(mode, negative, q & 1, rest, half_unit)) ++q;
  const std::uint64_t inf = std::uint64_t((1 << ebits) - 1) << mbits;
  const std::uint64_t r = exponent < 1 - bias ? q : (std::uint64_t(exponent + bias - 1) << mbits) + q;
  if (r < inf) return sign | r;
  const bool to_inf = mode == Round::rn || mode == Round::rna || (mode == Round::rm && negative) ||
                      (mode == Round::rp && !negative);
  return sign | (to_inf ? inf : inf - 1);
}

/// The same for a finite double.
inline std::uint64_t encode_double(double v, int ebits, int mbits, Round mode) {
  const auto u = std::bit_cast<std::uint64_t>(v);
  const int e = int(u >> 52 & 0x7ff);
  const std::uint64_t m = (u & 0xfffffffffffffull) | (e ? 1ull << 52 : 0);
  return encode_exact(u >> 63, m, (e ? e : 1) - 1075, ebits, mbits, mode);
}

}  // namespace cgp::emu
