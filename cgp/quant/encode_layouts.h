// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights from f32 in the layouts of layouts.h whose codes and scales are separate tensors. ArgumentError for sizes that do not
// agree and for values that are NaN or infinite.
#include <cstdint>
#include <span>
#include <vector>

#include "cgp/quant/layouts.h"

namespace cgp::quant {

/// int4 in GPTQ's layout, with zeros as they are (Gptq::zeros_minus_one is false): for each group of a row the scale and zero point,
/// of those that cover the range or clip up to a third of it, with the least squared error.
struct Int4Tensors {
  std::vector<std::uint32_t> qweight, qzeros;
  std::vector<std::uint16_t> scales;
};
Int4Tensors encode_int4(std::span<const float> values, std::uint64_t rows, std::uint64_t cols,
                        std::uint64_t group);

/// e4m3, the largest magnitude of each tile of scale_rows x scale_cols at 448.
struct Fp8Tensors {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};
Fp8Tensors encode_fp8(std::span<const float> values, std::uint64_t rows, std::uint64_t cols,
                      std::uint64_t scale_rows, std::uint64_t scale_cols);

}  // namespace cgp::quant
