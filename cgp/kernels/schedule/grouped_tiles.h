// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of many products whose sizes lie on the device, found there. A warp looks at 32 groups at a time, one
// a lane; tiles are asked for in rising order, so the window only moves on.
//   GroupWalk walk(k, source, Uniform::warp);     source: RaggedRows or GroupedItems
//   walk.each(w, supply, [&](const GroupTile& t) { ... });   the tiles of this block
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/schedule/raster.h"

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
  Span span(const dsl::Val<dsl::u32>& g) const {
    using namespace dsl;
    const auto inside = g < groups;
    const auto end = dsl::min(ends.ld_if(inside, g << wide, Val<u32>(0))[0], rows);
    const auto before = ends.ld_if(inside & (g != 0u), (g - 1) << wide, Val<u32>(0))[0];
    const auto start = dsl::min(before, end);
    return {start, end - start};
  }
};

/// Tiles of `bm` rows, `cols` of them in a row. Holds a group's first row and its rows.
struct RaggedRows {
  RaggedEnds ends;
  dsl::Val<dsl::u32> cols;
  int bm;

  dsl::Val<dsl::u32> groups() const { return ends.groups; }
  std::vector<dsl::Val<dsl::u32>> held(const dsl::Val<dsl::u32>& g) const {
    const auto s = ends.span(g);
    return {s.start, s.size};
  }
  dsl::Val<dsl::u32> tiles(const std::vector<dsl::Val<dsl::u32>>& h) const {
    return (h[1] + std::uint32_t(bm - 1)) / std::uint32_t(bm) * cols;
  }
};

/// An array of GroupedItem. Kernels with TMA take those whose rows and addresses are multiples of 16 bytes,
/// and leave the rest to another (which, with `every`, takes all). Holds m, n and k.
struct GroupedItems {
  enum class Take : std::uint8_t { aligned, rest };
  dsl::In<dsl::u32> items;  ///< 12 words each: a, b, c, m, n, k, lda, ldb, ldc
  dsl::Val<dsl::u32> count;
  Take take;
  int element_bytes, bm, bn;
  dsl::Val<dsl::pred> every;

  dsl::Val<dsl::u32> groups() const { return count; }
  std::vector<dsl::Val<dsl::u32>> held(const dsl::Val<dsl::u32>& g) const {
    using namespace dsl;
    const auto inside = g < count;
    std::vector<Val<u32>> words;
    const auto item = items.at(to<u64>(g) * std::uint64_t(12));
    for (int v = 0; v < 3; ++v) {
      const auto four = item.ld_if<4>(inside, v, Val<u32>(0));
      for (int i = 0; i < 4; ++i) words.push_back(four[i]);
    }
    const auto e = std::uint32_t(element_bytes);
    // Low words of the addresses, and bytes from row to row; of C also the bytes of a row: TMA stores whole
    // groups of 16.
    const auto misaligned =
        ((words[0] | words[2] | words[4]) | ((words[7] | words[9] | words[10] | words[11]) * e)) & 15u;
    const auto fits = (misaligned == 0u) & (words[8] != 0u);
    const auto takes = inside & (take == Take::aligned ? fits : (!fits) | every);
    return {select(takes, words[6], 0u), words[7], words[8]};
  }
  dsl::Val<dsl::u32> tiles(const std::vector<dsl::Val<dsl::u32>>& h) const {
    const auto m = std::uint32_t(bm), n = std::uint32_t(bn);
    return ((h[0] + (m - 1)) / m) * ((h[1] + (n - 1)) / n);
  }
};

/// 32 groups from `first` on, one a lane.
struct GroupWindow {
  dsl::Val<dsl::u32> first;              ///< group of lane 0
  dsl::Val<dsl::u32> last;               ///< tiles up to the last of the 32 groups
  dsl::Val<dsl::u32> from, upto;         ///< tiles before the lane's group, and with it
  std::vector<dsl::Val<dsl::u32>> held;  ///< of the lane's group
  static auto carried() {
    using W = GroupWindow;
    return std::tuple(&W::first, &W::last, &W::from, &W::upto, &W::held);
  }
};

struct GroupTile {
  dsl::Val<dsl::u32> group, number;      ///< of the tile in its group
  std::vector<dsl::Val<dsl::u32>> held;  ///< by the source
};

/// Which tile a block takes after this one: the next that nobody has taken (a counter that starts at 0), or
/// every gridDim-th. Taken tiles begin in order, so that blocks which share operands keep together although
/// tiles take different times.
struct TileSupply {
  dsl::Out<dsl::u32> counter;
  bool taken;

  /// The warp's request, to be answered by `next`; loads may be issued in between.
  dsl::Val<dsl::u32> ask(dsl::Kernel& k) const {
    using namespace dsl;
    if (!taken) return Val<u32>(0);
    return k.if_(
        k.laneid() == 0u, [&] { return atom<relaxed, gpu, op::add>(counter, 0, Val<u32>(1)); },
        [&] { return Val<u32>(0); });
  }
  dsl::Val<dsl::u32> next(dsl::Warp& w, const dsl::Val<dsl::u32>& tile,
                          const dsl::Val<dsl::u32>& asked) const {
    using namespace dsl;
    return taken ? w.k.nctaid_x() + shfl<idx>(w, asked, 0) : tile + w.k.nctaid_x();
  }
};

template <class Source>
class GroupWalk {
 public:
  /// What is the same in a warp is taken as the same over `over`, whose warps walk over the same tiles.
  GroupWalk(dsl::Kernel& k, Source source, dsl::Uniform over)
      : k_(k), source_(std::move(source)), over_(over) {}

  /// body(tile) for every tile of this block, by the whole warp.
  template <class Body>
  void each(dsl::Warp& w, const TileSupply& supply, Body&& body) {
    using namespace dsl;
    const auto first = k_.ctaid_x(), all = tiles(w);
    using State = std::pair<Val<u32>, GroupWindow>;
    k_.while_(
        State(first + 0u, window(w, first)),
        [&](const State& s) { return assume_uniform(s.first < all, over_); },
        [&](State s) {
          const auto asked = supply.ask(k_);
          body(place(w, s.second, s.first));
          const auto next = supply.next(w, s.first, asked);
          return State(next, seek(w, std::move(s.second), next));
        });
  }

  /// The tile of that number, by the whole warp; not `there`: the groups have fewer tiles, and the rest says nothing.
  struct Found {
    GroupTile tile;
    dsl::Val<dsl::pred> there;
  };
  Found find(dsl::Warp& w, const dsl::Val<dsl::u32>& number) {
    const auto at = window(w, number);
    return {place(w, at, number), dsl::assume_uniform(at.last > number, over_)};
  }

 private:
  dsl::Val<dsl::u32> tiles(dsl::Warp& w) {
    return dsl::assume_uniform(window(w, dsl::Val<dsl::u32>(0xffffffffu)).last, over_);
  }
  GroupWindow window(dsl::Warp& w, const dsl::Val<dsl::u32>& tile) {
    return seek(w, load(w, dsl::Val<dsl::u32>(0), dsl::Val<dsl::u32>(0)), tile);
  }
  GroupWindow seek(dsl::Warp& w, GroupWindow at, const dsl::Val<dsl::u32>& tile) {
    using namespace dsl;
    return k_.while_(
        std::move(at),
        [&](const GroupWindow& s) {
          return assume_uniform((s.last <= tile) & (s.first + 32u < source_.groups()), over_);
        },
        [&](const GroupWindow& s) { return load(w, s.first + 32u, s.last); });
  }
  GroupTile place(dsl::Warp& w, const GroupWindow& at, const dsl::Val<dsl::u32>& tile) {
    using namespace dsl;
    const auto same = [&](const Val<u32>& v) { return assume_uniform(v, over_); };
    // Lanes whose groups end before the tile come first.
    const auto lane = popc(vote<ballot>(w, at.upto <= tile));
    GroupTile t{same(at.first + lane), same(tile) - same(shfl<idx>(w, at.from, lane)), {}};
    for (const auto& v : at.held) t.held.push_back(same(shfl<idx>(w, v, lane)));
    return t;
  }

  GroupWindow load(dsl::Warp& w, const dsl::Val<dsl::u32>& first, const dsl::Val<dsl::u32>& before) {
    using namespace dsl;
    auto held = source_.held(first + w.lane());
    const auto tiles = source_.tiles(held);
    const auto sum = before + inclusive_scan(w, tiles, [](const auto& a, const auto& b) { return a + b; });
    const auto last = shfl<idx>(w, sum, 31);
    return {first, last, sum - tiles, sum, std::move(held)};
  }
  dsl::Kernel& k_;
  Source source_;
  dsl::Uniform over_;
};

/// A tensor map that ends where a group ends, whose rows the host does not know. It has the dimensions
/// [2^30 + 1][rows + 1][2^30][columns] with strides of 2^34 - ld, ld and ld bytes: at coordinates (2^30, row
/// + left, 2^30 - left) the strides add up to `row` rows modulo 2^64, and `left` rows further the third
/// dimension ends. Loads find zeros there, stores leave out.
inline constexpr std::uint32_t kClipWrap = 1u << 30;
struct ClippedRows {
  dsl::Val<dsl::u32> outer, inner;
};
/// Of a box of `box` rows at `row`, `left` rows before the group's end.
inline ClippedRows clipped(const dsl::Val<dsl::u32>& row, const dsl::Val<dsl::u32>& left, int box) {
  const auto n = dsl::min(left, std::uint32_t(box));
  return {row + n, dsl::Val<dsl::u32>(kClipWrap) - n};
}

}  // namespace cgp::kernels
