// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stream-K tail: blocks walk over whole tiles as long as those fill every block; of the tiles that are left,
// each cluster takes one and its blocks split K.
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {

class StreamKTiles {
 public:
  /// rows, cols: of the product, in tiles. Tiles 0 .. whole - 1 are computed whole, whole .. tiles - 1
  /// split. `split`: blocks of a cluster.
  StreamKTiles(dsl::Kernel& k, int split, int group, const dsl::Val<dsl::u32>& rows,
               const dsl::Val<dsl::u32>& cols, const dsl::Val<dsl::u32>& whole,
               const dsl::Val<dsl::u32>& tiles, const dsl::Val<dsl::u32>& k_tiles)
      : k_(k),
        split_(split),
        group_(group),
        rows_(rows),
        cols_(cols),
        tiles_(tiles),
        walk_(dsl::range(k.ctaid_x(), whole, k.nctaid_x())),
        tail_(split > 1 ? whole + k.clusterid_x() : whole + 0u),
        rank_(split > 1 ? k.cluster_ctarank() : dsl::Val<dsl::u32>(0)),
        from_(split > 1 ? k_tiles * rank_ / std::uint32_t(split) : k_tiles * 0u),
        to_(split > 1 ? k_tiles * (rank_ + 1) / std::uint32_t(split) : k_tiles + 0u) {}

  /// body(tile) for every whole tile of this block; or state = body(tile, state).
  template <class Body>
  void each_whole(Body&& body) const {
    k_.loop(walk_, body);
  }
  template <class S, class Body>
  S each_whole(S state, Body&& body) const {
    return k_.loop(walk_, std::move(state),
                   [&](dsl::Val<dsl::u32> tile, S s) { return body(tile, std::move(s)); });
  }
  /// body(tile) where this cluster splits one.
  template <class Body>
  void tail(Body&& body) const {
    if (split_ > 1) k_.if_(tail_ < tiles_, [&] { body(tail_); });
  }
  /// This block's slice of K in the tail, in steps.
  dsl::Range<dsl::u32> tail_steps() const { return dsl::range(from_, to_); }
  dsl::Val<dsl::u32> tail_step_count() const { return to_ - from_; }
  const dsl::Val<dsl::u32>& rank() const { return rank_; }  ///< of this block in its cluster

  TileCoord coord(const dsl::Val<dsl::u32>& tile, int tile_m, int tile_n) const {
    const auto per_batch = rows_ * cols_, in_batch = tile % per_batch;
    const GroupedRaster raster(in_batch, rows_, cols_, group_);
    return {tile / per_batch, raster.row() * std::uint32_t(tile_m), raster.col() * std::uint32_t(tile_n)};
  }

 private:
  dsl::Kernel& k_;
  int split_, group_;
  dsl::Val<dsl::u32> rows_, cols_, tiles_;
  dsl::Range<dsl::u32> walk_;
  dsl::Val<dsl::u32> tail_, rank_, from_, to_;
};

}  // namespace cgp::kernels
