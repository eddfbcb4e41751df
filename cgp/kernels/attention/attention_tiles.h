// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tile a block works on: the head swizzle (heads that are visited together), the walk of persistent blocks,
// and sequences that have lengths of their own.
#include "cgp/dsl/pipeline/tma.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels::attention_impl {

/// A head of `pairs` and one of its `tiles_m` tiles: all first tiles of the heads that are visited together, then
/// all second ones.
struct TileOfHead {
  Val<u32> head, tile;
};
inline TileOfHead tile_of_head(const AttentionParams& p, const Val<u32>& index, const Val<u32>& tiles_m) {
  const auto per_group = p.head_swizzle * tiles_m, group = index / per_group, inside = index % per_group,
             first = group * p.head_swizzle;
  const auto width = dsl::min(p.pairs - first, p.head_swizzle);
  return {first + inside % width, inside / width};
}

/// Round r of all blocks runs forwards, the next backwards: who had the longest tile gets the shortest next.
inline Val<u32> tile_of_round(Kernel& k, const Val<u32>& r) {
  const auto grid = k.nctaid_x();
  return r * grid + select((r & 1u) != 0u, grid - 1 - k.ctaid_x(), k.ctaid_x());
}
/// Of packed sequences, whose tiles of `rows` rows lie one after the other. Sequence b begins with tile
/// cu[b] / rows + b: no table is needed, and at most one tile of a sequence has no rows.
struct TileOfSequence {
  Val<u32> batch, tile;
};
inline TileOfSequence tile_of_sequence(Kernel& k, const AttentionParams& p, const Val<u64>& cu, int rows,
                                       const Val<u32>& index) {
  using Found =
      std::tuple<Val<u32>, Val<u32>, Val<u32>>;  // a sequence, its first tile, one that begins later
  const auto found = k.while_(
      Found(Val<u32>(0), Val<u32>(0), p.batch),
      [](const Found& f) { return std::get<2>(f) - std::get<0>(f) > 1u; },
      [&](const Found& f) {
        const auto [low, first, high] = f;
        const auto middle = (low + high) >> 1u;
        const auto begins = In<u32>(cu, 0, true).at(middle).ld(0) / std::uint32_t(rows) + middle;
        const auto later = begins > index;
        return Found(select(later, low, middle), select(later, first, begins), select(later, middle, high));
      });
  return {std::get<0>(found), index - std::get<1>(found)};
}

/// sequence(), known to be the same for all threads of `over`.
inline Sequence sequence_of(const AttentionFeatures& f, const AttentionParams& p, const Val<u32>& batch,
                            const Val<u32>& head, Uniform over) {
  const Sequence s = sequence(f, p, batch, head);
  if (!f.packed && !f.key_lengths) return s;
  const auto same = [&](const Val<u32>& v) { return v.is_literal() ? v : assume_uniform(v, over); };
  return {same(s.batch), same(s.head),    same(s.head_kv), same(s.n_q),
          same(s.n_kv),  same(s.first_q), same(s.first_kv)};
}

/// Rows of a sequence and head in a map of attention_map(), whose coordinates are {outer, inner, row0 + row,
/// 0}.
struct RowsOfMap {
  Val<u32> outer, inner, row0;
};
inline RowsOfMap rows_of_map(const AttentionFeatures& f, const AttentionParams& p, const Sequence& s,
                             MapOf which, const Val<u32>& head) {
  const bool queries = which == MapOf::q || which == MapOf::o;
  if (!own_lengths(f.packed, f.key_lengths, queries)) return {s.batch, head, Val<u32>(0)};
  const auto& n = queries ? s.n_q : s.n_kv;
  const auto& first = queries ? s.first_q : s.first_kv;
  const auto place =
      which == MapOf::q   ? rows_of(s, head, first + n, p.q_batch, p.q_head, p.q_row) >> p.q_unit
      : which == MapOf::k ? rows_of(s, head, first + n, p.k_batch, p.k_head, p.k_row) >> p.k_unit
      : which == MapOf::v ? rows_of(s, head, first + n, p.v_batch, p.v_head, p.v_row) >> p.v_unit
                          : rows_of(s, head, first + n, p.o_batch, p.o_head, p.o_row) >> p.o_unit;
  return {Val<u32>(kRowsOfMap), to<u32>(place), Val<u32>(kRowsOfMap) - n};
}
template <class Map>
auto row_of(const Map& map, const RowsOfMap& r, const Val<u32>& row) {
  return dsl::at(map, r.outer, r.inner, r.row0.is_literal() ? row : r.row0 + row, 0);
}

/// How many of `tiles` a persistent block has.
inline Val<u32> rounds_of_block(Kernel& k, const Val<u32>& tiles) {
  const auto grid = k.nctaid_x(), full = tiles / grid;
  const auto last = select((full & 1u) != 0u, grid - 1 - k.ctaid_x(), k.ctaid_x());
  return full + select(last < tiles % grid, Val<u32>(1), Val<u32>(0));
}

}  // namespace cgp::kernels::attention_impl
