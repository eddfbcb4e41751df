// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a transformer needs besides its products, in f32 and row by row. Sums run in f32 in as many parts as the instruction
// set has lanes; exponentials are within 2 units in the last place. All take and give spans of the exact size and throw
// ArgumentError otherwise, before anything is written; Unsupported for an instruction set that is not there. y may be x.
// Next: attention.h.
#include <cstdint>
#include <span>
#include <vector>

#include "cgp/cpu/dispatch.h"

namespace cgp::cpu {

struct OpOptions {
  Isa isa = chosen_isa();
  int threads = 1;  ///< at most; 0: all processors. Small ones use fewer
};

/// y = x / sqrt(mean(x^2) + epsilon) * weight, for each row of n = weight.size(). (Zhang, Sennrich: Root Mean Square Layer
/// Normalization, 2019.)
void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, std::span<float> y,
              const OpOptions& options = {});
/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, for each row of n = weight.size(); `bias` may be empty.
void layer_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
                float epsilon, std::span<float> y, const OpOptions& options = {});
/// y = exp(scale * x - max) / sum, for each row of n. A row of -infinity alone, or with NaN, gives NaN.
void softmax(std::span<const float> x, std::int64_t n, float scale, std::span<float> y,
             const OpOptions& options = {});

enum class Activation : std::uint8_t {
  silu,       ///< x / (1 + exp(-x))
  gelu,       ///< x * (1 + erf(x / sqrt 2)) / 2, with an error of at most 3e-7 |x|
  gelu_tanh,  ///< x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
};
/// y = activation(x), or activation(x) * up unless `up` is empty.
void activate(Activation activation, std::span<const float> x, std::span<const float> up, std::span<float> y,
              const OpOptions& options = {});

enum class RopePairs : std::uint8_t {
  halves,      ///< elements i and i + r / 2, as GPT-NeoX and Hugging Face's Llama
  neighbours,  ///< elements 2i and 2i + 1, as the paper (RoFormer, Su et al., 2021) and GGUF files of Llama
};
/// base^(-2i / dims) for i < dims / 2. ArgumentError unless dims is even and not negative, and base positive.
std::vector<float> rope_frequencies(std::int64_t dims, float base);
/// Rotates, in place, the first 2 * frequencies.size() elements of every head by position * frequency. x holds
/// positions.size() tokens of `heads` heads of head_dim.
void rope(RopePairs pairs, std::span<float> x, std::int64_t heads, std::int64_t head_dim,
          std::span<const std::int32_t> positions, std::span<const float> frequencies,
          const OpOptions& options = {});

/// What rotate() multiplies with, for each position one run of 2 * frequencies.size() floats: made once for all heads and layers of
/// a step. Cosine and sine are multiplied by `magnitude` (YaRN, LongRoPE).
void rope_angles(RopePairs pairs, std::span<const std::int32_t> positions, std::span<const float> frequencies,
                 float magnitude, std::span<float> cosines, std::span<float> sines);
/// rope() by the rope_angles() of the tokens' positions; `pairs` must be the same.
void rotate(RopePairs pairs, std::span<float> x, std::int64_t heads, std::int64_t head_dim,
            std::span<const float> cosines, std::span<const float> sines, const OpOptions& options = {});

/// To the 16-bit floats of a cache, rounded to nearest even.
void to_f16(std::span<const float> x, std::span<std::uint16_t> y, const OpOptions& options = {});
void to_bf16(std::span<const float> x, std::span<std::uint16_t> y, const OpOptions& options = {});

/// Elements for each thread, at least.
inline constexpr std::int64_t kOpWorkPerThread = 1 << 15;

}  // namespace cgp::cpu
