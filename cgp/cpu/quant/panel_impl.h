// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of many vectors: 32 rows of weights are decoded once, as bf16, into a panel that stays in L2. They use no
// function of the standard library (see matmul_impl.h).
#include <cstdint>

namespace cgp::cpu::quant_versions {

constexpr std::int64_t kPanelRows = 32;
constexpr std::int64_t kPanelDepth = 1024;             ///< elements of a row in a panel: 64 KiB
constexpr std::int64_t kPanelStep = 32;                ///< depths are multiples of it: a row of a tile
constexpr std::int64_t kRowStride = kPanelDepth + 32;  ///< before packing; rows differ in their sets of L1

/// Rounded to nearest even; NaN stays NaN. `out` gets `padded` values (a multiple of 16), 0 from `count` on.
void round_to_bf16_avx512(const float* x, std::int64_t count, std::int64_t padded, std::uint16_t* out);
/// 32 rows of `depth` bf16, kRowStride apart, to depth / 2 pairs of elements, each of 32 rows: out[32 p + r] has elements
/// 2p (low half) and 2p + 1 of row r. That is how vdpbf16ps and the tiles take them.
void pack_panel_avx512(const std::uint16_t* rows, std::int64_t depth, std::uint32_t* out);
/// y[j * ldy + r] (+)= row r of the panel . vector j, for n vectors of bf16 `ldx` apart, and the first `rows` rows.
/// Memory for the vectors ends with a multiple of 32 of them.
void panel_product_avx512(const std::uint32_t* panel, std::int64_t depth, std::int64_t rows,
                          const std::uint16_t* x, std::int64_t ldx, std::int64_t n, float* y,
                          std::int64_t ldy, bool add);
void panel_product_amx(const std::uint32_t* panel, std::int64_t depth, std::int64_t rows,
                       const std::uint16_t* x, std::int64_t ldx, std::int64_t n, float* y, std::int64_t ldy,
                       bool add);

}  // namespace cgp::cpu::quant_versions
