// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of quantised matrices with vectors. The weights are read as they are stored; either the
// activations stay floats, or they are made 8-bit integers first (as ggml does: Q8_K for the K formats, Q8_0
// for q8_0), so that the products are integers. README.md has the numbers.
#include <cstdint>
#include <span>

#include "cgp/cpu/dispatch.h"
#include "cgp/cpu/quant/quantize.h"

namespace cgp::cpu {

enum class Activations : std::uint8_t {
  f32,   ///< within a rounding bound of the reference in double
  int8,  ///< the same bits from every version; nf4 has none
};

struct QuantGemvOptions {
  Isa isa = chosen_isa();
  Activations activations = Activations::f32;
  int threads = 1;  ///< at most; 0: all processors. Small products use fewer
};

/// `weights`: m rows of k elements. y[j * m + i] = row i . x[j * k ...] for n vectors x, one after the other;
/// y is written only. NaN or infinity in x makes y NaN or infinite with f32, and is an error with int8.
/// Throws ArgumentError for sizes that do not agree and for a k that is no multiple of the block, Unsupported
/// for int8 with nf4.
void quant_gemv(QuantType type, std::span<const std::byte> weights, std::int64_t m, std::int64_t n,
                std::int64_t k, std::span<const float> x, std::span<float> y,
                const QuantGemvOptions& options = {});

/// Elements of work below which no second thread is used.
inline constexpr std::int64_t kQuantWorkPerThread = 1 << 18;

}  // namespace cgp::cpu
