// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of quantised weights with activations: Y = X W^T for weights as GGUF files store them (cgp/quant/blocks.h).
// README.md has the numbers; next: ../ops.
#include <cstddef>
#include <cstdint>
#include <span>

#include "cgp/cpu/dispatch.h"
#include "cgp/quant/formats.h"

namespace cgp::cpu {

/// What may be done to activations where it is faster.
enum class Activations : std::uint8_t {
  f32,  ///< nothing; within the roundings of a sum of k terms
  int16,  ///< rounded to 16 bits (packed weights), or sums of two bf16 from kPanelVectors vectors on; else as f32
  int8,  ///< rounded to 8 bits, or to bf16 from kPanelVectors vectors on
};

struct QuantOptions {
  Isa isa = chosen_isa();
  Activations activations = Activations::f32;
  int threads = 1;  ///< at most; 0: all processors. Small products use fewer
};

/// y[j * m + i] = row i of `weights` . x[j * k ...], for m rows of k elements and n vectors; y is written only. Any
/// format of cgp/quant; k is a multiple of its block. Neither pointer needs an alignment beyond its type's.
///
/// Errors of an element of y, with |w| . |x| the product of magnitudes:
/// * Activations::f32: (k + 8) 2^-24 |w| . |x|, the roundings of a sum.
/// * Activations::int8, formats with integer codes (has_int8()): besides, each run of 32 activations has a step of its
///   largest magnitude / 127, and each activation is off by at most half of it.
/// * Activations::int8 from kPanelVectors vectors on, with Isa::avx512_bf16 or Isa::amx, any format: besides, weights and
///   activations are rounded to bf16, in all at most 2^-6.99 |w| . |x|.
///
/// * Activations::int16 from kPanelVectors vectors on, with Isa::avx512_bf16 or Isa::amx, any format: besides, weights and activations are
///   sums of two bf16, in all at most 2^-14.4 |w| . |x|; the sum has 3 k terms.
///
/// The number of threads changes no bit; neither does the number of vectors below kPanelVectors. NaN or infinity in x
/// makes y NaN or infinite, or is an error where x is rounded to 8 bits. Weights are not checked: a scale that is no
/// number gives a row that is none (quant::decode() checks).
///
/// Throws ArgumentError, before y is written, for sizes that do not agree, for a k that is no multiple of the block, and
/// for activations that are no numbers; Unsupported for an instruction set that is not there.
void quant_matmul(quant::Format format, std::span<const std::byte> weights, std::int64_t m, std::int64_t n,
                  std::int64_t k, std::span<const float> x, std::span<float> y,
                  const QuantOptions& options = {});

/// Weights that are integers times a scale for 16 or 32 of them.
bool has_int8(quant::Format format);

/// out[j * k ...] = row ids[j] of `table`, which has `rows` rows of k elements, as f32: the values of quant::decode(), bit
/// by bit. Throws ArgumentError for sizes that do not agree and for ids outside [0, rows).
void quant_rows(quant::Format format, std::span<const std::byte> table, std::int64_t rows, std::int64_t k,
                std::span<const std::int32_t> ids, std::span<float> out, Isa isa = chosen_isa());

/// Elements of work below which no second thread is used.
inline constexpr std::int64_t kQuantWorkPerThread = 1 << 18;
/// From so many vectors on weights are decoded once, into panels, for a product of matrices.
inline constexpr std::int64_t kPanelVectors = 32;

}  // namespace cgp::cpu
