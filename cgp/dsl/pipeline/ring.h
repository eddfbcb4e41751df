// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ring: stages of tiles in shared memory between one TMA producer and consumer warps. It owns the full and
// empty mbarriers; stage, parity, byte and arrival counts are derived; its cursors live on across loops.
//   Ring<ByThreads, TileA, TileB> ring(k, stages, load, math);         roles say who arrives
//   Ring<ByThreads, TileA, TileB> ring(k, stages, load, math, a, b);   with the maps, when one is multicast
//   load.one_thread([&](Thread& t) { ... ring.fill(t, at(a, m, k), at(b, n, k)); });
//   auto stage = ring.take(wg);   a Filled: read it, then hand it to wgmma or umma, or release it
// A stage that is taken and never released is a BuildError at the line of its take.
#include <algorithm>
#include <optional>

#include "cgp/dsl/pipeline/tma.h"

namespace cgp::dsl {

/// Who frees a stage: every member of the consuming role, one arrival per warp.
struct ByThreads {};
/// Each stage is taken and freed by one member of the consuming role, the others skip() it.
struct ByTurns {};
/// The tensor core of sm_100: the commit of the products that read the stage. One thread takes it.
struct ByUmma {};
/// The same for a pair of blocks: each loads its half, the leader multiplies and frees both halves.
struct ByUmmaPair {};
template <class R>
inline constexpr bool is_by_umma = std::is_same_v<R, ByUmma> || std::is_same_v<R, ByUmmaPair>;

/// A number of stages and the line it was written on.
struct Stages {
  int count;
  Here at;
  /// The producer's first warp initialises the barriers and goes on at once; only the consumers wait for
  /// that. (Else the whole block does, which also orders what it wrote before.) Not in clusters.
  bool by_producer = false;
  Stages(int n, Here at = Here::now()) : count(n), at(at) {}  // NOLINT: implicit by design
  static Stages started_by_producer(int n, Here at = Here::now()) {
    Stages s(n, at);
    s.by_producer = true;
    return s;
  }
};

class PairLeader;  // tmem.h

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

/// The same for a stage that the tensor core reads: freed by tcgen05.commit.
class CommitToken {
 public:
  CommitToken(const Value& empty, std::optional<Value> mask, bool pair, Here at)
      : k_(empty.kernel()), empty_(empty), mask_(std::move(mask)), pair_(pair), at_(at) {}
  CommitToken(CommitToken&& o) noexcept
      : k_(std::exchange(o.k_, nullptr)), empty_(o.empty_), mask_(o.mask_), pair_(o.pair_), at_(o.at_) {}
  ~CommitToken();
  /// The empty barriers (of every block in the mask) hear when this thread's products so far are done.
  void commit(Here at) &&;

 private:
  Kernel* k_;
  Value empty_;
  std::optional<Value> mask_;
  bool pair_;
  Here at_;
};
/// tcgen05.commit: one arrival on `bar`, here or (mask) at the same place in other blocks of the cluster.
void umma_commit(Kernel& k, const SharedAddress& bar, const std::optional<Value>& mask, bool pair, Here at);
void umma_fence_after(Kernel& k, Here at);   ///< tcgen05.fence::after_thread_sync
void umma_fence_before(Kernel& k, Here at);  ///< tcgen05.fence::before_thread_sync

int block_warps(const Kernel& k, Here at);

/// Which stage is next and the parity of its phase, in registers of their own.
class PhaseCursor {
 public:
  /// `parity` 1 waits for nothing in the first round: a fresh barrier counts as "phase 1 completed".
  PhaseCursor(Kernel& k, int stages, int parity);
  const Value& parity() const { return parity_; }
  Val<u32> stage() const { return Val<u32>(stage_); }
  void advance(Here at);
  void skip(const Val<u32>& n, Here at);

 private:
  Kernel& k_;
  int stages_;
  Value stage_, parity_;
};

/// Who frees a stage.
struct RingRules {
  int arrivals;                                       ///< of each block that shares the stage
  bool commit = false;                                ///< by tcgen05.commit
  bool pair = false;                                  ///< ... of the pair's leader
  int first_filler = 0, first_taker = 0, takers = 0;  ///< warps, for Stages::by_producer
};

/// The barriers and cursors of a ring, without its types.
class RingCore {
 public:
  /// `shared_axes` are those along which a tile is multicast.
  RingCore(Kernel& k, Stages stages, int tile_bytes, int stage_bytes, int align, RingRules rules,
           const std::vector<Axis>& shared_axes);
  struct Stage {
    Val<u32> data;
    SharedAddress full;
  };
  /// Waits for an empty stage and announces its bytes: a whole stage, or (not of a pair) as many as given.
  Stage begin_fill(Here at, int bytes = 0);
  void end_fill(Here at) { fill_cursor_->advance(at); }
  Val<u32> begin_take(Here at);  ///< waits for a full stage; its data address
  StageToken end_take(Here at);
  CommitToken end_take_commit(Here at);
  void skip(const Val<u32>& n, Here at) { take_cursor_->skip(n, at); }
  void check_peers(const TmaMap& m, Here at) const;
  int data() const { return data_; }  ///< offset of the stages in shared memory

 private:
  int count_targets(Here at) const;
  void release_by_lanes(int targets);
  void release_by_commit();
  void init_barriers(int targets, Here at);
  void init_by_producer(Here at);
  void init_each(int targets, Here at);
  Val<u32> barrier(const PhaseCursor& c) const;
  Kernel& k_;
  RingRules rules_;
  int stages_, tile_bytes_, stage_bytes_, data_ = 0, bars_ = 0;
  std::vector<Axis> axes_;
  bool cluster_ = false;
  std::optional<Value> releasing_, empty_base_, commit_mask_, leads_, leader_full_;
  std::optional<PhaseCursor> fill_cursor_, take_cursor_;
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
template <class TileT>
class WarpRing;  // warp_ring.h

/// A stage the consumer may read, and must release or hand to something that will.
template <class Release, class... Tiles>
class [[nodiscard]] Filled {
  using Token = std::conditional_t<is_by_umma<Release>, record::CommitToken, record::StageToken>;

 public:
  Filled(Filled&&) = default;
  template <int I>
  const auto& get() const {
    return std::get<I>(tiles_);
  }
  /// Frees the stage after reads with ld or ldmatrix; all warps of the scope call it.
  template <class S>
      void release(S& scope, Here at = Here::now()) && requires(!is_by_umma<Release>) {
    scope.converged("releasing a stage", at);
    record_warp_sync(scope.k, at);
    std::move(token_).release(at);
  }
  Token token() && { return std::move(token_); }

 private:
  friend class Ring<Release, Tiles...>;
  template <class TileT>
  friend class WarpRing;
  static void record_warp_sync(Kernel& k, Here at) {
    k.at(at);
    k.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
  }
  Filled(std::tuple<SmemTile<Tiles>...> t, Token token) : tiles_(std::move(t)), token_(std::move(token)) {}
  std::tuple<SmemTile<Tiles>...> tiles_;
  Token token_;
};

template <class Release, class... Tiles>
class Ring {
  static_assert(
      std::is_same_v<Release, ByThreads> || std::is_same_v<Release, ByTurns> || is_by_umma<Release>,
      "a ring is freed ByThreads (all members of a role), ByTurns (one member per stage), ByUmma or "
      "ByUmmaPair (the tensor core)");
  static constexpr bool by_umma = is_by_umma<Release>, pair = std::is_same_v<Release, ByUmmaPair>;
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
              by_umma
                  ? record::RingRules{1, true, pair}
                  : record::RingRules{std::is_same_v<Release, ByTurns> ? To::warps : to.threads() / 32, false,
                                      false, from.first_warp(), to.first_warp(), to.threads() / 32},
              axes(maps...)) {
    static_assert(sizeof...(Maps) == 0 || sizeof...(Maps) == sizeof...(Tiles),
                  "one map per tile of the stage, in order");
    if (from.count() != 1)
      throw BuildError(
          "a ring has one producer", stages.at,
          text::cat("the producing role has ", from.count(), " members: each would fill every stage"));
  }
  /// Without roles: any one thread of the block fills, all its warps (ByUmma: one thread) take and free.
  template <class... Maps>
  Ring(Kernel& k, Stages stages, Cta& cta, const Maps&... maps)
      : core_(k, stages, bytes, stage_bytes, align,
              by_umma ? record::RingRules{1, true, pair}
                      : record::RingRules{record::block_warps(cta.k, stages.at)},
              axes(maps...)) {}
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
    static_assert(
        !by_umma || std::is_same_v<S, std::conditional_t<pair, PairLeader, Thread>>,
        "a ring that umma frees is taken by the one thread that issues umma (of a pair: PairLeader)");
    scope.converged("ring.take", at);
    const Val<u32> data = core_.begin_take(at);
    int offset = 0;
    std::tuple<SmemTile<Tiles>...> tiles{next_tile<Tiles>(data, offset)...};
    if constexpr (by_umma)
      return Filled<Release, Tiles...>(std::move(tiles), core_.end_take_commit(at));
    else
      return Filled<Release, Tiles...>(std::move(tiles), core_.end_take(at));
  }

  /// The memory of the stages, stages * stage_bytes, for something else once every fill has been taken and
  /// freed.
  template <class U>
  Ptr<mod::shared, U> storage(Kernel& k, Here at = Here::now()) const {
    return Ptr<mod::shared, U>(Val<u32>(k.smem_addr(0, at)), core_.data());
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
    record::tma_load(*from.map.k, from, {s.data, place<T>(offset)}, s.full, at, pair);
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
