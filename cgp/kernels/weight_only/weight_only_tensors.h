// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights whose codes and scales are separate tensors, in the order of weight_only_layout.h: the same codes, zeros and scales, nothing
// rounded. int4 of GPTQ and AWQ, groups of 32, 64 or 128 inputs: 4.19 (128) to 4.75 bits a weight. NF4 of bitsandbytes, blocks of 64: 4.5;
// absmax that is quantised itself is decoded to f32.
#include <optional>
#include <vector>

#include "cgp/kernels/weight_only/weight_only_layout.h"
#include "cgp/quant/layouts.h"

namespace cgp::kernels {

/// None: there is no product of groups of that size.
std::optional<WeightFormat> int4_format(std::uint64_t group);

/// Of inputs whose groups are out of order (act-order): the input whose codes lie in each column of the packed weight, those of a group
/// beside each other in rising order. Empty: they are in order already, or g_idx is empty.
/// Unsupported where a group has not `group` inputs.
std::vector<std::uint32_t> packed_inputs(const quant::Gptq& w);
/// Bytes of the packed weight, and of its packed_inputs(), 32 bits each, which lie behind it.
std::uint64_t packed_bytes(const quant::Gptq& w);

/// ArgumentError as quant::check(), and where `packed` is not of packed_bytes(); Unsupported for other groups.
void pack_weights(const quant::Gptq& w, std::span<std::byte> packed);
void pack_weights(const quant::Awq& w, std::span<std::byte> packed);
/// Unsupported for blocks that are not of 64 or that go over the end of a row.
void pack_weights(const quant::BnbNf4& w, std::span<std::byte> packed);

}  // namespace cgp::kernels
