// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks of the K formats with the least squared error that a search finds.
#include "cgp/quant/blocks.h"

namespace cgp::quant {

/// 256 finite values. ArgumentError when binary16 cannot hold a scale.
void encode_k(const float* x, BlockQ2K& b);
void encode_k(const float* x, BlockQ3K& b);
void encode_k(const float* x, BlockQ4K& b);
void encode_k(const float* x, BlockQ5K& b);
void encode_k(const float* x, BlockQ6K& b);

/// v as binary16 bits; ArgumentError when it does not fit.
std::uint16_t narrow_scale(float v);

}  // namespace cgp::quant
