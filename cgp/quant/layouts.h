// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights whose codes, scales and zeros are separate tensors, as checkpoints store them, and their decoding to f32.
// Each describes a weight of `rows` outputs and `cols` inputs (y = x W'); decode() writes f32 [rows, cols] and throws
// ArgumentError, before it writes anything, for tensors of the wrong size, groups that do not fit, group indices out
// of range, and scales that are NaN or infinite.
#include <cstdint>
#include <span>
#include <vector>

#include "cgp/base/dtype.h"

namespace cgp::quant {

/// int4 codes of GPTQ. Eight consecutive inputs share a word, the first in the lowest bits.
struct Gptq {
  std::uint64_t rows = 0, cols = 0, group = 128;  ///< group: inputs that share a scale
  std::span<const std::uint32_t> qweight{};       ///< [cols / 8, rows]
  std::span<const std::uint32_t> qzeros{};        ///< [groups, rows / 8], eight consecutive outputs a word
  std::span<const std::uint16_t> scales{};        ///< binary16 [groups, rows]
  std::span<const std::int32_t> g_idx{};  ///< [cols] the group of each input (act-order); empty: col / group
  bool zeros_minus_one = true;            ///< qzeros hold zero - 1, as the first version of the format does
};
/// Sizes, groups, group indices and scales, as decode() checks them.
void check(const Gptq& w);
/// value = scale * (code - zero).
void decode(const Gptq& w, std::span<float> values);

/// int4 codes of AWQ. Eight consecutive outputs share a word, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest
/// bits.
struct Awq {
  std::uint64_t rows = 0, cols = 0, group = 128;
  std::span<const std::uint32_t> qweight{};  ///< [cols, rows / 8]
  std::span<const std::uint32_t> qzeros{};   ///< [cols / group, rows / 8]
  std::span<const std::uint16_t> scales{};   ///< binary16 [cols / group, rows]
};
void check(const Awq& w);
/// value = scale * (code - zero).
void decode(const Awq& w, std::span<float> values);

/// NF4 of bitsandbytes: two codes a byte, the high nibble first, over the row-major weight as one sequence.
struct BnbNf4 {
  std::uint64_t rows = 0, cols = 0, block = 64;  ///< block: elements that share an absmax
  std::span<const std::uint8_t> codes{};         ///< [rows * cols / 2]
  std::span<const float> absmax{};               ///< [blocks]; or, double quantised:
  std::span<const std::uint8_t> absmax_codes{};  ///< [blocks] indices into absmax_table
  std::span<const float> absmax_table{};         ///< [256]
  std::span<const float> absmax_scales{};        ///< one for each absmax_block codes
  std::uint64_t absmax_block = 256;
  float absmax_offset = 0;  ///< added to each
};
void check(const BnbNf4& w);
/// Of each block; checked as by check().
std::vector<float> absmax(const BnbNf4& w);
/// value = absmax * table[code]; absmax = absmax_table[absmax_code] * absmax_scale + absmax_offset.
void decode(const BnbNf4& w, std::span<float> values);

/// 8-bit floats with a scale for tiles of scale_rows x scale_cols weights: 128 x 128 blocks, 1 x cols (a scale a
/// row), rows x cols (one scale). Tiles at the right and lower edges may be cut off.
struct Fp8 {
  std::uint64_t rows = 0, cols = 0;
  DType type = DType::e4m3;  ///< or e5m2
  std::uint64_t scale_rows = 128, scale_cols = 128;
  std::span<const std::uint8_t> codes{};  ///< [rows, cols]
  std::span<const float> scales{};        ///< [ceil(rows / scale_rows), ceil(cols / scale_cols)]
};
void check(const Fp8& w);
/// value = scale * code. A code may be NaN, and its value is.
void decode(const Fp8& w, std::span<float> values);

}  // namespace cgp::quant
