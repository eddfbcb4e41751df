// SPDX-License-Identifier: Apache-2.0
#pragma once
// Packing on the host, tile by tile: what pack_weights() of each kind of weight shares.
#include <functional>

#include "cgp/kernels/weight_only/weight_only_layout.h"

namespace cgp::kernels {

/// 256 columns of a row taken apart: codes as the product has them, and what scales them.
struct WeightBlock {
  std::uint8_t code[256] = {};
  std::uint16_t d[8] = {}, dmin = 0;  ///< binary16, of each group, or d[0] of all
  std::uint8_t scale[16] = {}, min[16] = {};
  std::uint8_t zero[8] = {};  ///< of each group; int4
  float absmax[4] = {};       ///< of each group; NF4
};

/// `columns`: those of a row from column `first` on; what is not there has the value 0. ArgumentError where `packed` is not of
/// packed_bytes().
void pack_tiles(WeightFormat f, std::uint64_t n, std::uint64_t k, std::span<std::byte> packed,
                const std::function<WeightBlock(std::uint64_t row, std::uint64_t first)>& columns);

}  // namespace cgp::kernels
