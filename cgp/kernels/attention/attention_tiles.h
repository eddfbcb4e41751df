// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tile a block works on: heads in sections that are visited together, and blocks that stay and walk
// over tiles.
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels::attention_parts {

/// A head of `pairs` and a tile of its `tiles_m`: all first tiles of a section's heads, then all second ones.
struct TileOfHead {
  Val<u32> head, tile;
};
inline TileOfHead tile_of_head(const AttentionParams& p, const Val<u32>& index) {
  const auto per_section = p.section * p.tiles_m, section = index / per_section, inside = index % per_section,
             first = section * p.section;
  const auto width = dsl::min(p.pairs - first, p.section);
  return {first + inside % width, inside / width};
}

/// Round r of all blocks runs forwards, the next backwards: who had the longest tile gets the shortest next.
inline Val<u32> tile_of_round(Kernel& k, const Val<u32>& r) {
  const auto grid = k.nctaid_x();
  return r * grid + select((r & 1u) != 0u, grid - 1 - k.ctaid_x(), k.ctaid_x());
}
/// How many this block has of `tiles`.
inline Val<u32> rounds_of_block(Kernel& k, const Val<u32>& tiles) {
  const auto grid = k.nctaid_x(), full = tiles / grid;
  const auto last = select((full & 1u) != 0u, grid - 1 - k.ctaid_x(), k.ctaid_x());
  return full + select(last < tiles % grid, Val<u32>(1), Val<u32>(0));
}

}  // namespace cgp::kernels::attention_parts
