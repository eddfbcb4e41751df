// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tiles of one product, handed to the blocks of a grid: persistent (as many clusters as fit the device
// walk over the tiles) or not (a block for each tile).
#include <optional>

#include "cgp/dsl/pipeline/tma.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {

/// Rows and columns of a block's tile, and blocks of a cluster along both.
struct TileGrid {
  int tile_m, tile_n;
  int cluster_m = 1, cluster_n = 1;
  int group = 8;  ///< rows of clusters that are visited together
};

/// Tiles of a persistent grid, counted in those of a whole cluster. In a cluster along M or N.
class PersistentTiles {
 public:
  static constexpr bool walks = true;
  static constexpr dsl::Axis along_n = dsl::Axis::x;  ///< of the cluster: blocks with the same rows of C
  PersistentTiles(dsl::Kernel& k, const TileGrid& grid, const dsl::Val<dsl::u32>& rows,
                  const dsl::Val<dsl::u32>& cols, const dsl::Val<dsl::u32>& tiles)
      : k_(k), grid_(grid), rows_(rows), cols_(cols), tiles_(tiles) {}
  /// Before the first tile, and not in a role: where this block begins.
  void start() {
    using namespace dsl;
    const bool clusters = grid_.cluster_m * grid_.cluster_n > 1;
    const auto first = clusters ? k_.clusterid_x() : k_.ctaid_x(),
               step = clusters ? k_.nclusterid_x() : k_.nctaid_x();
    rank_.emplace(clusters ? k_.cluster_ctarank() : Val<u32>(0));
    walk_.emplace(range(first, tiles_, step));
  }
  /// state = body(tile, state) for every tile of this block; S may be a typestate.
  template <class S, class Body>
  S each(S state, Body&& body) const {
    return k_.loop(*walk_, std::move(state),
                   [&](dsl::Val<dsl::u32> tile, S s) { return body(coord(tile), std::move(s)); });
  }

 private:
  TileCoord coord(const dsl::Val<dsl::u32>& tile) const {
    const auto per_batch = rows_ * cols_, in_batch = tile % per_batch;
    const GroupedRaster raster(in_batch, rows_, cols_, grid_.group);
    const auto row = raster.row(), col = raster.col();
    const auto size = std::uint32_t(grid_.cluster_m * grid_.cluster_n);
    const bool along_n = grid_.cluster_n > 1;
    return {tile / per_batch, (along_n ? row : row * size + *rank_) * std::uint32_t(grid_.tile_m),
            (along_n ? col * size + *rank_ : col) * std::uint32_t(grid_.tile_n)};
  }
  dsl::Kernel& k_;
  TileGrid grid_;
  dsl::Val<dsl::u32> rows_, cols_, tiles_;
  std::optional<dsl::Val<dsl::u32>> rank_;
  std::optional<dsl::Range<dsl::u32>> walk_;
};

/// Tiles of a persistent grid for kernels whose roles walk differently; clusters lie along M.
struct ClusterTiles {
  dsl::Val<dsl::u32> rows, cols, tiles;  ///< in tiles of a whole cluster
  int cluster, group;

  dsl::Val<dsl::u32> first(dsl::Kernel& k) const { return cluster > 1 ? k.clusterid_x() : k.ctaid_x(); }
  dsl::Val<dsl::u32> step(dsl::Kernel& k) const { return cluster > 1 ? k.nclusterid_x() : k.nctaid_x(); }
  TileCoord place(dsl::Kernel& k, const dsl::Val<dsl::u32>& tile, int bm, int bn) const {
    using namespace dsl;
    const auto per_batch = rows * cols, in_batch = tile % per_batch;
    const GroupedRaster raster(in_batch, rows, cols, group);
    const auto rank = cluster > 1 ? k.cluster_ctarank() : Val<u32>(0);
    const auto row = raster.row() * std::uint32_t(cluster) + rank;
    return {tile / per_batch, row * std::uint32_t(bm), raster.col() * std::uint32_t(bn)};
  }
};

/// A block for each tile: rows along x, columns along y, batches along z. Nothing to divide before the first
/// load.
class GridTiles {
 public:
  static constexpr bool walks = false;
  static constexpr dsl::Axis along_n = dsl::Axis::y;
  GridTiles(dsl::Kernel& k, const TileGrid& grid)
      : at_{k.ctaid_z(), k.ctaid_x() * std::uint32_t(grid.tile_m), k.ctaid_y() * std::uint32_t(grid.tile_n)} {
  }
  void start() {}
  template <class S, class Body>
  S each(S state, Body&& body) const {
    return body(at_, std::move(state));
  }

 private:
  TileCoord at_;
};

}  // namespace cgp::kernels
