// SPDX-License-Identifier: Apache-2.0
#pragma once
// The race detector's state: what each lane knows, the shadows of shared and global memory, the checks.
#include <shared_mutex>
#include <unordered_map>

#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/race/race.h"
#include "cgp/emu/race/race_clock.h"
#include "cgp/emu/race/race_lanes.h"
#include "cgp/emu/race/race_lines.h"

namespace cgp::emu::race {

// ---------------------------------------------------------------- parties
/// Kinds of parties: bits 14 to 16 of the id. Threads and their agents share the lower bits.
enum Kind : std::uint32_t { kThread, kCopy, kBulkRead, kBulkWrite, kSlot, kUnit };
inline std::uint32_t party(Kind k, std::uint32_t low) { return std::uint32_t(k) << 14 | low; }
inline Kind kind_of(std::uint32_t id) { return Kind(id >> 14); }
inline constexpr std::uint32_t kLowMask = (1u << 14) - 1;

enum class Level : std::uint8_t { cta, cluster, gpu, system };
inline constexpr std::size_t kLevels = 4;

/// What an instruction says about order.
struct Trait {
  bool strong = false, acquire = false, release = false, rmw = false;
  bool async = false;      ///< an asynchronous operation
  bool read_only = false;  ///< loads through the non-coherent cache
  bool cached = false;     ///< strong by its cache operator alone, which PTX calls a hint
  Level scope = Level::gpu;
};

// ---------------------------------------------------------------- what a lane knows
/// What was known at a fence: `base`, the own warp up to `synced`, the own lane up to `at`. `lanes` executed
/// it together: once they have met, each has what the others' fences covered.
struct Mark {
  Clock base;
  std::uint32_t synced = 0, at = 0;
  Mask lanes = 0;
  bool set = false;
  Mask covered(int lane, std::uint32_t met) const {
    return met >= at ? lanes | lane_bit(lane) : lane_bit(lane);
  }
};

struct View {
  Clock now, wide;         ///< wide: as if every scope were the whole system
  Mark released[kLevels];  ///< by the last fence of at least this scope
  Mark released_wide;      ///< by the last fence
  Mark proxied;            ///< by the last fence.proxy.async (base.known only)
  Clock pending[kLevels],
      pending_wide;  ///< read by relaxed operations: acquired by the next fence of the scope
  bool any_pending = false;
  /// `now` less what a relaxed read of another thread of the block told, without its fence (see Gather::release).
  std::shared_ptr<const Clock> firm;  ///< nullptr: as `now`
};
using ViewPtr = std::shared_ptr<const View>;

/// The views of a warp's lanes; one pointer while they are the same.
class Views {
 public:
  const ViewPtr& operator[](std::size_t lane) const { return each_ ? (*each_)[lane] : one_; }
  bool uniform() const { return !each_; }
  void set_all(const ViewPtr& v) {
    one_ = v;
    each_.reset();
  }
  void set(Mask lanes, Mask live, const ViewPtr& v);

 private:
  ViewPtr one_;
  std::unique_ptr<std::array<ViewPtr, kLanes>> each_;
};

struct Released {
  Clock now, wide;
};
/// Groups of asynchronous copies that the lanes waited for, as far as they were committed by `limit`;
/// `fence`: the clock of their last proxy fence.
void add_groups(Collector& to, const WarpState& s, Mask lanes, std::uint32_t fence, std::uint32_t limit);

/// What synchronising parties hand on.
class Gather {
 public:
  /// The lanes of `s` release what they know, and their own accesses up to now.
  void release(const WarpState& s, Mask lanes);
  /// The same for one arrival: a relaxed read needs its own fence, and fences are not handed on.
  void release_only(const WarpState& s, Mask lanes);
  void add(std::uint32_t warp, Mask mask, std::uint32_t clock);
  void include(const Released& r);
  /// Only what their last fences of at least `level` covered.
  void release_fenced(const WarpState& s, Mask lanes, Level level);
  /// `base`: see Collector::finish.
  ViewPtr finish(const ClusterState& c, const Bases& base = {}) const;
  Collector now, wide;  ///< wide is left empty while it would be the same as now
  bool alike = true;

 private:
  void part();
  Collector firm_;  ///< empty while it would be the same as now
  bool all_firm_ = true;
  Collector marks_[kLevels + 1];  ///< by level; of any
  bool marked_[kLevels + 1] = {};
};

/// What strong writes to a location have published, by who may see it.
struct Location {
  std::uint64_t version = 0;  ///< of what is published here, unique in the process
  Clock system, wide;
  /// By cluster * 16 + rank, by cluster, by device.
  std::array<std::vector<std::pair<std::uint64_t, Clock>>, 3> within;
};
using Locations = std::unordered_map<std::uint64_t, Location>;

/// The strong writes to one location of global memory that published what a fence covered, and who observed
/// them. Such a write stands behind its fence, so what it publishes does not include the write itself.
struct Observed {
  struct Write {
    std::uint32_t clock = 0, number = 0;
    Level scope = Level::gpu;
  };
  struct Read {
    std::uint32_t cluster = 0, id = 0, clock = 0, number = 0;
    Level scope = Level::gpu;
  };
  static constexpr std::size_t kMostReads = 32;
  std::unordered_map<std::uint64_t, Write> writes;  ///< by cluster << kIdBits | id; the last of each thread
  std::deque<Read> reads;                           ///< the last ones
  std::uint32_t count = 0;                          ///< of writes
};

// ---------------------------------------------------------------- shadows
/// Reads of one word by the lanes of one warp (or of agents): clock << 32 | lane mask, and the instruction.
struct Plane {
  std::vector<std::uint64_t> seen;  ///< empty: nothing was read but whole lines
  std::vector<std::uint32_t> inst;
  std::array<RowMark, 8>
      lines;  ///< of lines of the page that are kept as rows and whose `reads` name the group
  /// Older reads of a word by other lanes of the group, not ordered before its last. Empty: there are none.
  struct Read {
    Mask mask;
    std::uint32_t clock, inst;
  };
  std::vector<std::vector<Read>> older;
};

/// 1 KiB of shared memory in words, or bytes once something narrower than a word was accessed.
struct SharedPage {
  static constexpr std::uint32_t kBytes = 1024;
  struct Line {
    RowMark write;
    std::uint64_t reads = 0;  ///< as below
  };
  int shift = 2;
  std::uint32_t rows = 0xff;  ///< bits of the lines that `lines` describes, not the vectors
  std::uint32_t settled = 0;  ///< how often lines were
  std::array<Line, kBytes / kLineBytes> lines;
  std::vector<Stamp> write;  ///< last write
  std::vector<std::uint64_t>
      reads;  ///< since then: last clock << 34 | groups that read (bit 32: a foreign one)
  std::vector<std::unique_ptr<Plane>> planes;  ///< by group
  void settle(std::uint32_t which);            ///< these lines (bits) are in the vectors from now on
  void to_bytes();
};

/// Groups 0 to 31 are the block's own warps; further ones are made for other parties as they come.
struct SharedShadow {
  std::vector<std::unique_ptr<SharedPage>> pages;
  std::vector<std::uint32_t> foreign;  ///< warp of group 32 + i
};

/// Readers of 32 units that are neither the last nor the one before it, and that neither of these is ordered
/// behind. Beyond kMost of them the first half is kept and of the others some.
struct OlderReaders {
  struct Reader {
    RowMark mark;
    std::uint32_t units = 0;  ///< bits
  };
  static constexpr std::size_t kMost = 64;
  std::vector<Reader> list;
  std::uint32_t turn = 0;
  void add(const RowMark& mark, std::uint32_t units);
  /// Several units of one access, which may have an entry already.
  void join(const RowMark& mark, std::uint32_t units);
  /// One unit's: joins the last entry where that is of the same instruction of a warp.
  void add(std::uint32_t unit, std::uint32_t cluster, Stamp x);
};

/// 4 KiB of global memory. The last reader and one before it have places of their own.
struct GlobalPage {
  static constexpr std::uint64_t kBytes = 4096;
  struct Line {
    RowMark write, read, older;
  };
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  int shift = 2;
  bool written = false;
  std::uint32_t rows = ~0u;   ///< bits of the lines that `lines` describes, not the vectors
  std::uint32_t settled = 0;  ///< how often lines were
  std::array<Line, kBytes / kLineBytes> lines;
  std::vector<Stamp> write, read, older;
  std::vector<std::uint32_t> writer, reader, older_reader;  ///< cluster + 1
  std::vector<OlderReaders> more;                           ///< by 32 units; empty: there are none
  void settle(std::uint32_t which);                         ///< these lines are in the vectors from now on
  void to_bytes();
  OlderReaders& more_of(std::size_t unit) {
    if (more.empty()) more.resize((kBytes >> shift) / 32);
    return more[unit / 32];
  }
  bool has_more(std::uint32_t first, std::uint32_t count) const;  ///< any of these units
};

struct GlobalShadow {
  explicit GlobalShadow(std::uint64_t bytes) : pages(bytes / GlobalPage::kBytes + 1) {}
  ~GlobalShadow();
  GlobalPage& page(std::uint64_t index);
  std::vector<std::atomic<GlobalPage*>> pages;
};

// ---------------------------------------------------------------- launch, cluster, block, warp
struct LaunchState {
  cgp::emu::LaunchState* launch = nullptr;
  std::vector<Trait> traits;  ///< by instruction
  bool orders = false;    ///< some instruction releases, acquires or fences: strong accesses may synchronise
  bool parallel = true;   ///< several host threads
  bool together = false;  ///< lanes that do alike are looked at as one; portable handlers look at each
  struct Lanes {          ///< of the handler set that the program was loaded with
    decltype(&isa_portable::shared_read) shared_read = isa_portable::shared_read;
    decltype(&isa_portable::shared_write) shared_write = isa_portable::shared_write;
    decltype(&isa_portable::shared_read_at) shared_read_at = isa_portable::shared_read_at;
    decltype(&isa_portable::shared_write_at) shared_write_at = isa_portable::shared_write_at;
    decltype(&isa_portable::group_lanes) group_lanes = isa_portable::group_lanes;
    decltype(&isa_portable::apart_by) apart_by = isa_portable::apart_by;
    decltype(&isa_portable::shared_read_by) shared_read_by = isa_portable::shared_read_by;
    decltype(&isa_portable::global_read) global_read = isa_portable::global_read;
    decltype(&isa_portable::global_write) global_write = isa_portable::global_write;
  } lanes;
  bool same_device(std::uint32_t cluster, std::uint32_t other) const {
    return cluster / launch->clusters == other / launch->clusters;
  }
  std::mutex strong;  ///< strong accesses to global memory, and `locations`
  Locations locations;
  bool cached = false;  ///< some instruction is `cached`
  /// The last strong write of a thread that a warp has read while nothing ordered the two.
  struct Seen {
    Stamp write = 0;
    std::uint64_t address = 0;
    std::uint32_t by = 0;  ///< instruction that read it
  };
  std::unordered_map<std::uint64_t, std::unordered_map<std::uint64_t, Seen>> seen;  ///< by warp, writer
  std::mutex observed_mutex;  ///< of `observed`, `seen`; taken last: `strong` or a page may be locked
  std::unordered_map<std::uint64_t, Observed> observed;
  std::shared_mutex shadows_mutex;
  std::unordered_map<const Allocation*, std::unique_ptr<GlobalShadow>> shadows;
};

struct BarrierState {
  Gather gather;
  bool only_waiters = true;
  ViewPtr last;  ///< of the completed generation
  /// While whole warps arrive that know the same and have nothing but clocks to tell, these are all that is
  /// kept; `gather` stays untouched.
  ViewPtr common;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> alike;  ///< warp, clock
  bool mixed = false;
  /// What such generations made known, each for the last but one to use again when nobody has it any more.
  struct Plain {
    std::shared_ptr<View> view;
    std::shared_ptr<Knowledge> known;
    std::shared_ptr<Part> part;
    bool unused() const {
      return view && view.use_count() == 1 && known.use_count() == 3 && part.use_count() == 2;
    }
  };
  std::array<Plain, 2> plain;
  std::size_t turn = 0;
};

struct MbarrierState {
  Stamp init = 0;  ///< mbarrier.init
  std::array<std::uint32_t, 16>
      behind{};  ///< warps (bits) of each rank that are known to be ordered behind it
  Gather gather;
  ReleasedPtr last;             ///< of the completed phase
  std::uint32_t completed = 0;  ///< phases
  struct Copy {
    Warp* warp = nullptr;
    const Op* op = nullptr;
    int lane = 0;
    std::uint32_t phase = 0;
  } unseen;  ///< the last copy that completes on this barrier, until a wait covers it
};

struct CtaState {
  Cta* cta = nullptr;
  SharedShadow shadow;
  std::array<BarrierState, 16> barriers;
  std::unordered_map<std::uint32_t, MbarrierState> mbarriers;
  Locations locations;
};

/// How a warp's lanes read words that some of them share: places relative to the least, and who reads each.
struct ReadPattern {
  std::array<std::uint32_t, kLanes> apart;  ///< from lane 0's, in bytes
  std::uint32_t bytes = 0;                  ///< of a lane; 0: not used yet
  std::uint32_t least = 0, span = 0;        ///< from lane 0's to the least; bytes of all
  std::uint32_t units = 0;                  ///< 0: not words of their own or the same
  std::array<std::uint32_t, 4 * kLanes> at, by;
};

struct WarpState {
  ClusterState* cluster = nullptr;
  CtaState* cta = nullptr;
  Warp* warp = nullptr;
  std::uint32_t wid = 0;     ///< rank * 32 + warp
  std::uint32_t synced = 0;  ///< all lanes know each other up to it
  Mask touched = 0;          ///< lanes that accessed memory since `synced`
  Mask touched_part = 0;     ///< the same, since the last rendezvous of any lanes
  Views view;
  const View* base_of = nullptr;  ///< the view that `base` was taken from
  std::uint32_t base = 0;         ///< the own block is known up to it
  struct Fenced {
    ViewPtr view;
    std::uint32_t synced = 0;
    std::array<Clock, kLevels + 1> clock;
  };
  std::unique_ptr<std::array<Fenced, kLanes>> fenced;  ///< what a lane's fences cover, made into clocks
  struct Learned {
    ViewPtr view;
    std::uint64_t version = 0;
    Level scope = Level::cta;
    bool acquire = false;
  };
  std::unique_ptr<std::array<Learned, kLanes>>
      learned;  ///< what a lane's view has from the location it polls
  std::unique_ptr<std::array<std::vector<std::uint32_t>, kLanes>> groups[2];  ///< clocks of committed groups
  /// What each lane waited for of its own groups: known to it alone until it synchronises.
  std::array<std::uint32_t, kLanes> copied{}, bulk_read{}, bulk_written{};
  bool grouped = false, group_news = false;
  std::uint32_t waited(Kind k, int lane) const {
    const auto i = std::size_t(lane);
    return k == kCopy ? copied[i] : k == kBulkRead ? bulk_read[i] : k == kBulkWrite ? bulk_written[i] : 0;
  }
  std::vector<std::pair<const Allocation*, GlobalShadow*>> shadows;  ///< last used, by use
  std::unique_ptr<std::array<ReadPattern, 4>> patterns;              ///< last used, in turn
  std::uint32_t patterns_made = 0;
};

/// What lanes of a warp knew at a fence.proxy.tensormap::generic.acquire.
struct MapFence {
  std::uint64_t address = 0;
  ViewPtr view;
  std::uint32_t wid = 0, synced = 0, at = 0;
  Mask lanes = 0;
};

struct ClusterState {
  LaunchState* launch = nullptr;
  Cluster* cluster = nullptr;
  std::uint32_t index = 0, ranks = 1;  ///< index: over all devices
  std::uint32_t now = 1;
  std::vector<std::unique_ptr<CtaState>> ctas;
  std::vector<std::unique_ptr<WarpState>> warps;
  std::unordered_map<std::uint64_t, std::uint32_t> slots;  ///< mbarrier and number -> party
  std::unordered_map<std::uint64_t, std::uint32_t> slot_turn;
  std::vector<std::uint32_t> slot_thread;    ///< who issued last
  Gather gather;                             ///< barrier.cluster
  std::vector<std::uint32_t> first_arrival;  ///< by rank, 0: none
  bool all_release = true;
  ReleasedPtr last;
  struct Memo {
    ViewPtr view;
    ReleasedPtr released;
    ViewPtr result;
  };
  std::array<Memo, 8> memo;
  std::size_t next_memo = 0;
  std::vector<MapFence> map_fences;

  void tick() { now += now < kMaxClock; }
};

/// Calls f(view, lanes) for each set of lanes that share a view.
template <class F>
void for_views(const WarpState& s, Mask lanes, F&& f) {
  while (lanes) {
    const int first = std::countr_zero(lanes);
    const ViewPtr& v = s.view[std::size_t(first)];
    Mask same = lanes;
    if (!s.view.uniform()) {
      same = 0;
      for_lanes(lanes, [&](int l) {
        if (s.view[std::size_t(l)] == v) same |= lane_bit(l);
      });
    }
    f(ViewPtr(v), same);
    lanes &= ~same;
  }
}
void set_view(WarpState& s, Mask lanes, const ViewPtr& v);
/// Joins what was released into the lanes' views.
void acquire(WarpState& s, Mask lanes, const ReleasedPtr& r);
ReleasedPtr released(const Gather& g, const ClusterState& c);
/// A strong access made at `clock`: what it publishes and learns (race_location.cpp). `key` is the address.
void synchronise(WarpState& s, const Trait& t, Use use, int lane, std::uint32_t clock, Locations& at,
                 std::uint64_t key);

// ---------------------------------------------------------------- checks
/// Who accesses, for one call of access() or agent_access().
struct Accessor {
  WarpState& s;
  const Op& op;
  const Trait& trait;
  Use use;
  Mask lanes;
  std::uint32_t id_base = 0, id_step = 1;  ///< party of a lane
  bool agent = false, in_order = true;
  Proxy proxy = Proxy::generic;
  SameFn same = nullptr;
  std::byte* const* host = nullptr;
  const std::uint64_t* addr = nullptr;
  std::uint32_t bytes = 0;
  // derived
  std::uint32_t inst = 0, clock = 0, base = 0, rank = 0;
  std::uint64_t limit = 0;  ///< stamps of the own block below it are ordered before all lanes

  Accessor(WarpState& state, const Op& o, Use u, Mask l);
  std::uint32_t id(int lane) const { return id_base + id_step * std::uint32_t(lane); }
  LaneRun lane_run(int first, int shift) const {
    LaneRun p;
    p.limit = limit;
    p.rank = rank, p.warp = s.wid, p.synced = s.synced, p.clock = clock;
    p.thread = s.wid << 5, p.party = id_base, p.lane_step = id_step;
    p.first_lane = std::uint64_t(first), p.shift = std::uint64_t(shift);
    p.inst = inst;
    p.me = s.cluster->index + 1;
    return p;
  }
  Stamp stamp(int lane) const { return make_stamp(clock, id(lane), inst); }
  /// The common reasons for an access of the own cluster to be ordered, without a look at what a lane knows.
  bool quick(Stamp x, int lane) const {
    const std::uint32_t who = id_of(x);
    return (x < limit && who >> 10 == rank) || who == (s.wid << 5 | std::uint32_t(lane)) ||
           (who >> 5 == s.wid && clock_of(x) <= s.synced);
  }
};

/// Whether the access stamped `x` of `cluster` happens before what `lane` does now.
bool before(const Accessor& a, int lane, std::uint32_t cluster, Stamp x);
/// Before, and through the proxy fence that an asynchronous read (or the use of a tensor map) needs.
bool proxied(const Accessor& a, int lane, std::uint32_t cluster, Stamp x);

/// Whether `lane`, or somebody ordered before it, observed the strong write stamped `x` to a word of global
/// memory: the write itself is ordered before what follows such a read in program order.
bool observed(const Accessor& a, int lane, std::uint32_t cluster, Stamp x, std::uint64_t address);

/// Where a conflict is.
struct Spot {
  bool shared = false;
  std::uint32_t rank = 0;  ///< shared: whose memory
  std::uint64_t address = 0;
  std::uint32_t bytes = 4;
  bool tensor = false;  ///< Tensor Memory of block `rank`; the address has the lane in bits 31-16
};
/// Two conflicting accesses that are not ordered: reports them, unless both are strong or alike.
void conflict(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use,
              const Spot& spot);
/// Of another cluster, and ordered; a warning when only a relaxed read and a barrier without a fence order it.
void check_firm(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use,
                const Spot& spot);
void missing_proxy_fence(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, const Spot& spot);
/// Of Tensor Memory: ordered by threads, without the tcgen05.fence that makes it hold for their operations.
void missing_thread_fence(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use,
                          const Spot& spot, bool after);

/// Whether all lanes of a whole warp access plainly and know the same; `p` is then who they are.
bool whole_warp(Warp& w, const Op& op, RowParty& p);
/// What the loops over single words need of them.
LaneRun lane_run(const RowParty& p);
void shared_access(const Accessor& a, CtaState& owner, const std::uint32_t* offset);  ///< per lane
void shared_range(const Accessor& a, int lane, CtaState& owner, std::uint32_t offset, std::uint64_t bytes);
void global_access(const Accessor& a, const std::uint64_t* addr);
void global_range(const Accessor& a, int lane, std::uint64_t address, std::uint64_t bytes);

}  // namespace cgp::emu::race
