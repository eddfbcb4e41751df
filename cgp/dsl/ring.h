// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ring: stages of tiles in shared memory between one TMA producer and consumer warps. It owns the full and
// empty mbarriers; stage, parity, byte and arrival counts are derived; its cursors live on across loops.
//   Ring<ByThreads, TileA, TileB> ring(k, stages, load, math);         roles say who arrives
//   Ring<ByThreads, TileA, TileB> ring(k, stages, load, math, a, b);   with the maps, when one is multicast
//   load.one_thread([&](Thread& t) { ... ring.fill(t, at(a, m, k), at(b, n, k)); });
//   auto stage = ring.take(wg);   a Filled: read it, then hand it to wgmma or release it
// A stage that is taken and never released is a BuildError at the line of its take.
#include <algorithm>
#include <optional>

#include "cgp/dsl/tma.h"

namespace cgp::dsl {

/// Who frees a stage: every member of the consuming role, one arrival per warp.
struct ByThreads {};
/// Each stage is taken and freed by one member of the consuming role, the others skip() it.
struct ByTurns {};

/// A number of stages and the line it was written on.
struct Stages {
  int count;
  Here at;
  Stages(int n, Here at = Here::now()) : count(n), at(at) {}  // NOLINT: implicit by design
};

namespace record {

/// The right to free one stage, once. Destroyed unused, it reports the leak.
class StageToken {
 public:
  StageToken(const Value& empty, const Value& releasing, bool cluster, Here at)
      : k_(empty.kernel()), empty_(empty), releasing_(releasing), cluster_(cluster), at_(at) {}
  StageToken(StageToken&& o) noexcept
      : k_(std::exchange(o.k_, nullptr)),
        empty_(o.empty_),
        releasing_(o.releasing_),
        cluster_(o.cluster_),
        at_(o.at_) {}
  ~StageToken();
  /// One thread per warp and destination block arrives on the empty barrier. The warp must be converged.
  void release(Here at) &&;
  StageToken home(Kernel& k) &&;
  StageToken settle(Kernel& k, StageToken& next);
  StageToken view() const { return StageToken(empty_, releasing_, cluster_, at_); }
  void disarm() { k_ = nullptr; }

 private:
  Kernel* k_;
  Value empty_, releasing_;
  bool cluster_;
  Here at_;
};

int block_warps(const Kernel& k, Here at);

/// The barriers and cursors of a ring, without its types.
class RingCore {
 public:
  /// `consumer_warps` warps free each stage; `shared_axes` are those along which a tile is multicast.
  RingCore(Kernel& k, Stages stages, int tile_bytes, int stage_bytes, int align, int consumer_warps,
           const std::vector<Axis>& shared_axes);
  struct Stage {
    Val<u32> data;
    SharedAddress full;
  };
  /// Waits for an empty stage and announces `bytes`.
  Stage begin_fill(Here at);
  void end_fill(Here at) { advance(*fill_cursor_, at); }
  Val<u32> begin_take(Here at);  ///< waits for a full stage; its data address
  StageToken end_take(Here at);
  void skip(const Val<u32>& n, Here at);
  void check_peers(const TmaMap& m, Here at) const;

 private:
  struct Cursor {
    Value stage, parity;
  };
  Cursor make_cursor(int parity);
  void advance(Cursor& c, Here at);
  Val<u32> barrier(const Cursor& c) const;
  Kernel& k_;
  int stages_, tile_bytes_, stage_bytes_, data_ = 0, bars_ = 0;
  std::vector<Axis> axes_;
  bool cluster_ = false;
  std::optional<Value> releasing_, empty_base_;
  std::optional<Cursor> fill_cursor_, take_cursor_;
};

/// One mbarrier per member; a member's parity lives in a register of its threads.
class TurnsCore {
 public:
  TurnsCore(Kernel& k, int members, int warps_each, Here at);
  void wait(const Val<u32>& member, Here at);
  void pass(const Val<u32>& member, Here at);

 private:
  Kernel& k_;
  int members_, bars_;
  std::optional<Value> parity_;  ///< of the phase to wait for next
};

template <class M>
void shared_axis(const M& map, std::vector<Axis>& axes) {
  if (map.map().peers > 1) axes.push_back(map.map().axis);
}
}  // namespace record

template <class Release, class... Tiles>
class Ring;

/// A stage the consumer may read, and must release or hand to something that will.
template <class Release, class... Tiles>
class [[nodiscard]] Filled {
 public:
  Filled(Filled&&) = default;
  template <int I>
  const auto& get() const {
    return std::get<I>(tiles_);
  }
  /// Frees the stage after reads with ld or ldmatrix; all warps of the scope call it.
  template <class S>
  void release(S& scope, Here at = Here::now()) && {
    scope.converged("releasing a stage", at);
    record_warp_sync(scope.k, at);
    std::move(token_).release(at);
  }
  record::StageToken token() && { return std::move(token_); }

 private:
  friend class Ring<Release, Tiles...>;
  static void record_warp_sync(Kernel& k, Here at) {
    k.at(at);
    k.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
  }
  Filled(std::tuple<SmemTile<Tiles>...> t, record::StageToken token)
      : tiles_(std::move(t)), token_(std::move(token)) {}
  std::tuple<SmemTile<Tiles>...> tiles_;
  record::StageToken token_;
};

template <class Release, class... Tiles>
class Ring {
  static_assert(std::is_same_v<Release, ByThreads> || std::is_same_v<Release, ByTurns>,
                "a ring is freed ByThreads (all members of a role) or ByTurns (one member per stage)");
  static_assert(sizeof...(Tiles) > 0, "a ring carries at least one tile per stage");

 public:
  static constexpr int align = std::max({Tiles::align...});
  static constexpr int bytes = (Tiles::bytes + ...);  ///< that TMA delivers per stage
  static constexpr int stage_bytes = [] {
    int at = 0;
    ((at = (at + Tiles::align - 1) / Tiles::align * Tiles::align + Tiles::bytes), ...);
    return (at + align - 1) / align * align;
  }();

  /// `from` fills on one thread, every warp of `to` frees. Pass the maps when some are multicast.
  template <class From, class To, class... Maps>
  Ring(Kernel& k, Stages stages, const Role<From>& from, const Role<To>& to, const Maps&... maps)
      : core_(k, stages, bytes, stage_bytes, align,
              std::is_same_v<Release, ByTurns> ? To::warps : to.threads() / 32, axes(maps...)) {
    static_assert(sizeof...(Maps) == 0 || sizeof...(Maps) == sizeof...(Tiles),
                  "one map per tile of the stage, in order");
    if (from.count() != 1)
      throw BuildError(
          "a ring has one producer", stages.at,
          text::cat("the producing role has ", from.count(), " members: each would fill every stage"));
  }
  /// Without roles: any one thread of the block fills, all its warps take and free.
  template <class... Maps>
  Ring(Kernel& k, Stages stages, Cta& cta, const Maps&... maps)
      : core_(k, stages, bytes, stage_bytes, align, record::block_warps(cta.k, stages.at), axes(maps...)) {}
  Ring(const Ring&) = delete;

  /// Waits for an empty stage, announces exactly the bytes of the tiles, starts the copies, moves on.
  template <class... Maps>
  void fill(Thread& t, const TmaAt<Maps>&... from) {
    fill_at(t, t.k.here(), from...);
  }
  template <class... Maps>
  void fill_at(Thread&, Here at, const TmaAt<Maps>&... from) {
    static_assert(sizeof...(Maps) == sizeof...(Tiles), "one TMA source per tile of the ring");
    static_assert((std::is_same_v<typename Maps::tile, Tiles> && ...),
                  "a source's tile type differs from the ring's");
    (core_.check_peers(from.place.map, at), ...);
    const auto stage = core_.begin_fill(at);
    int offset = 0;
    (load<typename Maps::tile>(from.place, stage, offset, at), ...);
    core_.end_fill(at);
  }
  /// Waits for a full stage.
  template <class S>
  Filled<Release, Tiles...> take(S& scope, Here at = Here::now()) {
    scope.converged("ring.take", at);
    const Val<u32> data = core_.begin_take(at);
    int offset = 0;
    std::tuple<SmemTile<Tiles>...> tiles{next_tile<Tiles>(data, offset)...};
    return Filled<Release, Tiles...>(std::move(tiles), core_.end_take(at));
  }

  /// Passes over stages that other members take: n of them, a build-time or run-time number.
  template <class S>
  void skip(S& scope, const Val<u32>& n, Here at = Here::now()) requires std::is_same_v<Release, ByTurns> {
    scope.converged("ring.skip", at);
    core_.skip(n, at);
  }

 private:
  template <class... Maps>
  static std::vector<Axis> axes(const Maps&... maps) {
    std::vector<Axis> a;
    (record::shared_axis(maps, a), ...);
    return a;
  }
  template <class T>
  static int place(int& offset) {
    const int at = (offset + T::align - 1) / T::align * T::align;
    offset = at + T::bytes;
    return at;
  }
  template <class T>
  static SmemTile<T> next_tile(const Val<u32>& data, int& offset) {
    return SmemTile<T>(data, place<T>(offset));
  }
  template <class T>
  static void load(const record::TmaSource& from, const record::RingCore::Stage& s, int& offset, Here at) {
    record::tma_load(*from.map.k, from, {s.data, place<T>(offset)}, s.full, at);
  }
  record::RingCore core_;
};

/// The members of a role take turns, in order and round after round: pingpong kernels let one warpgroup's
/// products run while another stores. A turn ends with pass(); the first member begins.
template <class S>
class Turns {
 public:
  explicit Turns(Kernel& k, const Role<S>& role, Here at = Here::now())
      : core_(k, role.count(), S::warps, at) {}
  Turns(const Turns&) = delete;
  /// Waits until it is this member's turn.
  void wait(S& scope, Here at = Here::now()) {
    scope.converged("waiting for a turn", at);
    core_.wait(scope.index, at);
  }
  /// The next member may begin.
  void pass(S& scope, Here at = Here::now()) {
    scope.converged("passing a turn on", at);
    core_.pass(scope.index, at);
  }

 private:
  record::TurnsCore core_;
};

}  // namespace cgp::dsl
