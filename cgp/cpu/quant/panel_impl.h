// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of many vectors: rows of weights are decoded once, as bf16, into panels of 32 that stay in L2, as do the sums. Vectors lie
// in groups of 16, as the tiles of AMX take them: [depth / 32][16 vectors][32 elements], 1 KiB a tile, so that a tile is 16
// neighbouring lines; 32 vectors of a panel's depth stay in L1. They use no function of the standard library (see matmul_impl.h).
#include <cstdint>

#include "cgp/cpu/quant/matmul_impl.h"

namespace cgp::cpu::quant_versions {

constexpr std::int64_t kPanelRows = 32;
constexpr std::int64_t kPanelDepth =
    512;                                 ///< elements of a row in a panel: 32 KiB; a multiple of every block
constexpr std::int64_t kPanelStep = 32;  ///< depths are multiples of it: a row of a tile
constexpr std::int64_t kRowStride = kPanelDepth + 32;  ///< before packing; rows differ in their sets of L1

constexpr std::int64_t kMostPanels = 8;  ///< that are decoded before vectors meet them
constexpr std::int64_t kGroup = 16;      ///< vectors
/// Of the sums: floats from one vector to the next. Not a power of two, so that a tile's lines lie in different sets of the caches.
constexpr std::int64_t kSumStride = kMostPanels * kPanelRows + 16;

/// Rounded to nearest even; NaN stays NaN, subnormal numbers become 0, as the products take them. `out` gets `padded` values (a
/// multiple of 32), 0 from `count` on; each 32 of them begin `step` after the last 32. `rest`, if given, gets what rounding took
/// away, rounded in turn.
void round_to_bf16_avx512(const float* x, std::int64_t count, std::int64_t padded, std::uint16_t* out,
                          std::uint16_t* rest, std::int64_t step);
/// k weights, a multiple of 32, as round_to_bf16_avx512() gives them for what Decode does; `rest` may be null.
using DecodeBf16 = void (*)(Bytes row, std::int64_t k, std::uint16_t* out, std::uint16_t* rest);
struct DecodeBf16Table {
  DecodeBf16 by[kFormats];  ///< null: Decode and round_to_bf16_avx512()
};
extern const DecodeBf16Table decode_bf16_avx512;
/// 32 rows of `depth` bf16, kRowStride apart, to depth / 2 pairs of elements, each of 32 rows: out[32 p + r] has elements
/// 2p (low half) and 2p + 1 of row r. That is how vdpbf16ps and the tiles take them.
void pack_panel_avx512(const std::uint16_t* rows, std::int64_t depth, std::uint32_t* out);
/// sums[j * kSumStride + r] (+)= row r of the panels, which lie one after the other, . vector j. n vectors, whose groups are `group`
/// elements apart; there is memory for a multiple of 32 of them and of their sums.
using PanelProduct = void (*)(const std::uint32_t* panels, std::int64_t depth, std::int64_t count,
                              const std::uint16_t* x, std::int64_t group, std::int64_t n, float* sums,
                              bool add);
void panel_product_avx512(const std::uint32_t* panels, std::int64_t depth, std::int64_t count,
                          const std::uint16_t* x, std::int64_t group, std::int64_t n, float* sums, bool add);
void panel_product_amx(const std::uint32_t* panels, std::int64_t depth, std::int64_t count,
                       const std::uint16_t* x, std::int64_t group, std::int64_t n, float* sums, bool add);

}  // namespace cgp::cpu::quant_versions
