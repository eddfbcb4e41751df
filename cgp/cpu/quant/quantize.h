// SPDX-License-Identifier: Apache-2.0
#pragma once
// To and from quantised blocks, one element after the other: the reference that fast versions are held to.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cgp/cpu/quant/blocks.h"

namespace cgp::cpu {

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

/// Throws ArgumentError unless `blocks` holds exactly values.size() elements.
void dequantize(QuantType type, std::span<const std::byte> blocks, std::span<float> values);

/// Nearest codes for scales that cover each sub-block's range. Throws ArgumentError for sizes that do not
/// agree, NaN, infinity, and values whose scale binary16 cannot hold.
void quantize(QuantType type, std::span<const float> values, std::span<std::byte> blocks);

/// Activations for integer products. NaN and infinity throw ArgumentError; so does a size that is no multiple
/// of 256 (32 for q8_0).
void quantize_activations(std::span<const float> values, std::span<BlockQ8K> blocks);
void quantize_activations(std::span<const float> values, std::span<BlockQ80> blocks);

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

}  // namespace cgp::cpu
