// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tile: one type for both ends of every copy. Shape, element type and swizzle fix the shared-memory layout,
// the TMA box, the bytes a barrier expects, the lanes of ldmatrix and the descriptors of wgmma.
// SmemTile: such a tile at a shared address, with views that keep the layout: rows<N>(from), cols<N>(from).
#include "cgp/dsl/core/val.h"
#include "cgp/dsl/memory/smem_descriptor.h"
#include "cgp/dsl/memory/swizzle.h"

namespace cgp::dsl {

/// The numbers of a Tile without its type: what the recording functions compute with.
struct TileLayout {
  int rows = 0, cols = 0;  ///< elements
  int element_bytes = 0;
  Swizzle swizzle = Swizzle::none;
  int panel_rows = 0;  ///< rows of a panel of the tile this is a view of (== rows for a whole tile)

  constexpr int row_bytes() const { return cols * element_bytes; }
  constexpr int span() const { return swizzle == Swizzle::none ? row_bytes() : span_bytes(swizzle); }
  constexpr int panel_cols() const { return span() / element_bytes; }
  constexpr int panels() const { return row_bytes() / span(); }
  constexpr int panel_bytes() const { return panel_rows * span(); }
  constexpr int bytes() const { return rows * row_bytes(); }
  constexpr int chunks_per_panel() const { return span() / 16; }
  /// Byte offset of element (row, col) from the tile's base.
  constexpr std::uint32_t offset(int row, int col) const {
    const int panel = col / panel_cols(), inner = col % panel_cols();
    const auto in_panel = std::uint32_t(row * span() + inner * element_bytes);
    return std::uint32_t(panel * panel_bytes()) + swizzled(swizzle, in_panel);
  }
  friend constexpr bool operator==(const TileLayout&, const TileLayout&) = default;
};

/// Rows x Cols elements of T, columns contiguous. By default the widest swizzle that fits the row.
template <class T, int Rows, int Cols, Swizzle Sw = widest_swizzle(Cols* T::bits / 8)>
struct Tile {
  static_assert(T::bits % 8 == 0, "tiles hold whole bytes: store 4-bit and 6-bit elements packed as u8");
  static_assert(Rows > 0 && Cols > 0, "a tile has at least one row and one column");
  using elem = T;
  static constexpr int rows = Rows, cols = Cols;
  static constexpr Swizzle swizzle = Sw;
  static constexpr TileLayout layout{Rows, Cols, T::bits / 8, Sw, Rows};
  static constexpr int bytes = Rows * Cols * (T::bits / 8);
  static constexpr int row_bytes = Cols * (T::bits / 8);
  static constexpr int align = pattern_bytes(Sw);
  static_assert(Sw != Swizzle::b128 || row_bytes % 128 == 0,
                "a 128-byte swizzle needs rows of a multiple of 128 bytes");
  static_assert(Sw != Swizzle::b64 || row_bytes % 64 == 0,
                "a 64-byte swizzle needs rows of a multiple of 64 bytes");
  static_assert(Sw != Swizzle::b32 || row_bytes % 32 == 0,
                "a 32-byte swizzle needs rows of a multiple of 32 bytes");
  static_assert(Sw != Swizzle::b16 || row_bytes % 16 == 0,
                "16-byte panels need rows of a multiple of 16 bytes");
};

namespace record {
/// Byte offset of element (row, col) from the tile's base; the run-time twin of TileLayout::offset.
Val<u32> tile_offset(const TileLayout& t, const Val<u32>& row, const Val<u32>& col);
Val<u32> swizzle_offset(Swizzle s, const Val<u32>& offset);
/// a / n, a % n, a * n for a build-time n: shifts and masks where n is a power of two.
Val<u32> divided(const Val<u32>& a, int n);
Val<u32> remainder(const Val<u32>& a, int n);
Val<u32> times(const Val<u32>& a, int n);
[[noreturn]] void bad_view(const char* what, int from, int count, int of, int step, Here at);
}  // namespace record
/// divided(a, n), remainder(a, n), times(a, n): with a build-time n, shifts and masks where it is a power of
/// two.
using record::divided;
using record::remainder;
using record::times;

/// A tile (or a view of one) in shared memory. `PanelRows` is the row count of the tile it is a view of.
template <class TileT, int PanelRows = TileT::rows>
class SmemTile {
 public:
  using tile = TileT;
  using elem = typename TileT::elem;
  static constexpr int rows_in_panel = PanelRows;
  static constexpr TileLayout layout{TileT::rows, TileT::cols, TileT::layout.element_bytes, TileT::swizzle,
                                     PanelRows};
  /// `base` is a 32-bit shared address, a multiple of TileT::align (offset included, for whole tiles).
  explicit SmemTile(Val<u32> base, int offset = 0) : base_(base), offset_(offset) {}

  const Val<u32>& base() const { return base_; }
  int offset() const { return offset_; }
  Kernel& kernel() const { return *base_.kernel(); }
  Val<u32> address() const { return offset_ ? base_ + offset_ : base_; }
  /// Shared address of one element.
  Val<u32> address(const Val<u32>& row, const Val<u32>& col) const {
    return address() + record::tile_offset(layout, row, col);
  }

  /// Bytes from address() to one element.
  static Val<u32> offset_of(const Val<u32>& row, const Val<u32>& col) {
    return record::tile_offset(layout, row, col);
  }

  /// N rows from row `from` (a multiple of 8, so that the swizzle pattern starts afresh).
  template <int N>
  SmemTile<Tile<elem, N, TileT::cols, TileT::swizzle>, PanelRows> rows(const Val<u32>& from) const {
    static_assert(N <= TileT::rows, "the view has more rows than the tile");
    return SmemTile<Tile<elem, N, TileT::cols, TileT::swizzle>, PanelRows>(
        base_ + record::times(from, layout.span()), offset_);
  }
  template <int N>
  SmemTile<Tile<elem, N, TileT::cols, TileT::swizzle>, PanelRows> rows(int from,
                                                                       Here at = Here::now()) const {
    static_assert(N <= TileT::rows, "the view has more rows than the tile");
    check_view(from, N, TileT::rows, 8, "rows", at);
    return SmemTile<Tile<elem, N, TileT::cols, TileT::swizzle>, PanelRows>(base_,
                                                                           offset_ + from * layout.span());
  }
  /// N columns from column `from`; both multiples of the panel width (span / element size).
  template <int N>
  SmemTile<Tile<elem, TileT::rows, N, TileT::swizzle>, PanelRows> cols(int from,
                                                                       Here at = Here::now()) const {
    static_assert(N <= TileT::cols && N % layout.panel_cols() == 0,
                  "a view of columns takes whole panels: give a multiple of the swizzle's width in elements");
    check_view(from, N, TileT::cols, layout.panel_cols(), "cols", at);
    return SmemTile<Tile<elem, TileT::rows, N, TileT::swizzle>, PanelRows>(
        base_, offset_ + from / layout.panel_cols() * layout.panel_bytes());
  }
  template <int N>
  SmemTile<Tile<elem, TileT::rows, N, TileT::swizzle>, PanelRows> cols(const Val<u32>& from) const {
    static_assert(N <= TileT::cols && N % layout.panel_cols() == 0,
                  "a view of columns takes whole panels: give a multiple of the swizzle's width in elements");
    return SmemTile<Tile<elem, TileT::rows, N, TileT::swizzle>, PanelRows>(
        base_ + record::times(record::divided(from, layout.panel_cols()), layout.panel_bytes()), offset_);
  }

 private:
  static void check_view(int from, int count, int of, int step, const char* what, Here at) {
    if (from < 0 || from + count > of || from % step != 0) record::bad_view(what, from, count, of, step, at);
  }
  Val<u32> base_;
  int offset_;
};

/// Shared memory for one tile, aligned for its swizzle.
template <class TileT>
SmemTile<TileT> shared_tile(Kernel& k, Here at = Here::now()) {
  return SmemTile<TileT>(k.smem_addr(k.smem(TileT::bytes, TileT::align, at), at));
}

}  // namespace cgp::dsl
