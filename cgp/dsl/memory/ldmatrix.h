// SPDX-License-Identifier: Apache-2.0
#pragma once
// ldmatrix, stmatrix, movmatrix, and the per-lane row addresses they want on swizzled tiles.
// A warp's operand of mma.sync is described once (WarpOperand: which rows of which tile type) and then loaded
// from any SmemTile of that type: the swizzle costs one XOR per K step, everything else is immediate offsets.
// PTX ISA, "Warp-level matrix load instruction: ldmatrix".
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "cgp/dsl/core/scope.h"
#include "cgp/dsl/memory/tile.h"

namespace cgp::dsl {

using mod::trans, mod::x1, mod::x2, mod::x4;

namespace record {
std::vector<Value> ldmatrix(Kernel& k, int count, bool transposed, const Value& address, int offset, Here at);
void stmatrix(Kernel& k, bool transposed, const Value& address, int offset, std::span<const Value> regs,
              Here at);
Value movmatrix(Kernel& k, const Value& v, Here at);
template <std::size_t N, class T = b32>
std::array<Val<T>, N> to_array(const std::vector<Value>& v) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::array<Val<T>, N>{Val<T>(v[I])...}; }
  (std::make_index_sequence<N>{});
}
template <class Count>
inline constexpr int matrices = Count::mod == ptx::Mod::x1   ? 1
                                : Count::mod == ptx::Mod::x2 ? 2
                                                             : 4;
}  // namespace record

/// ldmatrix<x4>(w, address) or ldmatrix<x4, trans>(w, address): 8x8 matrices of b16, lane 8j + r gives the
/// address of row r of matrix j (16 bytes, 16-byte aligned). Register j of lane L: row L/4, columns 2(L%4),
/// 2(L%4)+1.
template <class Count, class... Trans>
std::array<Val<b32>, record::matrices<Count>> ldmatrix(Warp& w, const Val<u32>& address, int offset = 0,
                                                       Here at = Here::now()) {
  static_assert(has_tag<Count, x1, x2, x4> && sizeof...(Trans) <= 1,
                "write ldmatrix<x4> or ldmatrix<x4, trans>");
  return record::to_array<record::matrices<Count>>(
      record::ldmatrix(w.k, record::matrices<Count>, sizeof...(Trans) == 1, address, offset, at));
}
/// The inverse of ldmatrix (sm_90): register j of lane L goes to row L/4 of matrix j.
template <class Count, class... Trans, std::size_t N>
void stmatrix(Warp& w, const Val<u32>& address, const std::array<Val<b32>, N>& regs, int offset = 0,
              Here at = Here::now()) {
  static_assert(N == record::matrices<Count>, "stmatrix.xN stores N registers");
  std::vector<Value> v(regs.begin(), regs.end());
  record::stmatrix(w.k, sizeof...(Trans) == 1, address, offset, v, at);
}
/// Transposes an 8x8 matrix of b16 across the warp's registers.
inline Val<b32> movmatrix(Warp& w, const Val<b32>& v, Here at = Here::now()) {
  return Val<b32>(record::movmatrix(w.k, v, at));
}

enum class Operand : std::uint8_t { a, b };

/// One tile seen through the lanes of a warp: base + lane offset, and the XORed copies the K steps need.
class TileLanes {
 public:
  TileLanes(const TileLayout& layout, const Val<u32>& lane_address, int offset);
  /// Register and immediate of the 16-byte row that lies `row` rows and `chunk` 16-byte chunks further;
  /// `chunk` counts from the lane's own and is even.
  std::pair<Value, int> at(int row, int chunk);

 private:
  TileLayout layout_;
  Val<u32> lane_;
  int offset_;
  std::array<std::optional<Value>, 8> xored_;
};

namespace record {
/// Byte offset of the row that this lane addresses, for operand `which` starting at `from` along M or N.
Val<u32> operand_lane_offset(Kernel& k, Operand which, Major major, const TileLayout& layout,
                             const Val<u32>& from);
/// The registers of one 32-byte K slice: blocks of 16 rows (A, 4 registers) or 8 columns (B, 2 registers).
std::vector<Value> load_operand(Kernel& k, Operand which, Major major, int element_bytes, int extent,
                                int k_step, TileLanes& lanes, Here at);
}  // namespace record

/// The part of an A or B tile that one warp multiplies: `Extent` rows (K-major tiles, [M or N][K]) or columns
/// (MN-major, [K][M or N]; 16-bit elements only) from `from`, which must be a multiple of Extent.
template <Operand Which, class TileT, int Extent, Major M = Major::k>
class WarpOperand {
 public:
  using tile = TileT;
  using elem = typename TileT::elem;
  static constexpr Operand which = Which;
  static constexpr int extent = Extent;
  static constexpr int element_bytes = TileT::layout.element_bytes;
  static constexpr int k = M == Major::k ? TileT::cols : TileT::rows;
  static constexpr int k_per_step = M == Major::k ? 32 / element_bytes : 16;
  static constexpr int k_steps = k / k_per_step;
  static_assert(M == Major::k || element_bytes == 2,
                "ldmatrix.trans moves 16-bit elements: store other types K-major");
  static_assert(Extent % (Which == Operand::a ? 16 : 8) == 0,
                "mma.sync takes A in blocks of 16 rows and B in blocks of 8 columns");
  static_assert(k % k_per_step == 0,
                "the tile's K extent must be a multiple of the instruction's (32 bytes)");
  static_assert(Extent <= (M == Major::k ? TileT::rows : TileT::cols),
                "the warp's part is larger than the tile");
  static_assert(M == Major::k || (Extent * 2) % TileT::layout.span() == 0 ||
                    TileT::layout.span() % (Extent * 2) == 0,
                "an MN-major warp part must be whole panels, or a whole fraction of one");

  WarpOperand(Warp& w, const Val<u32>& from)
      : offset_(record::operand_lane_offset(w.k, Which, M, TileT::layout, from)) {}

  template <int PanelRows>
  TileLanes lanes(const SmemTile<TileT, PanelRows>& t) const {
    return TileLanes(SmemTile<TileT, PanelRows>::layout, t.base() + offset_, t.offset());
  }
  /// Registers of K slice `k_step`, block after block.
  std::vector<Value> load(Warp& w, TileLanes& lanes, int k_step, Here at = Here::now()) const {
    return record::load_operand(w.k, Which, M, element_bytes, Extent, k_step, lanes, at);
  }

 private:
  Val<u32> offset_;
};
template <class TileT, int Extent, Major M = Major::k>
using WarpA = WarpOperand<Operand::a, TileT, Extent, M>;
template <class TileT, int Extent, Major M = Major::k>
using WarpB = WarpOperand<Operand::b, TileT, Extent, M>;

}  // namespace cgp::dsl
