// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tiles of sm90 that ship.
#include <span>

#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

struct Sm90Tile {
  int d_qk, d_v, columns, warpgroups;
  int modified_columns;  ///< where scores are more than a product: fewer registers are left
};
inline constexpr Sm90Tile kSm90Tiles[] = {
    {64, 64, 128, 3, 96}, {128, 128, 176, 2, 128}, {192, 128, 112, 2, 112}, {256, 256, 80, 2, 64}};
inline constexpr Sm90Tile kFp8Tiles[] = {
    {64, 64, 128, 3, 128}, {128, 128, 192, 2, 96}, {256, 256, 96, 2, 96}};
inline constexpr Sm90Tile kPromotedTiles[] = {{64, 64, 192, 2, 128}, {128, 128, 96, 2, 96}};
inline const Sm90Tile& sm90_tile(const AttentionProblem& p) {
  const auto in = [&](std::span<const Sm90Tile> tiles) -> const Sm90Tile& {
    for (const auto& t : tiles)
      if (p.d_qk <= std::uint64_t(t.d_qk) && p.d_v <= std::uint64_t(t.d_v)) return t;
    return tiles.back();
  };
  return p.type != DType::e4m3 ? in(kSm90Tiles) : p.promoted ? in(kPromotedTiles) : in(kFp8Tiles);
}

}  // namespace cgp::kernels
