// SPDX-License-Identifier: Apache-2.0
#pragma once
// From f32 to quantised blocks. Q4_0 to Q8_0, MXFP4, TQ1_0 and TQ2_0 give the reference implementation's bytes; Q2_K to
// Q6_K are searched for the least squared error (encode_k.cpp).
#include <span>

#include "cgp/quant/formats.h"

namespace cgp::quant {

/// ArgumentError, and nothing is written, for sizes that do not agree, NaN and infinity, values whose scale binary16
/// cannot hold, and formats that are decoded only (FormatInfo::encodes).
void encode(Format f, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace cgp::quant
