// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rotary position embedding: pairs of elements of each head are rotated by position * frequency. f32, f16 and
// bf16 in any mixture, f32 inside; any strides; in place or not.
//   (a, b) -> (a cos - b sin, a sin + b cos); interleaved: pair i is (2 i, 2 i + 1), else (i, i + rotary / 2)
// The gradient is the inverse rotation (`inverse`). Angles come from tables or are computed in the kernel: a
// frequency is a 64-bit fraction of a revolution per position, so position * frequency mod 1 is integer arithmetic,
// wrong by at most position * 2^-65 revolutions; sine and cosine of what is left are within 1e-6.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

enum class RopeScaling : std::uint8_t { none, linear, ntk, yarn, llama3 };

struct RopeFrequencies {
  double base = 10000;
  std::uint64_t rotary = 0;  ///< elements of a head that are rotated: even
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                             ///< context length over original_positions
  double original_positions = 0;                 ///< yarn, llama3: context length of the training
  double beta_fast = 32, beta_slow = 1;          ///< yarn
  double low_frequency = 1, high_frequency = 4;  ///< llama3
};
/// Radians per position, rotary / 2 of them. Throws ArgumentError naming what is out of range.
std::vector<long double> rope_frequencies(const RopeFrequencies& f);
/// What multiplies sine and cosine: 1, or 0.1 ln(factor) + 1 for yarn.
double rope_magnitude(const RopeFrequencies& f);
/// cos and sin [positions, rotary / 2] in f32, rounded from double. ArgumentError beyond 2^28 elements each.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables rope_tables(const RopeFrequencies& f, std::uint64_t positions);

struct Rope {
  View x, y;                      ///< [tokens, heads, dim]
  View cos, sin;                  ///< f32 [positions, rotary / 2]; both or neither
  View positions;                 ///< s32 or s64 [tokens], optional: else offset + token % sequence
  RopeFrequencies frequencies{};  ///< without tables; `rotary` (0: dim) with tables too
  std::uint64_t tokens = 0, heads = 0, dim = 0;
  std::uint64_t sequence = 0;  ///< 0: tokens
  std::uint64_t offset = 0;    ///< position of the first token of each sequence
  std::uint64_t x_token = 0, x_head = 0, y_token = 0, y_head = 0;  ///< elements apart; 0: dense
  bool interleaved = false, inverse = false;
};
/// A position beyond the tables gives NaN in its token.
void rope(runtime::Stream& s, const Rope& r);

KernelEntry rope_entry();

}  // namespace cgp::kernels
