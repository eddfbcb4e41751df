// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor maps and rings of DynTiles (dyn_tile.h): TmaIn, TmaOut and Ring with shapes that are build-time
// values. The state of a stage stays a type: DynFilled is a stage that has landed, and must be released or
// handed to wgmma.
//   auto a = DynTmaIn::declare(k, DynTile::operand(...), {1, 128, 64});      a kernel parameter
//   DynRing ring(k, 4, load, math, {{a}, {b}});
//   ring.fill(thread, [&](int i) { return i == 0 ? at(a, batch, m0, k0) : at(b, batch, n0, k0); });
//   auto stage = ring.take(wg);                                              a DynFilled
#include "cgp/dsl/memory/dyn_tile.h"
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

/// What DynTmaIn and DynTmaOut share.
class DynTmaMap {
 public:
  const DynTile& tile() const { return tile_; }
  const record::TmaMap& map() const { return map_; }

 protected:
  DynTmaMap(const DynTile& tile, record::TmaMap map) : tile_(tile), map_(std::move(map)) {}
  DynTile tile_;
  record::TmaMap map_;
};

/// A tensor that tiles are loaded from: a kernel parameter, declared where declare() is called.
class DynTmaIn : public DynTmaMap {
 public:
  /// box: extents of one tile in the tensor, outermost first.
  static DynTmaIn declare(Kernel& k, const DynTile& tile, const std::vector<int>& box) {
    return DynTmaIn(tile, record::declare_tma(k, tile.type, tile.layout, box, false));
  }
  /// The blocks of the cluster along `axis` share these tiles: each loads one slice and multicasts it.
  DynTmaIn multicast(Axis axis, Here at = Here::now()) const {
    return DynTmaIn(tile_, record::share_tma(map_, axis, at));
  }
  DynTmaIn hint(L2Hint h) const {
    auto m = map_;
    m.hint = h;
    return DynTmaIn(tile_, std::move(m));
  }

 private:
  using DynTmaMap::DynTmaMap;
};
/// A tensor that tiles are stored to.
class DynTmaOut : public DynTmaMap {
 public:
  static DynTmaOut declare(Kernel& k, const DynTile& tile, const std::vector<int>& box) {
    return DynTmaOut(tile, record::declare_tma(k, tile.type, tile.layout, box, true));
  }

 private:
  using DynTmaMap::DynTmaMap;
};

/// Where a tile begins in its tensor.
template <class MapT>
struct DynTmaAt {
  DynTile tile;
  record::TmaSource place;
};
template <class MapT, class... C>
requires std::is_base_of_v<DynTmaMap, MapT> DynTmaAt<MapT> at(const MapT& map, const C&... coords) {
  if (int(sizeof...(C)) != map.map().rank)
    throw BuildError("one coordinate per dimension of the tensor, outermost first", map.map().k->here(),
                     text::cat(sizeof...(C), " given, the tensor has ", map.map().rank));
  return {map.tile(), {map.map(), {record::coordinate(coords)...}}};
}

/// The first thread of `role` fetches the 128-byte descriptors of the maps, once per kernel.
template <class S, class... Maps>
void prefetch_descriptors(const Role<S>& role, const Maps&... maps) {
  Kernel& k = role.kernel();
  k.if_(k.tid() == std::uint32_t(role.first_warp() * 32),
        [&] { (record::prefetch_tensormap(k, maps.map().address, k.here()), ...); });
}

/// A stage that has landed. Its tiles may be read until it is released or handed to wgmma.
class [[nodiscard]] DynFilled {
 public:
  DynFilled(DynFilled&&) = default;
  /// Tile i of the ring's list.
  DynSmemTile tile(int i) const;
  /// Of a stage from DynRing::take_shares: the i-th tile of this member.
  DynSmemTile share(int i) const;
  int members() const { return members_; }
  /// Frees the stage. All lanes have read what they need: the warps are converged.
  void release(Warpgroup& wg, Here at = Here::now()) && {
    wg.converged("releasing a stage", at);
    std::move(*token_).release(at);
  }
  /// For the last stages of a block that fills no more: nobody waits for them to be freed.
  void keep() && { token_->disarm(); }
  std::vector<record::StageToken> tokens() &&;

 private:
  friend class DynRing;
  DynFilled(std::vector<DynTile> tiles, Val<u32> data, int members, std::optional<record::StageToken> token)
      : tiles_(std::move(tiles)), data_(data), members_(members), token_(std::move(token)) {}
  std::vector<DynTile> tiles_;
  Val<u32> data_;
  int members_;
  std::optional<record::StageToken> token_;  ///< none: only looked at
};

/// Stages of tiles between one producing thread and all members of a role.
class DynRing {
 public:
  /// Tiles of one tensor in each stage: `count` of them, one after the other.
  struct Tiles {
    DynTmaIn from;
    int count = 1;
  };
  DynRing(Kernel& k, Stages stages, const Role<Warpgroup>& from, const Role<Warpgroup>& to,
          const std::vector<Tiles>& tiles);
  DynRing(const DynRing&) = delete;

  /// Waits for an empty stage, announces the bytes of its tiles, and loads source(0), source(1), ... into
  /// them.
  template <class Source>
  void fill(Thread&, Source&& source, Here at = Here::now()) {
    const auto stage = core_.begin_fill(at);
    for (int i = 0; i < int(tiles_.size()); ++i) load(i, source(i), stage, at);
    core_.end_fill(at);
  }
  /// Waits for a full stage.
  DynFilled take(Warpgroup& wg, Here at = Here::now());
  /// The same without taking it: the next take() gives the same stage.
  DynFilled peek(Warpgroup& wg, Here at = Here::now());
  /// Takes `n` stages and frees them unread.
  void pass(Warpgroup& wg, const Val<u32>& n, Here at = Here::now());

  /// A stage with other tiles: each member of the consuming role gets share_count(tile) or fewer of them.
  /// `from`: the first tile of every member, then the second of every member, and so on.
  void fill_shares(Thread&, const std::vector<DynTmaAt<DynTmaIn>>& from, Here at = Here::now());
  DynFilled take_shares(Warpgroup& wg, const DynTile& tile, Here at = Here::now());
  int share_count(const DynTile& tile) const;

  /// The memory of tile `tile` of stage `stage`, for something else once every fill has been taken and
  /// freed: as a tile `as`, from row `first_row` on, `rows_each` rows further for each member.
  DynSmemTile reuse(Warpgroup& wg, const DynTile& as, int stage, int tile, int first_row,
                    int rows_each) const;

 private:
  void load(int i, const DynTmaAt<DynTmaIn>& from, const record::RingCore::Stage& s, Here at);
  Kernel& k_;
  std::vector<DynTile> tiles_;
  int members_;
  record::RingCore core_;
};

}  // namespace cgp::dsl
