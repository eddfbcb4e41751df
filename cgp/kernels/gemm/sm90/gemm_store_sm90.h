// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of the mixed-precision Hopper kernels: the accumulator of a warpgroup, 64 rows at a time, through
// the epilogue, into staging tiles of the type of C, and by TMA into C, clipped at its edges. The type of C
// is a build-time value.
#include <optional>

#include "cgp/dsl/mma/dyn_epilogue.h"
#include "cgp/kernels/gemm/epilogue/epilogue.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {

/// Types of C that are stored through staging.
inline bool stages_results(DType t) {
  return t == DType::f32 || t == DType::s32 || t == DType::f16 || t == DType::bf16 || t == DType::e4m3 ||
         t == DType::e5m2 || t == DType::s8;
}

class HopperStore {
 public:
  /// Declares the tensor map of C (box of 64 rows x 128 bytes) and then the epilogue's parameters. ragged:
  /// rows end where a group ends, which the map of schedule/grouped_tiles.h clips, and batches are not C's.
  /// cols: of the tile; where they are no whole subtiles of 128 bytes, pointwise epilogues see subtiles of half
  /// of them (16-bit types).
  HopperStore(dsl::Kernel& k, DType c, const Epilogue& e, const dsl::Val<dsl::u32>& m,
              const dsl::Val<dsl::u32>& n, int cols, bool ragged = false);
  /// Staging tiles for each member of the role.
  void open(const dsl::Role<dsl::Warpgroup>& math, int buffers);
  /// `acc`: 64 rows, f32 or (C is s32 and there is no epilogue) s32. Stores one subtile of 128 bytes of
  /// columns after the other: a loop's body stores a multiple of `buffers` of them. Without an epilogue the
  /// last subtile may repeat a part of the one before. `left`: rows up to the end of the group (ragged).
  void store(dsl::Warpgroup& wg, const dsl::DynAcc& acc, const TileCoord& at,
             const std::optional<dsl::Val<dsl::u32>>& left = {}, Here here = Here::now());
  /// All stores of the warpgroup are done.
  void drain(dsl::Warpgroup& wg, Here here = Here::now());

 private:
  struct Lines;
  Lines lines(dsl::Warpgroup& wg, const TileCoord& at, const std::optional<dsl::Val<dsl::u32>>& left) const;
  dsl::DynAcc subtile(const dsl::DynAcc& acc, int col, const TileCoord& at,
                      const std::optional<Lines>& shared) const;
  std::vector<dsl::Value> apply(const dsl::DynAcc& acc, int col, const TileCoord& at,
                                const Lines& shared) const;
  bool pairs() const { return pairing_ != Pairing::none; }

  dsl::Kernel& k_;
  DType type_;
  Pairing pairing_;
  bool ragged_;
  dsl::Val<dsl::u32> m_, n_;
  dsl::DynTmaOut map_;
  EpilogueProgram program_;
  std::optional<dsl::DynStaging> staging_;
  std::vector<dsl::PendingStore> pending_;
};

}  // namespace cgp::kernels
