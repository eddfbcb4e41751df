// SPDX-License-Identifier: Apache-2.0
#pragma once
// The formats that have products on processors, and activations for integer products. What the formats are:
// cgp/quant.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cgp/quant/blocks.h"
#include "cgp/quant/formats.h"

namespace cgp::cpu {

using quant::BlockQ80, quant::BlockQ8K;

enum class QuantType : std::uint8_t { q4_k, q5_k, q6_k, q8_0, nf4 };
quant::Format format_of(QuantType type);

struct QuantFacts {
  std::string_view name;      ///< "q4_k"
  std::int64_t elements = 0;  ///< of a block
  std::int64_t bytes = 0;
  double bits_per_weight() const { return 8.0 * double(bytes) / double(elements); }
};
const QuantFacts& facts(QuantType type);
std::vector<QuantType> all_quant_types();

/// Bytes of `elements` values. Throws ArgumentError unless they fill whole blocks.
std::int64_t quantized_bytes(QuantType type, std::int64_t elements);

/// quant::decode() and quant::encode().
void dequantize(QuantType type, std::span<const std::byte> blocks, std::span<float> values);
void quantize(QuantType type, std::span<const float> values, std::span<std::byte> blocks);

/// Activations for integer products. NaN and infinity throw ArgumentError; so does a size that is no multiple
/// of 256 (32 for q8_0).
void quantize_activations(std::span<const float> values, std::span<BlockQ8K> blocks);
void quantize_activations(std::span<const float> values, std::span<BlockQ80> blocks);

}  // namespace cgp::cpu
