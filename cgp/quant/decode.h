// SPDX-License-Identifier: Apache-2.0
#pragma once
// From quantised blocks to f32, element after element: the definition that fast versions are held to. Results equal
// the reference implementation's bit by bit.
#include <cstddef>
#include <span>

#include "cgp/quant/formats.h"

namespace cgp::quant {

/// ArgumentError, and nothing is written, when `blocks` does not hold exactly values.size() elements or a block's
/// scale is NaN or infinite.
void decode(Format f, std::span<const std::byte> blocks, std::span<float> values);

/// ArgumentError naming the first block that has a scale that is NaN or infinite.
void check_scales(Format f, std::span<const std::byte> blocks);

/// `count` blocks without checks: a scale that is no number gives values that are none.
void decode_blocks(Format f, const std::byte* blocks, std::size_t count, float* values);

/// 2^(x - 128): half of an E8M0 scale, for doubled E2M1 values. x < 255.
float e8m0_half(std::uint8_t x);
/// Half of an unsigned E4M3 scale. x < 127.
float ue4m3_half(std::uint8_t x);

}  // namespace cgp::quant
