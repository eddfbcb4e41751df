// SPDX-License-Identifier: Apache-2.0
#pragma once
// TileSlots: tiles that a block keeps, one copy of each, filled by TMA and freed one by one. A Ring of one
// stage each would leave holes between its barriers and the next tile; here tiles lie one after the other and
// the barriers behind all that is laid out before start().
//   TileSlots<TileK, TileV> own(k);   ... rings ...   own.start(math);
//   own.fill<0>(t, at(keys, row));               by the producer, in order; the last one ends the round
//   const auto keys = own.take<0>(wg);           readable until
//   own.release<0>(wg);
#include <algorithm>

#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

template <class... Tiles>
class TileSlots {
  template <int I>
  using TileOf = std::tuple_element_t<std::size_t(I), std::tuple<Tiles...>>;

 public:
  explicit TileSlots(Kernel& k)
      : k_(k),
        data_(k.smem((Tiles::bytes + ...), std::max({Tiles::align...}))),
        filling_(k, 1, 1),
        reading_(k, 1, 0) {}
  TileSlots(const TileSlots&) = delete;
  /// Every warp of `math` takes and frees.
  void start(const Role<Warpgroup>& math, Here at = Here::now()) {
    bars_ = k_.smem(kPair * kTiles, 16, at);
    k_.if_(
        k_.tid() == 0u,
        [&] {
          for (int i = 0; i < kTiles; ++i) {
            record::mbarrier_init(k_, full(i), Val<u32>(1), at);
            record::mbarrier_init(k_, empty(i), Val<u32>(math.threads() / 32), at);
          }
          record::fence_mbarrier_init(k_, at);
        },
        at);
    record::sync_cluster_or_block(k_, at);
  }
  /// Tile I, when it is free.
  template <int I, class Map>
  void fill(Thread&, const TmaAt<Map>& from, Here at = Here::now()) {
    static_assert(std::is_same_v<typename Map::tile, TileOf<I>>, "the source has another tile");
    record::mbarrier_wait(k_, empty(I), filling_.parity(), false, at);
    record::mbarrier_arrive_expect_tx(k_, full(I), Val<u32>(TileOf<I>::bytes), at);
    record::tma_load(k_, from.place, {k_.smem_addr(0), data_ + offset<I>()}, full(I), at);
    if (I + 1 == kTiles) filling_.advance(at);
  }
  /// Waits for tile I.
  template <int I>
  SmemTile<TileOf<I>> take(Warpgroup& wg, Here at = Here::now()) {
    wg.converged("waiting for a tile", at);
    if (taken_[I]) throw BuildError("a tile is released before it is taken again", at, text::cat("tile ", I));
    taken_[I] = true;
    record::mbarrier_wait(k_, full(I), reading_.parity(), false, at);
    if (I + 1 == kTiles) reading_.advance(at);
    return SmemTile<TileOf<I>>(k_.smem_addr(0), data_ + offset<I>());
  }
  template <int I>
  void release(Warpgroup& wg, Here at = Here::now()) {
    wg.converged("freeing a tile", at);
    if (!taken_[I]) throw BuildError("a tile is taken before it is released", at, text::cat("tile ", I));
    taken_[I] = false;
    k_.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
    k_.guarded(k_.laneid() == 0u, [&] { record::mbarrier_arrive(k_, empty(I), at); });
  }

 private:
  static constexpr int kPair = 16, kTiles = int(sizeof...(Tiles));
  template <int I>
  static constexpr int offset() {
    constexpr int bytes[] = {Tiles::bytes...};
    int at = 0;
    for (int i = 0; i < I; ++i) at += bytes[i];
    return at;
  }
  record::SharedAddress full(int i) const { return {k_.smem_addr(0), bars_ + kPair * i}; }
  record::SharedAddress empty(int i) const { return {k_.smem_addr(0), bars_ + kPair * i + 8}; }

  Kernel& k_;
  int data_, bars_ = 0;
  record::PhaseCursor filling_, reading_;
  std::array<bool, sizeof...(Tiles)> taken_{};  ///< at this point of the recording
};

}  // namespace cgp::dsl
