// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of Hopper kernels whose tile is a build-time value: any multiple of 64 by any multiple of 8, any
// types of wgmma.
//   DynamicTile      the shape, and what follows from it: stages, epilogue subtiles, shared memory
//   DynamicOperand   op(A) or op(B) behind a tensor map
//   DynamicMainloop  the ring of stages, and a warpgroup's accumulator over them
//   DynamicResults   accumulators on their way into C, 16-bit types, clipped at its edges
#include <functional>
#include <optional>
#include <vector>

#include "cgp/dsl/mma/dyn_epilogue.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {

/// Rows and columns are M and N of wgmma: rows and columns of C or, with swap_ab, columns and rows, so that
/// C's height comes in steps of 8. A stage has 128 bytes of K of each operand, with a 128-byte swizzle; an
/// MN-major operand comes in panels of 64 rows, the last one partly unused.
struct DynamicTile {
  ptx::Mod a, b, accumulator;  ///< words of wgmma
  int element_bytes = 2;
  dsl::Major major_a = dsl::Major::k, major_b = dsl::Major::k;
  int rows = 128, cols = 128;
  /// Math warpgroups: each has rows / warpgroups rows and all columns, or (more than 256 columns) all rows
  /// and cols / warpgroups columns.
  int warpgroups = 2;
  bool swap_ab = false;
  int stages = 4;
  int terms = 1;  ///< tiles of each operand in a stage: 3 when f32 is the sum of three bf16
  /// A block computes one tile: its results leave through the ring, which has done its work by then.
  bool non_persistent = false;

  int height() const { return swap_ab ? cols : rows; }  ///< rows of C
  int width() const { return swap_ab ? rows : cols; }   ///< columns of C
  bool by_columns() const { return cols > 256; }
  int warpgroup_rows() const { return by_columns() ? rows : rows / warpgroups; }
  int warpgroup_cols() const { return by_columns() ? cols / warpgroups : cols; }
  /// Of a warpgroup's rows those of one thread, from its first on.
  std::vector<int> thread_rows() const;
  int stage_bytes() const;

  /// What is stored at once: 64 rows by this many columns or, with swap_ab, this many rows by 64 columns of
  /// C. Where they do not divide the tile (non_persistent) the last subtile repeats a part of the one before.
  int subtile() const;
  dsl::DynTile subtile_tile(ptx::Mod type) const;
  int subtiles() const;  ///< of a warpgroup
  /// Whether the subtiles of a non_persistent tile fit into the ring.
  bool results_fit_ring() const;
  int source_subtiles() const;  ///< of the source C, that a stage of the ring has room for, for a warpgroup
  /// Stages of the ring that the source C of a tile takes; 0: the ring has not as many.
  int source_stages() const;
  /// Buffers that divide a warpgroup's subtiles: 2, else 3, else 1; of subtiles above 12 KB 1.
  int store_buffers() const;
  int staging_bytes(int buffers) const;  ///< of shared memory
  /// Stages that fit with `buffers` subtiles of each warpgroup, `most` at most.
  int fitting_stages(int buffers, int most = 8) const;
};

/// op(A) or op(B).
class DynamicOperand {
 public:
  /// paired (K contiguous): the tensor is [batch][2][extent / 2][k], and half of a tile comes from each of
  /// both; else [batch][extent][k], or [batch][k][extent].
  explicit DynamicOperand(dsl::DynTmaIn map, bool paired = false) : map_(std::move(map)), paired_(paired) {}
  static DynamicOperand declare(dsl::Kernel& k, const dsl::DynTile& tile, bool paired = false) {
    return DynamicOperand(dsl::DynTmaIn::declare(k, tile, box(tile, paired)), paired);
  }
  static std::vector<int> box(const dsl::DynTile& tile, bool paired = false);

  const dsl::DynTmaIn& map() const { return map_; }
  dsl::DynTmaAt<dsl::DynTmaIn> at(const dsl::Val<dsl::u32>& batch, const dsl::Val<dsl::u32>& row,
                                  const dsl::Val<dsl::u32>& k0) const;

 private:
  dsl::DynTmaIn map_;
  bool paired_;
};

/// Accumulators that may not stay in the tensor cores: each stage is multiplied afresh and added up in fp32
/// registers.
struct Promotion {
  int slices = 1;  ///< of the columns, each multiplied by itself
  /// One slice is multiplied while the one before is added; of one slice, two stages. Else an even number.
  bool overlapped = false;
  /// Of a stage: for each 64 rows the scales of this thread's row and the one 8 below, then of each slice's
  /// columns. Without: 1.
  std::function<std::vector<dsl::Val<dsl::f32>>(const dsl::Val<dsl::u32>& k_tile)> scales{};
};

class DynamicMainloop {
 public:
  DynamicMainloop(dsl::Kernel& k, const DynamicTile& t, const dsl::Role<dsl::Warpgroup>& load,
                  const dsl::Role<dsl::Warpgroup>& math, const DynamicOperand& a, const DynamicOperand& b);
  /// Stage `k_tile` of the tile at `at`; terms of an operand lie `batches` apart.
  void fill(dsl::Thread& t, const TileCoord& at, const dsl::Val<dsl::u32>& k_tile,
            const std::optional<dsl::Val<dsl::u32>>& batches = {}, Here here = Here::now());
  /// Of grouped products: A's batch is not B's.
  void fill(dsl::Thread& t, const TileCoord& of_a, const TileCoord& of_b, const dsl::Val<dsl::u32>& k_tile,
            Here here = Here::now());
  /// A stage of other operands, whose tiles are those of the ring.
  void fill(dsl::Thread& t, const DynamicOperand& a, const DynamicOperand& b, const TileCoord& of_a,
            const TileCoord& of_b, const dsl::Val<dsl::u32>& k_tile, Here here = Here::now());
  /// Stages that this warpgroup does not need.
  void pass(dsl::Warpgroup& wg, const dsl::Val<dsl::u32>& k_tiles, Here here = Here::now()) {
    ring_.pass(wg, k_tiles, here);
  }
  /// This warpgroup's accumulator over `k_tiles` stages (at least one).
  dsl::DynAcc accumulate(dsl::Warpgroup& wg, const dsl::Val<dsl::u32>& k_tiles, Here here = Here::now());
  dsl::DynAcc accumulate_promoted(dsl::Warpgroup& wg, const dsl::Val<dsl::u32>& k_tiles, const Promotion& how,
                                  Here here = Here::now());
  /// What of `at` this warpgroup's accumulator is.
  TileCoord warpgroup_tile(const dsl::Warpgroup& wg, const TileCoord& at) const;

  /// Behind the last stage of a tile: its source C, through the ring (source_stages() of them).
  void fill_source(dsl::Thread& t, const dsl::DynTmaIn& source, const TileCoord& at, Here here = Here::now());
  std::vector<dsl::DynFilled> take_source(dsl::Warpgroup& wg, const dsl::DynTile& subtile,
                                          Here here = Here::now());
  /// Behind the accumulator: room for this warpgroup's i-th subtile, where only it has read.
  dsl::DynSmemTile reuse(dsl::Warpgroup& wg, const dsl::DynTile& subtile, int i) const;

 private:
  dsl::Kernel& k_;
  DynamicTile tile_;
  DynamicOperand a_, b_;
  dsl::DynRing ring_;
};

class DynamicResults {
 public:
  /// `buffers` subtiles of shared memory for each warpgroup, none where results reuse the ring.
  DynamicResults(dsl::Kernel& k, const DynamicTile& t, const dsl::DynTmaOut& c,
                 const dsl::Role<dsl::Warpgroup>& math, int buffers);
  dsl::PendingStore idle() { return staging_.idle(); }
  /// From here on tiles are stored through the map at this generic address, which is like C's.
  void through(const dsl::Value& map) { through_.emplace(map); }
  /// All threads of the warpgroup know that its stores are done.
  dsl::PendingStore done(dsl::Warpgroup& wg, dsl::PendingStore before, Here here = Here::now());
  /// A warpgroup's accumulator; `at` is DynamicMainloop::warpgroup_tile().
  dsl::PendingStore store(dsl::Warpgroup& wg, dsl::PendingStore before, dsl::DynAcc acc, const TileCoord& at,
                          const DynamicMainloop& loop, Here here = Here::now());
  /// The same plus beta times the source C, in the place of the source or through staging.
  dsl::PendingStore store(dsl::Warpgroup& wg, dsl::PendingStore before, dsl::DynAcc acc, const TileCoord& at,
                          std::vector<dsl::DynFilled> source, const dsl::Val<dsl::f32>& beta,
                          Here here = Here::now());

 private:
  void write(dsl::Warpgroup& wg, const dsl::DynAcc& acc, const dsl::DynSmemTile& to, int col, Here at) const;
  DynamicTile tile_;
  dsl::DynTmaAt<dsl::DynTmaOut> at(const TileCoord& place) const;
  dsl::DynTmaOut map_;
  std::optional<dsl::Value> through_;
  dsl::DynStaging staging_;
};

}  // namespace cgp::kernels
