// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tile orders: which tile of C a block computes, and when. raster.h orders the tiles of one product,
// tile_scheduler.h hands them to the blocks of a grid, stream_k.h splits the tiles of the last wave, and
// grouped_tiles.h finds the tiles of many products.
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {

/// A tile of C: its batch, and its first row and column.
struct TileCoord {
  dsl::Val<dsl::u32> batch, m0, n0;
};

/// Where tile `number` of a product lies, counted in tiles. Groups of `group` rows, down the columns of a
/// group first: blocks that run together share few rows of A and few columns of B, which stay in L2.
class GroupedRaster {
 public:
  GroupedRaster(const dsl::Val<dsl::u32>& number, const dsl::Val<dsl::u32>& rows,
                const dsl::Val<dsl::u32>& cols, int group)
      : GroupedRaster(number, rows, cols * std::uint32_t(group), std::uint32_t(group)) {}
  dsl::Val<dsl::u32> row() const { return top_ + rest_ % height_; }
  dsl::Val<dsl::u32> col() const { return rest_ / height_; }

 private:
  GroupedRaster(const dsl::Val<dsl::u32>& number, const dsl::Val<dsl::u32>& rows,
                const dsl::Val<dsl::u32>& per_group, std::uint32_t group)
      : top_(number / per_group * group), rest_(number % per_group), height_(dsl::min(rows - top_, group)) {}
  dsl::Val<dsl::u32> top_, rest_, height_;
};

/// Both at once.
struct TileIndex {
  dsl::Val<dsl::u32> row, col;
};
inline TileIndex grouped_raster(const dsl::Val<dsl::u32>& number, const dsl::Val<dsl::u32>& rows,
                                const dsl::Val<dsl::u32>& cols, int group) {
  const GroupedRaster raster(number, rows, cols, group);
  return {raster.row(), raster.col()};
}

}  // namespace cgp::kernels
