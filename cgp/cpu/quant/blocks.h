// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantised weights as GGUF files store them (element order included), NF4 as QLoRA defines it, and the 8-bit
// activations that integer products use. Little endian, no padding; d and dmin are binary16.
// Next: quantize.h, gemv.h.
#include <cstddef>
#include <cstdint>

namespace cgp::cpu {

enum class QuantType : std::uint8_t { q4_k, q5_k, q6_k, q8_0, nf4 };

/// 8 sub-blocks of 32. Sub-blocks 2c and 2c+1 are the low and the high nibbles of qs[32c .. 32c+31];
/// value = d * scale * q - dmin * min, scale and min 6 bits each (scales_of in quantize.h).
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
/// low four bits in ql[64h + 32(t%2) + l] (low nibble for t < 2) and two more in bits 2t, 2t+1 of qh[32h +
/// l].
struct BlockQ6K {
  std::uint8_t ql[128], qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
/// value = d * q.
struct BlockQ80 {
  std::uint16_t d;
  std::int8_t qs[32];
};
/// value = absmax * table[code]; the high nibble of a byte comes first.
struct BlockNf4 {
  float absmax;
  std::uint8_t codes[32];
};
/// Activations: value = d * q; bsums[j] is the sum of qs[16j .. 16j+15].
struct BlockQ8K {
  float d;
  std::int8_t qs[256];
  std::int16_t bsums[16];
};
static_assert(sizeof(BlockQ4K) == 144 && offsetof(BlockQ4K, scales) == 4 && offsetof(BlockQ4K, qs) == 16);
static_assert(sizeof(BlockQ5K) == 176 && offsetof(BlockQ5K, qh) == 16 && offsetof(BlockQ5K, qs) == 48);
static_assert(sizeof(BlockQ6K) == 210 && offsetof(BlockQ6K, qh) == 128 && offsetof(BlockQ6K, scales) == 192 &&
              offsetof(BlockQ6K, d) == 208);
static_assert(sizeof(BlockQ80) == 34 && offsetof(BlockQ80, qs) == 2);
static_assert(sizeof(BlockNf4) == 36 && offsetof(BlockNf4, codes) == 4);
static_assert(sizeof(BlockQ8K) == 292 && offsetof(BlockQ8K, qs) == 4 && offsetof(BlockQ8K, bsums) == 260);

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

}  // namespace cgp::cpu
