// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks of quantised weights as GGUF files store them (element order included), and NF4 as QLoRA defines it.
// Little endian, no padding; d, dmin, m and s are binary16 bits unless they are float.
#include <cstddef>
#include <cstdint>

namespace cgp::quant {

/// Byte j holds elements j (low nibble) and j + 16; value = d * (q - 8).
struct BlockQ40 {
  std::uint16_t d;
  std::uint8_t qs[16];
};
/// The same order; value = d * q + m.
struct BlockQ41 {
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
/// As Q4_0, and bit e of qh adds 16 to element e; value = d * (q - 16).
struct BlockQ50 {
  std::uint16_t d;
  std::uint8_t qh[4], qs[16];
};
/// The same; value = d * q + m.
struct BlockQ51 {
  std::uint16_t d, m;
  std::uint8_t qh[4], qs[16];
};
/// value = d * q.
struct BlockQ80 {
  std::uint16_t d;
  std::int8_t qs[32];
};
/// Activations: value = d * q; s = d * (sum of q).
struct BlockQ81 {
  std::uint16_t d, s;
  std::int8_t qs[32];
};
/// 16 sub-blocks of 16, a scale (low nibble) and a min each; value = d * scale * q - dmin * min. Of each half h of
/// 128 elements: element 32t + l is bits 2t, 2t+1 of qs[32h + l].
struct BlockQ2K {
  std::uint8_t scales[16], qs[64];
  std::uint16_t d, dmin;
};
/// The order of Q2_K; bit s of hmask[l] clear subtracts 4 from element l of run s of 32. Scales have 6 bits, minus
/// 32: four low bits in the nibbles of scales[0..7], two more in scales[8..11].
struct BlockQ3K {
  std::uint8_t hmask[32], qs[64], scales[12];
  std::uint16_t d;
};
/// 8 sub-blocks of 32. Sub-blocks 2c and 2c+1 are the low and the high nibbles of qs[32c .. 32c+31];
/// value = d * scale * q - dmin * min, scale and min 6 bits each (scales_of()).
struct BlockQ4K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12], qs[128];
};
/// As Q4_K, and bit s of qh[l] adds 16 to element l of sub-block s.
struct BlockQ5K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12], qh[32], qs[128];
};
/// 16 sub-blocks of 16, value = d * scale * (q - 32). Of each half h of 128 elements: element 32t + l has its
/// low four bits in ql[64h + 32(t%2) + l] (low nibble for t < 2) and two more in bits 2t, 2t+1 of
/// qh[32h + l].
struct BlockQ6K {
  std::uint8_t ql[128], qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
/// Activations: value = d * q; bsums[j] is the sum of qs[16j .. 16j+15].
struct BlockQ8K {
  float d;
  std::int8_t qs[256];
  std::int16_t bsums[16];
};
/// value = absmax * table[code]; the high nibble of a byte comes first.
struct BlockNf4 {
  float absmax;
  std::uint8_t codes[32];
};
static_assert(sizeof(BlockQ40) == 18 && sizeof(BlockQ41) == 20 && sizeof(BlockQ80) == 34 &&
              sizeof(BlockQ81) == 36);
static_assert(sizeof(BlockQ50) == 22 && offsetof(BlockQ50, qs) == 6);
static_assert(sizeof(BlockQ51) == 24 && offsetof(BlockQ51, qh) == 4 && offsetof(BlockQ51, qs) == 8);
static_assert(sizeof(BlockQ2K) == 84 && offsetof(BlockQ2K, d) == 80);
static_assert(sizeof(BlockQ3K) == 110 && offsetof(BlockQ3K, scales) == 96 && offsetof(BlockQ3K, d) == 108);
static_assert(sizeof(BlockQ4K) == 144 && offsetof(BlockQ4K, scales) == 4 && offsetof(BlockQ4K, qs) == 16);
static_assert(sizeof(BlockQ5K) == 176 && offsetof(BlockQ5K, qh) == 16 && offsetof(BlockQ5K, qs) == 48);
static_assert(sizeof(BlockQ6K) == 210 && offsetof(BlockQ6K, qh) == 128 && offsetof(BlockQ6K, scales) == 192 &&
              offsetof(BlockQ6K, d) == 208);
static_assert(sizeof(BlockQ8K) == 292 && offsetof(BlockQ8K, qs) == 4 && offsetof(BlockQ8K, bsums) == 260);
static_assert(sizeof(BlockNf4) == 36 && offsetof(BlockNf4, codes) == 4);

/// The eight 6-bit scales and mins of Q4_K and Q5_K, a byte each, the first in the lowest byte.
struct PackedScales {
  std::uint64_t scales, mins;
};
inline PackedScales scales_of(const std::uint8_t (&s)[12]) {
  std::uint32_t a, b, c;
  __builtin_memcpy(&a, s, 4), __builtin_memcpy(&b, s + 4, 4), __builtin_memcpy(&c, s + 8, 4);
  const std::uint32_t low = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
  return {(a & low) | std::uint64_t((c & four) | (a >> 2 & two)) << 32,
          (b & low) | std::uint64_t((c >> 4 & four) | (b >> 2 & two)) << 32};
}

/// The 16 values of NF4: quantiles of a normal distribution, scaled to [-1, 1].
inline constexpr float kNf4[16] = {-1.0f,
                                   -0.6961928009986877f,
                                   -0.5250730514526367f,
                                   -0.39491748809814453f,
                                   -0.28444138169288635f,
                                   -0.18477343022823334f,
                                   -0.09105003625154495f,
                                   0.0f,
                                   0.07958029955625534f,
                                   0.16093020141124725f,
                                   0.24611230194568634f,
                                   0.33791524171829224f,
                                   0.44070982933044434f,
                                   0.5626170039176941f,
                                   0.7229568362236023f,
                                   1.0f};
/// The 16 values of E2M1 (MXFP4, NVFP4), doubled: their scales count half.
inline constexpr std::int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/// The 16 values of IQ4_NL and IQ4_XS.
inline constexpr std::int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace cgp::quant
