// SPDX-License-Identifier: Apache-2.0
#pragma once
// DynTile: a tile whose shape is a build-time value instead of a type. Where Tile<bf16, 128, 64> fixes the
// shape while C++ compiles, a DynTile fixes it while the kernel is built: one function then serves every
// tile size. Byte counts, TMA boxes, swizzle and descriptors follow from it in the same way.
//   DynTile::operand(ptx::Mod::bf16, 2, Major::k, 200)          200 rows of A or B, 128 bytes of K
//   DynTile::matrix(ptx::Mod::bf16, 2, 64, 72, Swizzle::none)   64 x 72 elements
// DynSmemTile: such a tile at a shared address.
#include "cgp/dsl/memory/tile.h"

namespace cgp::dsl {

struct DynTile {
  ptx::Mod type;           ///< of the elements
  TileLayout layout;       ///< as stored
  Major major = Major::k;  ///< of an operand: whether its rows or its K are contiguous
  int extent = 0;          ///< of an operand: rows of A, columns of B

  /// `extent` rows of an operand (a multiple of 8) by 128 bytes of K, with the 128-byte swizzle that wgmma
  /// reads. K-major: [extent][K]. MN-major: [K][extent], in panels of 128 bytes, the last partly unused.
  static DynTile operand(ptx::Mod type, int element_bytes, Major major, int extent) {
    const int depth = 128 / element_bytes, panel = depth;
    if (major == Major::k)
      return {type, {extent, depth, element_bytes, Swizzle::b128, extent}, major, extent};
    const int stored = (extent + panel - 1) / panel * panel;
    return {type, {depth, stored, element_bytes, Swizzle::b128, depth}, major, extent};
  }
  static DynTile matrix(ptx::Mod type, int element_bytes, int rows, int cols, Swizzle swizzle) {
    return {type, {rows, cols, element_bytes, swizzle, rows}, Major::k, rows};
  }

  int bytes() const { return layout.bytes(); }
  int align() const { return pattern_bytes(layout.swizzle); }
  int aligned_bytes() const { return (bytes() + align() - 1) / align() * align(); }
  /// Elements of K of an operand.
  int depth() const { return major == Major::k ? layout.cols : layout.rows; }
  friend bool operator==(const DynTile&, const DynTile&) = default;
};

/// A DynTile in shared memory: `base` + `offset` is its first byte, a multiple of tile.align().
class DynSmemTile {
 public:
  DynSmemTile(const DynTile& tile, const Val<u32>& base, int offset = 0)
      : tile_(tile), base_(base), offset_(offset) {}
  const DynTile& tile() const { return tile_; }
  const Val<u32>& base() const { return base_; }
  int offset() const { return offset_; }

 private:
  DynTile tile_;
  Val<u32> base_;
  int offset_;
};

}  // namespace cgp::dsl
