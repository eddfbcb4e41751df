// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of Hopper kernels whose tile is a build-time value instead of a type: any multiple of 64 by any
// multiple of 8, any types of wgmma.
//   rows, cols  M and N of wgmma. They are rows and columns of C or (turned) columns and rows: C's height
//   then
//               comes in steps of 8
//   groups      math warpgroups; each has rows / groups rows and all columns, or (more than 256 columns) all
//               rows and cols / groups columns
//   memory      stages of 128 bytes of K by TMA with a 128-byte swizzle; an operand stored with its rows
//               contiguous comes in panels of 64 of them, the last one partly unused
//   promotion   sums that may not stay in the tensor cores: each stage is summed afresh and added up in fp32
//               registers, times the factors of its blocks if there are any
//   planes      an operand that is the sum of three (f32 as bf16) has a tile for each in a stage
//   results     16-bit types: through shared memory (turned: by stmatrix.trans) and TMA, clipped at the
//   edges;
//               of a block that makes one tile through the ring, which has done its work by then
#include <functional>
#include <optional>
#include <vector>

#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/kernels/gemm/sm90/gemm_store_sm90.h"

namespace cgp::kernels {

struct ShapedTile {
  ptx::Mod a, b, sum;  ///< words of wgmma
  int element_bytes = 2;
  dsl::Major major_a = dsl::Major::k, major_b = dsl::Major::k;
  int rows = 128, cols = 128, groups = 2;
  bool turned = false;
  int stages = 4;
  int planes = 1;  ///< of each operand: 1 or 3
  /// A block makes one tile: its results need no shared memory of their own.
  bool single = false;

  int height() const { return turned ? cols : rows; }  ///< rows of C
  int width() const { return turned ? rows : cols; }   ///< columns of C
  bool by_columns() const { return cols > 256; }
  int group_rows() const { return by_columns() ? rows : rows / groups; }
  int group_cols() const { return by_columns() ? cols / groups : cols; }
  /// Of a warpgroup's rows those of one thread, from its first on.
  std::vector<int> thread_rows() const {
    std::vector<int> out;
    for (int r = 0; r < group_rows(); r += 64) out.insert(out.end(), {r, r + 8});
    return out;
  }
};

/// op(A) or op(B): a tensor map (declared in this order among the parameters) and the tiles that it brings.
/// paired (K contiguous): the map has [batch][2][extent / 2][k], and half of a tile comes from each of both.
class ShapedOperand {
 public:
  ShapedOperand(dsl::Kernel& k, ptx::Mod type, int element_bytes, dsl::Major major, int extent,
                bool paired = false);
  /// The blocks of the cluster share these tiles: each fetches its part.
  ShapedOperand shared(dsl::Axis axis, Here at = Here::now()) const;
  ShapedOperand hint(dsl::L2Hint h) const;
  const dsl::record::TmaMap& map() const { return map_; }
  int bytes() const { return map_.layout.bytes(); }
  dsl::record::TmaSource at(const dsl::Val<dsl::u32>& batch, const dsl::Val<dsl::u32>& row,
                            const dsl::Val<dsl::u32>& k0) const;
  /// From row `from` (a multiple of 64, or of 8 with K contiguous) of a tile at base + offset on.
  dsl::record::WgmmaOperand part(const dsl::Val<dsl::u32>& base, int offset,
                                 const std::optional<dsl::Val<dsl::u32>>& from) const;

 private:
  ShapedOperand(dsl::record::TmaMap map, dsl::Major major, bool paired)
      : map_(std::move(map)), major_(major), paired_(paired) {}
  dsl::record::TmaMap map_;
  dsl::Major major_;
  bool paired_;
};

/// How sums leave the tensor cores.
struct ShapedPromotion {
  int parts = 1;  ///< of the columns, each summed by itself
  /// One part is multiplied while the one before is added up; of one part, two stages. Else an even number.
  bool overlapped = false;
  /// Of a stage: for each 64 rows the factors of this thread's row and the one 8 below, then of each part's
  /// columns. Without: 1.
  std::function<std::vector<dsl::Val<dsl::f32>>(const dsl::Val<dsl::u32>& k_tile)> factors{};
};

/// The ring of stages, and the products of a warpgroup over them.
class ShapedProduct {
 public:
  ShapedProduct(dsl::Kernel& k, const ShapedTile& t, const dsl::Role<dsl::Warpgroup>& load,
                const dsl::Role<dsl::Warpgroup>& math, const ShapedOperand& a, const ShapedOperand& b);
  /// Stage `k_tile` of the tile whose first row and column of C are at.m0 and at.n0; planes of an operand lie
  /// `batches` apart.
  void fill(dsl::Thread& t, const HopperPlace& at, const dsl::Val<dsl::u32>& k_tile,
            const std::optional<dsl::Val<dsl::u32>>& batches = {}, Here here = Here::now());
  /// Of products in groups: A's batch is not B's.
  void fill(dsl::Thread& t, const HopperPlace& of_a, const HopperPlace& of_b,
            const dsl::Val<dsl::u32>& k_tile, Here here = Here::now());
  /// Stages that this warpgroup does not need.
  void skip(dsl::Warpgroup& wg, const dsl::Val<dsl::u32>& k_tiles, Here here = Here::now());
  /// This warpgroup's sums over `k_tiles` stages (at least one): blocks of 64 x group_cols(), as wgmma has
  /// them.
  std::vector<dsl::Value> sums(dsl::Warpgroup& wg, const dsl::Val<dsl::u32>& k_tiles,
                               Here here = Here::now());
  std::vector<dsl::Value> promoted_sums(dsl::Warpgroup& wg, const dsl::Val<dsl::u32>& k_tiles,
                                        const ShapedPromotion& how, Here here = Here::now());
  /// Behind the last stage of a tile: the old C in pieces of `old` (ShapedResults::old), which shared memory
  /// has room for in shaped_old_slots() stages.
  void fill_old(dsl::Thread& t, const dsl::record::TmaMap& old, const HopperPlace& at,
                Here here = Here::now());
  /// They have come: where each stage begins, and the right to free it.
  struct Old {
    std::vector<dsl::Val<dsl::u32>> stages;
    std::vector<dsl::record::StageToken> tokens;
  };
  Old take_old(dsl::Warpgroup& wg, Here here = Here::now());
  /// Behind the sums: the i-th 64 rows of 128 bytes of the ring that nobody but this warpgroup has read.
  dsl::Val<dsl::u32> spent(const dsl::Warpgroup& wg, int i) const;
  /// What of `at` this warpgroup's sums are: its first row and column of C.
  HopperPlace mine(const dsl::Warpgroup& wg, const HopperPlace& at) const;

 private:
  using Flight = dsl::InFlight<std::tuple<>, 1>;  // the sums stay in registers of their own
  /// Columns `part` of `parts` of the next stage; the last part frees it.
  Flight issue(dsl::Warpgroup& wg, const std::vector<dsl::Value>& sums, bool first, Here here, int part = 0,
               int parts = 1);

  dsl::Kernel& k_;
  ShapedTile tile_;
  ShapedOperand a_, b_;
  dsl::record::RingCore ring_;
};

/// Results of a 16-bit type on their way into C.
class ShapedResults {
 public:
  /// Declares the tensor map of C.
  ShapedResults(dsl::Kernel& k, const ShapedTile& t, ptx::Mod type);
  /// The same and, behind it, the map that reads C: results are sums + beta times what was there.
  ShapedResults(dsl::Kernel& k, const ShapedTile& t, ptx::Mod type, bool reads);
  const dsl::record::TmaMap& old() const { return *old_; }
  void open(const dsl::Role<dsl::Warpgroup>& math, int buffers);
  /// A warpgroup's sums; `at` is ShapedProduct::mine(). Of a single tile through `spent`.
  void store(dsl::Warpgroup& wg, const std::vector<dsl::Value>& sums, const HopperPlace& at,
             const ShapedProduct* spent = nullptr, Here here = Here::now());
  /// With the old C: of a single tile in its place, else it is freed when it has been read.
  void store(dsl::Warpgroup& wg, const std::vector<dsl::Value>& sums, const HopperPlace& at,
             ShapedProduct::Old old, const dsl::Val<dsl::f32>& beta, Here here = Here::now());
  /// Nothing is read from shared memory any more; what was stored is visible when the kernel has ended.
  void drain(dsl::Warpgroup& wg, Here here = Here::now());
  const dsl::record::TmaMap& map() const { return map_; }

 private:
  void fill(const dsl::Val<dsl::u32>& base, const std::vector<dsl::Value>& sums, int col, Here at);
  std::vector<dsl::Value> add_old(const dsl::Val<dsl::u32>& base, const std::vector<dsl::Value>& sums,
                                  int col, const dsl::Val<dsl::f32>& beta, Here at);
  dsl::Val<dsl::u32> turned_address(const dsl::Val<dsl::u32>& base) const;
  void fill_turned(const dsl::Val<dsl::u32>& base, const std::vector<dsl::Value>& sums, int from, Here at);

  dsl::Kernel& k_;
  ShapedTile tile_;
  ptx::Mod type_;
  dsl::record::TmaMap map_;
  std::optional<dsl::record::TmaMap> old_;
  std::optional<dsl::record::StagingCore> staging_;
};

/// Of the results stored at once: columns of C, or rows of a turned tile. Where they do not divide the tile
/// (single) the last piece repeats a part of the one before.
int shaped_piece(const ShapedTile& t);
/// Whether the results of a single tile fit into the ring.
bool shaped_single_fits(const ShapedTile& t);
/// Stages of the ring that the old C of a tile takes; 0: the ring has not as many.
int shaped_old_slots(const ShapedTile& t);
/// Bytes of shared memory for `buffers` pieces a warpgroup.
int shaped_staging_bytes(const ShapedTile& t, int buffers);
/// Buffers that divide a warpgroup's pieces: 2, else 3, else 1; of pieces above 12 KB 1.
int shaped_buffers(const ShapedTile& t);
/// Stages that fit beside them, `most` at most.
int shaped_stages(const ShapedTile& t, int buffers, int most = 8);
/// Bytes of one stage.
int shaped_stage_bytes(const ShapedTile& t);

}  // namespace cgp::kernels
