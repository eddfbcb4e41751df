// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of a ragged problem, found on the device: group g owns rows ends[g - 1] to ends[g] of A and C, its
// tiles come behind those of the groups before it. A warp looks at 32 groups at a time, one a lane; tiles are
// asked for in rising order, so the window only moves on.
//   RaggedWalk walk(k, {ends, wide, groups, rows}, cols, bm, band);
//   walk.tiles(w)                             of all groups
//   auto at = walk.window(w, tile);           where a tile and all later ones are looked for
//   walk.place(w, at, tile)                   group, rows and columns of the tile
//   walk.seek(w, at, tile)                    moves on
#include "cgp/dsl/warp.h"

namespace cgp::kernels {

/// Ends of the groups in rows, rising: 32-bit numbers, or (wide = 1) 64-bit numbers of which the low word
/// counts. Whatever they say, groups stay inside `rows` rows.
struct RaggedEnds {
  dsl::In<dsl::u32> ends;
  dsl::Val<dsl::u32> wide, groups, rows;

  struct Span {
    dsl::Val<dsl::u32> start, size;
  };
  /// Rows of group g; of a group beyond the last: none.
  Span span(dsl::Kernel&, const dsl::Val<dsl::u32>& g) const {
    using namespace dsl;
    const auto inside = g < groups;
    const auto end = dsl::min(ends.ld_if(inside, g << wide, Val<u32>(0))[0], rows);
    const auto before = ends.ld_if(inside & (g != 0u), (g - 1) << wide, Val<u32>(0))[0];
    const auto start = dsl::min(before, end);
    return {start, end - start};
  }
};

/// 32 groups from `first` on, one a lane.
struct RaggedWindow {
  dsl::Val<dsl::u32> first;        ///< group of lane 0
  dsl::Val<dsl::u32> last;         ///< tiles up to the last of the 32 groups
  dsl::Val<dsl::u32> from, upto;   ///< tiles before the lane's group, and with it
  dsl::Val<dsl::u32> start, size;  ///< rows of the lane's group
  static auto carried() {
    using W = RaggedWindow;
    return std::tuple(&W::first, &W::last, &W::from, &W::upto, &W::start, &W::size);
  }
};

struct RaggedTile {
  dsl::Val<dsl::u32> group, start, size;  ///< the group and its rows
  dsl::Val<dsl::u32> row, col;            ///< of the tile's first element, the row counted in the group
};

/// A tensor map that ends where a group ends. Rows lie in two dimensions with the same stride, [rows +
/// 64][64] from 64 rows before the first: coordinates (outer, inner) are row outer + inner - 64. Boxes of 64
/// rows from (row + left, 64 - left) begin at `row` and leave the inner dimension after `left` rows.
inline constexpr int kClipRows = 64;
struct ClippedRows {
  dsl::Val<dsl::u32> outer, inner;
};
/// Of a box at `row`, `left` rows (at least one) before the group's end.
inline ClippedRows clipped(const dsl::Val<dsl::u32>& row, const dsl::Val<dsl::u32>& left) {
  const auto n = dsl::min(left, std::uint32_t(kClipRows));
  return {row + n, dsl::Val<dsl::u32>(kClipRows) - n};
}

class RaggedWalk {
 public:
  /// Tiles of `bm` rows, `cols` of them beside each other; bands of `band` rows of tiles are visited column
  /// by column. What is the same in a warp is taken as the same over `over`: a walk of the same tiles.
  RaggedWalk(dsl::Kernel& k, RaggedEnds ends, const dsl::Val<dsl::u32>& cols, int bm, int bn, int band,
             dsl::Uniform over)
      : k_(k), ends_(std::move(ends)), cols_(cols), bm_(bm), bn_(bn), band_(band), over_(over) {}

  RaggedWindow window(dsl::Warp& w, const dsl::Val<dsl::u32>& tile) {
    return seek(w, load(w, dsl::Val<dsl::u32>(0), dsl::Val<dsl::u32>(0)), tile);
  }
  RaggedWindow seek(dsl::Warp& w, RaggedWindow at, const dsl::Val<dsl::u32>& tile) {
    using namespace dsl;
    return k_.while_(
        std::move(at),
        [&](const RaggedWindow& s) {
          return assume_uniform((s.last <= tile) & (s.first + 32u < ends_.groups), over_);
        },
        [&](const RaggedWindow& s) { return load(w, s.first + 32u, s.last); });
  }
  dsl::Val<dsl::u32> tiles(dsl::Warp& w) {
    return dsl::assume_uniform(window(w, dsl::Val<dsl::u32>(0xffffffffu)).last, over_);
  }
  RaggedTile place(dsl::Warp& w, const RaggedWindow& at, const dsl::Val<dsl::u32>& tile) {
    using namespace dsl;
    const auto same = [&](const Val<u32>& v) { return assume_uniform(v, over_); };
    // Lanes whose groups end before the tile come first.
    const auto lane = popc(vote<ballot>(w, at.upto <= tile));
    const auto start = same(shfl<idx>(w, at.start, lane)), size = same(shfl<idx>(w, at.size, lane));
    const auto in_group = same(tile) - same(shfl<idx>(w, at.from, lane));
    const auto rows = (size + std::uint32_t(bm_ - 1)) / std::uint32_t(bm_);
    const auto per_band = cols_ * std::uint32_t(band_);
    const auto top = in_group / per_band * std::uint32_t(band_), rest = in_group % per_band;
    const auto height = dsl::min(rows - top, std::uint32_t(band_));
    return {same(at.first + lane), start, size, (top + rest % height) * std::uint32_t(bm_),
            rest / height * std::uint32_t(bn_)};
  }

 private:
  RaggedWindow load(dsl::Warp& w, const dsl::Val<dsl::u32>& first, const dsl::Val<dsl::u32>& before) {
    using namespace dsl;
    const auto rows = ends_.span(k_, first + w.lane());
    const auto tiles = (rows.size + std::uint32_t(bm_ - 1)) / std::uint32_t(bm_) * cols_;
    const auto sum = before + inclusive_scan(w, tiles, [](const auto& a, const auto& b) { return a + b; });
    const auto last = shfl<idx>(w, sum, 31);
    return {first, last, sum - tiles, sum, rows.start, rows.size};
  }
  dsl::Kernel& k_;
  RaggedEnds ends_;
  dsl::Val<dsl::u32> cols_;
  int bm_, bn_, band_;
  dsl::Uniform over_;
};

}  // namespace cgp::kernels
