// SPDX-License-Identifier: Apache-2.0
#pragma once
// DynWarpProduct: a warp's share of a product by mma.sync, with tiles and shapes that are build-time values
// (multiply() in mma.h has them as types). 16-bit operands, f32 accumulators.
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/mma/fragment.h"

namespace cgp::dsl {

/// tile_offset(layout, row, col): bytes from a tile's begin to an element.
using record::tile_offset;

class DynWarpProduct {
 public:
  /// An operand's tile, how it is stored, and what this lane reads of it: lane_offset(), plus an offset of
  /// the warp.
  struct Side {
    TileLayout tile;
    Major major;
    Val<u32> lane;
  };
  /// Bytes from the tile's begin to what this lane reads for the rows (A) or columns (B) from `from` on.
  static Val<u32> lane_offset(Kernel& k, Operand which, Major major, const TileLayout& tile,
                              const Val<u32>& from) {
    return record::operand_lane_offset(k, which, major, tile, from);
  }
  /// rows x cols of C, a multiple of 16 x 8; all zero.
  DynWarpProduct(Kernel& k, ptx::Mod type, int rows, int cols, const Side& a, const Side& b);
  /// Adds `steps` slices of 16 of K of the tiles at base + offset_a and base + offset_b.
  void add(const Val<u32>& base, int offset_a, int offset_b, int steps, Here at = Here::now());
  /// The accumulator of this thread: blocks of 16 x 8, row by row of blocks.
  const std::vector<Value>& values() const { return values_; }
  /// Row and column of this thread's first element.
  static record::AccOrigin origin(Kernel& k) { return record::warp_origin(k); }

 private:
  Kernel& k_;
  ptx::Mod type_;
  int rows_, cols_;
  Side a_, b_;
  std::vector<Value> values_;
};

}  // namespace cgp::dsl
