// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ops_scalar.cpp, ops_avx2.cpp and ops_avx512.cpp each define: one row, or one head. They use no function of the
// standard library, so that the linker keeps none of theirs for the rest of the program.
#include <cstdint>

#include "cgp/cpu/dispatch.h"

namespace cgp::cpu::ops_versions {

/// The heads of one group, and what they have gathered of the tokens so far. Rows of q and out have row()
/// elements, zeros from head_dim on.
struct Group {
  const float* q;  ///< heads rows
  std::int64_t heads, head_dim;
  float scale, softcap;    ///< softcap 0: none
  float *out, *max, *sum;  ///< heads rows; heads; heads. Before the first token: zeros, -infinity, zeros
  std::int64_t row() const { return (head_dim + 15) / 16 * 16; }
};
constexpr std::int64_t kAttendTokens = 32;  ///< at most, in a call
/// `scratch`: kAttendTokens rows. `stride`: elements from one token to the next.
using Attend = void (*)(const Group& g, const void* keys, const void* values, std::int64_t stride,
                        std::int64_t tokens, float* scratch);

struct Ops {
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::int64_t n, float* y);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, std::int64_t n,
                     float* y);
  void (*softmax)(const float* x, float scale, std::int64_t n, float* y);
  void (*activate[3])(const float* x, const float* up, std::int64_t n, float* y);  ///< by Activation
  /// By RopePairs: `half` pairs of a head; two values for each pair, one after the other.
  void (*rope[2])(float* head, const float* cosines, const float* sines, std::int64_t half);
  void (*to_f16)(const float* x, std::int64_t n, std::uint16_t* y);
  void (*to_bf16)(const float* x, std::int64_t n, std::uint16_t* y);
  Attend attend[3];  ///< by CacheType
};
extern const Ops scalar, avx2, avx512;
/// Throws Unsupported when the processor lacks `isa`.
const Ops& version(Isa isa);

}  // namespace cgp::cpu::ops_versions
