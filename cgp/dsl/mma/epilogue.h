// SPDX-License-Identifier: Apache-2.0
#pragma once
// From accumulators to global memory through shared memory (sm_90).
//   store_tile(wg, acc, tile)    converts and writes a warpgroup's (or warp's) accumulator into a tile:
//                                stmatrix for 16-bit elements, paired stores otherwise
//   Staging<Tile>                a tile per warpgroup that TMA stores asynchronously, as a typestate:
//     Staging<Tile<bf16, 64, 128>> staging(k, math);
//     auto pending = k.loop(tiles, staging.idle(), [&](Val<u32> t, PendingStore pending) { ...
//       return staging.store(wg, std::move(pending), at(c, row, col),
//                            [&](auto& tile) { store_tile(wg, acc, tile); });
//     });
//     std::move(pending).wait(wg);
// The store of one tile runs while the next is computed; the proxy fence, both barriers and the bulk groups
// are emitted here.
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/mma/fragment.h"
#include "cgp/dsl/pipeline/tma.h"

namespace cgp::dsl {

namespace record {
/// The registers `from` .. of an accumulator with blocks of `block_rows` (16 or 64) x 8, into a tile of
/// elements T.
struct AccStore {
  int block_rows;
  int rows, cols;          ///< of the accumulator
  int first_col;           ///< of the accumulator: what lands in column 0 of the tile
  ptx::Mod element;        ///< of the tile
  ptx::Mod register_type;  ///< of the accumulator: f32, s32, or b32 for packed halves
};
void store_accumulator(Kernel& k, const AccStore& s, const std::vector<Value>& acc, const TileLayout& tile,
                       const Val<u32>& base, int offset, Here at);
constexpr bool can_store(ptx::Mod acc, ptx::Mod element) {
  using T = ptx::Mod;
  if (acc == T::f32)
    return element == T::f32 || element == T::bf16 || element == T::f16 || element == T::e4m3 ||
           element == T::e5m2;
  if (acc == T::f16) return element == T::f16;
  return acc == T::s32 && (element == T::s32 || element == T::u32 || element == T::s8);
}
template <class AccT, class Smem>
void store_tile(Kernel& k, int block_rows, const AccT& acc, const Smem& tile, int first_col, Here at) {
  using T = typename Smem::elem;
  static_assert(Smem::tile::rows == AccT::rows, "the tile has as many rows as the accumulator");
  static_assert(
      can_store(AccT::elem::mod, T::mod),
      "an f32 accumulator is stored as f32, bf16, f16, e4m3 or e5m2; f16 as f16; s32 as s32 or (its "
      "low byte) s8");
  static_assert(Smem::layout.swizzle != Swizzle::b16 || T::bits == 16,
                "16-byte panels take 16-bit elements here");
  if (first_col < 0 || first_col % 8 != 0 || first_col + Smem::tile::cols > AccT::cols)
    throw BuildError(
        "the stored columns lie inside the accumulator, from a multiple of 8", at,
        text::cat("columns ", first_col, " to ", first_col + Smem::tile::cols - 1, " of ", AccT::cols));
  store_accumulator(k, {block_rows, AccT::rows, AccT::cols, first_col, T::mod, AccT::reg::mod}, acc.values(),
                    Smem::layout, tile.base(), tile.offset(), at);
}
}  // namespace record

/// Columns first_col .. of the accumulator, rounded to the tile's element type, into the tile.
template <class T, int M, int N, class TileT, int P>
void store_tile(Warpgroup& wg, const Acc<T, M, N>& acc, const SmemTile<TileT, P>& tile, int first_col = 0,
                Here at = Here::now()) {
  wg.converged("store_tile", at);
  record::store_tile(wg.k, 64, acc, tile, first_col, at);
}
template <class T, int M, int N, class TileT, int P>
void store_tile(Warp& w, const WarpAcc<T, M, N>& acc, const SmemTile<TileT, P>& tile, int first_col = 0,
                Here at = Here::now()) {
  w.converged("store_tile", at);
  record::store_tile(w.k, 16, acc, tile, first_col, at);
}

/// A 64 x N accumulator whose elements are already rounded and packed, two T a register and in the
/// accumulator's order, into the tile.
template <class T, int N, int P>
void store_packed(Warpgroup& wg, const std::vector<Val<b32>>& packed,
                  const SmemTile<Tile<T, 64, N, widest_swizzle(N* T::bits / 8)>, P>& tile,
                  Here at = Here::now()) {
  static_assert(T::bits == 16, "two elements a register");
  wg.converged("store_packed", at);
  if (int(packed.size()) != 64 * N / 256)
    throw BuildError("the registers are those of the tile", at,
                     text::cat(packed.size(), " given, ", 64 * N / 256, " needed"));
  record::store_accumulator(wg.k, {64, 64, N, 0, T::mod, ptx::Mod::b32}, {packed.begin(), packed.end()},
                            tile.layout, tile.base(), tile.offset(), at);
}

namespace record {
/// The untyped part of Staging: buffers, barriers and the storing thread of each warpgroup.
class StagingCore {
 public:
  StagingCore(Kernel& k, int warpgroups, int buffers, int tile_bytes, int align, Here at);
  /// Shared address of the buffer to write next; the warpgroup may write to it.
  Val<u32> begin(Warpgroup& wg, int buffer, Here at);
  void end(Warpgroup& wg, const TmaSource& to, const Val<u32>& tile, const TileLayout& layout, StoreOp op,
           Here at);
  void drain(Warpgroup& wg, Here at, bool read = false);  ///< read: until shared memory has been read only
  void barrier(Warpgroup& wg, Here at);                   ///< of the warpgroup
  int buffers() const { return buffers_; }

 private:
  Val<pred> storing_thread();
  Kernel& k_;
  int warpgroups_, buffers_, tile_bytes_, data_, first_barrier_;
};
}  // namespace record

template <class TileT>
class Staging;
class DynStaging;  // dyn_epilogue.h

/// Asynchronous stores of a warpgroup that may still be reading its staging tiles.
class [[nodiscard]] PendingStore {
 public:
  PendingStore(PendingStore&& o) noexcept
      : core_(std::exchange(o.core_, nullptr)), k_(o.k_), next_(o.next_), at_(o.at_) {}
  ~PendingStore() {
    if (core_)
      k_->problem("a staged store was never waited for", at_,
                  "carry it round the loop and end with std::move(pending).wait(wg)");
  }
  /// All stores of the warpgroup are done and visible.
  void wait(Warpgroup& wg, Here at = Here::now()) && { std::exchange(core_, nullptr)->drain(wg, at); }
  /// Shared memory has been read; what was stored is visible when the kernel has ended.
  void wait_read(Warpgroup& wg, Here at = Here::now()) && {
    std::exchange(core_, nullptr)->drain(wg, at, /*read=*/true);
  }
  /// For conditions of while_, which are shown the state but do not take it over.
  void only_shown() && { core_ = nullptr; }

 private:
  template <class TileT>
  friend class Staging;
  friend class DynStaging;
  friend struct Carry<PendingStore>;
  PendingStore(record::StagingCore& core, Kernel& k, int next, Here at)
      : core_(&core), k_(&k), next_(next), at_(at) {}
  record::StagingCore* core_;
  Kernel* k_;
  int next_;  ///< buffer of the next store
  Here at_;
};
/// Nothing sits in registers; what goes round is the obligation to wait and the turn of the buffers.
template <>
struct Carry<PendingStore> {
  static PendingStore home(Kernel&, PendingStore s) { return s; }
  static PendingStore settle(Kernel&, PendingStore& home, PendingStore next);
  static PendingStore view(PendingStore& home) {
    return PendingStore(*home.core_, *home.k_, home.next_, home.at_);
  }
};

template <class TileT>
class Staging {
 public:
  /// `buffers` tiles for each warpgroup of the role; with more than one, as many stores overlap.
  explicit Staging(Kernel& k, const Role<Warpgroup>& role, int buffers = 1, Here at = Here::now())
      : k_(k), core_(k, role.count(), buffers, TileT::bytes, TileT::align, at) {}
  Staging(const Staging&) = delete;
  /// No store under way.
  PendingStore idle(Here at = Here::now()) { return PendingStore(core_, k_, 0, at); }

  /// Waits until the oldest buffer has been read, lets body(SmemTile<TileT>&) write it, and starts its store.
  template <int... Box, class Body>
  PendingStore store(Warpgroup& wg, PendingStore before, const TmaAt<TmaOut<TileT, Box...>>& to, Body&& body,
                     record::StoreOp op = record::StoreOp::store, Here at = Here::now()) {
    const int buffer = before.next_;
    before.core_ = nullptr;
    const Val<u32> address = core_.begin(wg, buffer, at);
    SmemTile<TileT> tile(address);
    body(tile);
    core_.end(wg, to.place, address, TileT::layout, op, at);
    return PendingStore(core_, k_, (buffer + 1) % core_.buffers(), at);
  }

 private:
  Kernel& k_;
  record::StagingCore core_;
};
using record::StoreOp;

}  // namespace cgp::dsl
