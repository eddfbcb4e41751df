// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a DynAcc to global memory through shared memory: store_tile, its transposed twin, what adds a tile
// that lies in shared memory, and Staging of DynTiles (epilogue.h has the typed ones).
#include "cgp/dsl/mma/dyn_acc.h"
#include "cgp/dsl/mma/epilogue.h"

namespace cgp::dsl {

/// Columns first_col .. of 64 rows, rounded to the tile's type, into the tile.
void store_tile(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, int first_col = 0,
                Here at = Here::now());
/// The same transposed: columns first_col .. become rows of the tile, which has 64 columns. 16-bit types.
void store_tile_transposed(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, int first_col = 0,
                           Here at = Here::now());
/// acc + factor * tile, as store_tile and store_tile_transposed lay it out; columns beyond the tile's stay.
/// f16 and bf16.
DynAcc add_tile(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, const Val<f32>& factor,
                int first_col = 0, Here at = Here::now());
DynAcc add_tile_transposed(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, const Val<f32>& factor,
                           int first_col = 0, Here at = Here::now());

/// The same place through another map (its generic address), which is like the parameter's.
inline DynTmaAt<DynTmaOut> through(const DynTmaAt<DynTmaOut>& at, const Value& map) {
  return {at.tile, {record::with_address(at.place.map, map), at.place.coords}};
}

/// Tiles on their way out by TMA, one or more for each warpgroup of a role.
class DynStaging {
 public:
  DynStaging(Kernel& k, const Role<Warpgroup>& role, const DynTile& tile, int buffers, Here at = Here::now())
      : DynStaging(k, role, tile, buffers, tile.bytes(), at) {}
  /// Without buffers of its own: for store_from.
  static DynStaging without_buffers(Kernel& k, const Role<Warpgroup>& role, const DynTile& tile,
                                    Here at = Here::now()) {
    return DynStaging(k, role, tile, 1, 0, at);
  }
  DynStaging(const DynStaging&) = delete;
  /// No store under way.
  PendingStore idle(Here at = Here::now()) { return PendingStore(core_, k_, 0, at); }

  /// Waits until the oldest buffer has been read, lets body(const DynSmemTile&) write it, and starts its
  /// store. `to`: where, or a function that says so once the tile is written.
  template <class To, class Body>
  PendingStore store(Warpgroup& wg, PendingStore before, const To& to, Body&& body,
                     StoreOp op = StoreOp::store, Here at = Here::now()) {
    const int buffer = before.next_;
    before.core_ = nullptr;
    const DynSmemTile tile(tile_, core_.begin(wg, buffer, at));
    body(tile);
    const int next = (buffer + 1) % core_.buffers();
    if constexpr (std::is_invocable_v<const To&>)
      return end(wg, to(), tile, next, op, at);
    else
      return end(wg, to, tile, next, op, at);
  }
  /// The same from memory that nobody else uses any more.
  template <class Body>
  PendingStore store_from(Warpgroup& wg, PendingStore before, const DynSmemTile& tile,
                          const DynTmaAt<DynTmaOut>& to, Body&& body, StoreOp op = StoreOp::store,
                          Here at = Here::now()) {
    before.core_ = nullptr;
    body(tile);
    return end(wg, to, tile, before.next_, op, at);
  }
  /// A barrier of the warpgroup.
  void sync(Warpgroup& wg, Here at = Here::now()) { core_.barrier(wg, at); }

 private:
  DynStaging(Kernel& k, const Role<Warpgroup>& role, const DynTile& tile, int buffers, int bytes, Here at)
      : k_(k), tile_(tile), core_(k, role.count(), buffers, bytes, tile.align(), at) {}
  PendingStore end(Warpgroup& wg, const DynTmaAt<DynTmaOut>& to, const DynSmemTile& tile, int next,
                   StoreOp op, Here at);
  Kernel& k_;
  DynTile tile_;
  record::StagingCore core_;
};

}  // namespace cgp::dsl
