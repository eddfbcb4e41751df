// SPDX-License-Identifier: Apache-2.0
#pragma once
// int4 weights of GPTQ and AWQ in the order of weight_only_layout.h: the same codes, zeros and scales, nothing rounded. Groups of 32, 64
// or 128 inputs; 4.19 (128) to 4.75 bits a weight.
#include <optional>

#include "cgp/kernels/weight_only/weight_only_layout.h"
#include "cgp/quant/layouts.h"

namespace cgp::kernels {

/// None: there is no product of groups of that size.
std::optional<WeightFormat> int4_format(std::uint64_t group);

/// ArgumentError as quant::check(), and where `packed` is not of packed_bytes(); Unsupported for other groups and for a g_idx that is
/// not col / group (act-order): such weights are dequantised for each product.
void pack_weights(const quant::Gptq& w, std::span<std::byte> packed);
void pack_weights(const quant::Awq& w, std::span<std::byte> packed);

}  // namespace cgp::kernels
