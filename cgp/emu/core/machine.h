// SPDX-License-Identifier: Apache-2.0
#pragma once
// The machine inside: decoded operations, warps and their fragments, register rows, memory access, parking.
//
// HOW TO ADD AN INSTRUCTION FAMILY (one pair of functions per opcode, in exec_<family>.cpp):
//   1. decode:  void decode_x(Decoder& d, const ptx::Inst& i, Op& op)   runs once per PTX instruction.
//      It turns operands into Locs (rows of the register file) and stores them in op, picks op.fn, and calls
//      d.unsupported("...") for every modifier or type it does not execute. Larger descriptions go into a
//      struct made by d.keep(...), reached by op.data_as<T>().
//   2. execute: void exec_x(Warp& w, const Op& op)   runs once per warp instruction for the lanes in w.active
//      (never 0). Rows hold all 32 lanes; write only lanes in w.active. On entry w.pc is op + 1 (or the next
//      instruction); only control flow changes it.
//   3. register: table.set(ptx::Op::x, decode_x) in the family's add_<family>(Table&), called in decode.cpp.
// WAITING. An instruction that cannot complete now calls one of these and returns at once; the machine runs
// something else and executes the same instruction again later:
//   w.converge(op)  .aligned: true once all live lanes of the warp are here;  if (!w.converge(op)) return;
//   w.meet(...)     .sync with a lane mask: true once all lanes of the mask are at such an instruction
//   w.wait(...)     until a condition polled by the scheduler holds (mbarrier phase, group, cluster barrier);
//                   w.wait_past(...) is for operations that take effect on arrival and must not run twice
//   Set op.flags |= kSplits at decode for instructions that may wait, so that a guard splits the fragment.
// MEMORY. Never touch memory but through resolve()/resolve_one(): they translate, check and mark.
// ASYNC. Objects derived from AsyncOp are given to Cluster::async; the policy decides when read() and
// complete() run. Registers that an asynchronous instruction reads or writes later: async_rows.h. Family
// state per warp, CTA or cluster lives in the `state` slots (see state_of).
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "cgp/emu/emu.h"
#include "cgp/ptx/module.h"

namespace cgp::emu {

inline constexpr int kLanes = 32;
using Mask = std::uint32_t;

struct Op;
struct Warp;
struct Cta;
struct Cluster;
struct Worker;
struct LaunchState;
struct Function;
namespace race {  // race.h
struct LaunchState;
struct ClusterState;
struct CtaState;
struct WarpState;
}  // namespace race
using Handler = void (*)(Warp&, const Op&);

// ---------------------------------------------------------------- register rows
/// Where an operand lives: a byte offset into the frame, or (bit 0 set) into the constant pool. Bit 1 of a
/// predicate's Loc means "negated". Registers up to 32 bits have 32 cells of 4 bytes (128-byte row), 64-bit
/// ones cells of 8 bytes (256-byte row), 128-bit ones two 64-bit rows: low halves, then high halves at +256.
/// 8- and 16-bit values sit in the low bits of a 32-bit cell; bits above them are not significant on reading
/// and are written as the zero or sign extension. A predicate is one 4-byte lane mask.
using Loc = std::int32_t;
inline constexpr Loc kNoLoc = -4;
inline constexpr Loc kConstant = 1, kNegated = 2;
inline constexpr int kRow32 = 128, kRow64 = 256;

/// Address windows of the generic space. The low 32 bits of a shared address are cluster rank << 24 | offset:
/// .shared::cta addresses are valid .shared::cluster addresses, as on sm_90.
inline constexpr std::uint64_t kGlobalBase = 0x0000'0010'0000'0000ull;
inline constexpr std::uint64_t kSharedWindow = 0x0000'7e00'0000'0000ull;
inline constexpr std::uint64_t kLocalWindow = 0x0000'7e01'0000'0000ull;
inline constexpr std::uint64_t kParamWindow = 0x0000'7e02'0000'0000ull;
inline constexpr std::uint64_t kCodeWindow = 0x0000'7e03'0000'0000ull;
inline constexpr int kRankShift = 24;

/// The state space an instruction names.
enum class Where : std::uint8_t {
  generic,
  global,
  shared,
  shared_cluster,
  local,
  constant,
  param_entry,
  param_func
};
std::string_view name(Where w);

/// An address operand: row of the base (constant row for symbols and absolute addresses) plus bytes.
struct Address {
  Loc base = kNoLoc;
  bool base32 = false;   ///< the row has 32-bit cells
  bool uniform = false;  ///< a constant row: the same address in all lanes
  bool frame_local =
      false;  ///< a .local or function .param variable: add the frame's local_base (no base row)
  std::int64_t offset = 0;
};

// ---------------------------------------------------------------- decoded operations
enum OpFlags : std::uint16_t {
  kSplits = 1,  ///< may wait or leave: lanes whose guard is false go on first
  kBase32 = 2,  ///< address base in op.a has 32-bit cells
  kUniformAddress = 4,
  kFrameLocal = 8,
  kMicro = 16,           ///< helper before an instruction; not counted
  kBranch = 32,          ///< executes for all lanes of the fragment, reads its guard itself
  kVolatile = 64,        ///< strong access: relaxed, acquire, release, volatile, mmio
  kAsyncRow = 1 << 8,    ///< touches a register that asynchronous instructions use (async_rows.h)
  kAsyncOwner = 1 << 9,  ///< is such an instruction: it keeps its own books
  kGuarded = 1 << 10,    ///< the machine applies its guard
  kLast = 1 << 11        ///< first bit free for families
};

struct alignas(64) Op {
  Handler fn = nullptr;
  Loc d = kNoLoc, a = kNoLoc, b = kNoLoc, c = kNoLoc, e = kNoLoc, f = kNoLoc;
  Loc guard = kNoLoc;
  std::uint32_t inst = 0;      ///< Program::instruction index
  std::int64_t imm = 0;        ///< address offset, branch displacement, ...
  const void* data = nullptr;  ///< kept by the program, see Decoder::keep; branches: the target Op
  std::uint8_t bytes = 0, vec = 1;
  Where where = Where::generic;
  std::uint8_t kind = 0;  ///< free for families
  std::uint16_t flags = 0;
  std::uint16_t small = 0;  ///< free for families

  template <class T>
  const T& data_as() const {
    return *static_cast<const T*>(data);
  }
};

class Decoder;
using DecodeFn = void (*)(Decoder&, const ptx::Inst&, Op&);

/// Opcode -> decoder. Opcodes without one are listed with a reason in unsupported.def.
class Table {
 public:
  void set(ptx::Op op, DecodeFn fn) { fn_[std::size_t(op)] = fn; }
  DecodeFn get(ptx::Op op) const { return fn_[std::size_t(op)]; }

 private:
  std::array<DecodeFn, std::size_t(ptx::Op::kCount)> fn_{};
};
const Table& decode_table();
/// The reason unsupported.def gives; empty when the opcode is executed.
std::string_view unsupported_reason(ptx::Op op);

/// Turns one instruction's operands into rows. All functions throw through unsupported() on what they cannot
/// take.
class Decoder {
 public:
  /// A source of `type`: register, immediate (converted), special register, symbol address. .pred: use
  /// pred().
  Loc source(const ptx::Operand& o, ptx::Mod type);
  /// A destination of `type`; the sink _ gives a scratch row.
  Loc dest(const ptx::Operand& o, ptx::Mod type);
  Loc pred(const ptx::Operand& o);              ///< predicate source, !p allowed
  Loc pred_dest(const ptx::Operand& o);         ///< predicate destination, sink allowed
  Loc constant(std::uint64_t value, int bits);  ///< row of 32 equal cells (bits <= 32: 4-byte cells)
  /// Elements of a vector operand (or the operand itself as the only one).
  std::vector<Loc> sources(const ptx::Operand& o, ptx::Mod type);
  std::vector<Loc> dests(const ptx::Operand& o, ptx::Mod type);
  Address address(const ptx::Operand& o);
  /// Copies an address into op.a, op.imm and the address flags.
  void set_address(const ptx::Operand& o, Op& op);
  /// Bits of the cells of an operand's register (32, 64, 128); 0 when it is not a register.
  int cell_bits(const ptx::Operand& o) const;
  /// State space named by the modifiers (.global, .shared::cluster ...), generic if none.
  Where where(const ptx::Inst& i) const;
  /// The i-th operand; throws if absent.
  const ptx::Operand& operand(const ptx::Inst& i, std::size_t n) const;
  std::uint64_t immediate(const ptx::Operand& o);  ///< throws unless an integer literal
  [[noreturn]] void unsupported(const std::string& what);
  template <class T>
  const T* keep(T value) {
    auto p = std::make_shared<const T>(std::move(value));
    keep_alive(p);
    return p.get();
  }
  /// Adds an operation that runs before the one being decoded (special registers as operands do).
  void prelude(Op op);
  Loc scratch(int bits);  ///< a row nothing else uses
  /// The rows of the instruction being decoded that it reads or writes after its issue (async_rows.h).
  void async_rows(const std::vector<Loc>& rows);
  std::uint32_t frame_offset(ptx::SymbolId s) const;
  /// Records a call (kNone: through a register); the callee's function index, kNone when it has no body.
  std::uint32_t note_call(ptx::SymbolId s);
  bool is_frame_local(ptx::SymbolId s) const;  ///< a .local variable, or .param of a call

  const ptx::Module& module() const { return *module_; }
  const ptx::Function& function() const { return *function_; }
  bool avx512() const { return avx512_; }

 private:
  friend class ProgramBuilder;
  void keep_alive(std::shared_ptr<const void> p);
  class ProgramBuilder* builder_ = nullptr;
  const ptx::Module* module_ = nullptr;
  const ptx::Function* function_ = nullptr;
  const ptx::Inst* inst_ = nullptr;
  bool avx512_ = false;
};

// The other families are declared in families.h.
void add_tensor_families(Table& t);  ///< tensor.cpp: matrix, asynchronous copies, mbarrier, wgmma, clusters

// ---------------------------------------------------------------- fragments and frames
struct AsyncRows;
/// Registers and locals of one call of a function, shared by the lanes that made the call from the same place
/// and have not returned: lanes that come later join the others.
struct Frame {
  const Function* function = nullptr;
  std::byte* registers = nullptr;
  Frame* caller = nullptr;
  const Op* return_to = nullptr;
  const Op* call = nullptr;
  Mask lanes = 0;  ///< lanes that have not returned
  std::uint32_t depth = 0;
  std::uint32_t local_base = 0;                   ///< start of this call's locals in each lane's stack
  std::array<std::uint32_t, kLanes> local_top{};  ///< end of each lane's, moved by alloca
  std::unique_ptr<std::byte[]> storage;
  std::vector<Mask> taint;  ///< per 4 bytes of the register block: lanes holding never-written data
  std::shared_ptr<AsyncRows> async_rows;  ///< made by the first asynchronous instruction with registers
};

enum class State : std::uint8_t { runnable, converge, meet, wait };
struct Fragment;
using ReadyFn = bool (*)(Warp&, const Fragment&);
using DescribeFn = std::string (*)(const Warp&, const Fragment&);

/// Lanes of a warp with one program counter.
struct Fragment {
  const Op* pc = nullptr;
  const Op* at = nullptr;  ///< the operation a parked fragment waits at
  Frame* frame = nullptr;
  Mask lanes = 0;
  State state = State::runnable;
  /// The wait may be given up (try_wait): resumed with Warp::timed_out when nothing else runs.
  bool soft = false;
  std::uint32_t penalty = 0;  ///< grows with backward branches taken while others wait
  Mask meet_mask = 0;
  std::uint32_t meet_kind = 0;
  ReadyFn ready = nullptr;
  DescribeFn describe = nullptr;
  std::uint64_t key = 0;  ///< free for ready/describe: barrier id, mbarrier address, ...
  std::uint64_t extra = 0;
};

/// Lanes that take part in one warp-wide exchange, possibly from different instructions.
struct Meeting {
  struct Part {
    const Op* op;
    std::byte* registers;
    Mask lanes;
  };
  std::array<Part, kLanes> part;
  int parts = 0;
  Mask lanes = 0;  ///< union
};

/// Looks for a cycle in the states of a watched warp at its jumps (check_spin.cpp).
struct SpinWatch {
  std::uint64_t reference = 0, seen = 0, renew_at = 1;
  int repeats = 0;
  Mask ran = 0;            ///< lanes that ran since the reference was taken
  std::uint64_t time = 0;  ///< what the clocks show: they stand still while the warp is watched
  bool read_clock = false;
  const Op* polled = nullptr;  ///< the last load or atomic
  std::uint64_t polled_address = 0;
  bool cyclic = false;  ///< certain: the warp repeats itself until memory changes
};

struct Warp {
  // hot
  std::byte* base[2] = {nullptr, nullptr};  ///< [0] registers of the running frame, [1] constant pool
  Mask active = 0;                          ///< lanes this instruction executes for
  Mask lanes = 0;                           ///< lanes of the running fragment
  const Op* pc = nullptr;
  const Op* limit = nullptr;  ///< reaching it means: look at the other fragments
  Frame* frame = nullptr;
  Cta* cta = nullptr;
  Worker* worker = nullptr;
  std::uint32_t checks = 0;  ///< Check bits
  bool taint = false;        ///< some register of this warp holds never-written data
  bool timed_out = false;    ///< the instruction is resumed from a soft wait that was given up
  /// idle: the warp's only fragment waits for what cannot have happened yet.
  enum Event : std::uint8_t { none, jumped, parked, ended, idle };
  Event event = none;       ///< set by handlers that move, park or end the running fragment
  bool suspect = false;     ///< long without progress: memory changes are watched
  bool changed = false;     ///< with suspect: something observable changed
  SpinWatch spin;           ///< with suspect: whether the warp comes back to a state it was in
  Mask live = 0;            ///< lanes that have not exited
  Mask carry = 0;           ///< CC.CF of each lane
  Mask unwritten = 0;       ///< lanes for which resolve() met never-written bytes; the reader clears it
  std::uint64_t steps = 0;  ///< warp instructions so far
  std::uint64_t slept = 0;  ///< time passed in nanosleep

  race::WarpState* race = nullptr;  ///< nullptr: races are not looked for
  std::uint32_t index = 0;          ///< in the CTA
  std::uint32_t patience = 0;
  std::vector<Fragment> others;  ///< all fragments but the running one
  std::vector<std::unique_ptr<Frame>> frames, spare_frames;
  std::unique_ptr<std::byte[]> local;  ///< lane l's stack starts at l * local_stride
  std::uint32_t local_stride = 0;
  std::unordered_map<std::uint32_t, std::shared_ptr<void>> state;      ///< see state_of
  std::map<std::pair<const Frame*, Loc>, std::uint32_t> taint_origin;  ///< index into Worker::origins
  struct ThreadIds {
    std::array<std::uint32_t, kLanes> x, y, z;
  } tid;

  // ---- rows. Cells of inactive lanes may be read, never written.
  template <class T>
  T* row(Loc l) const {
    return reinterpret_cast<T*>(base[l & 1] + (l & ~3));
  }
  Mask pred(Loc l) const {
    Mask m;
    std::memcpy(&m, base[l & 1] + (l & ~3), 4);
    return l & kNegated ? ~m : m;
  }
  void set_pred(Loc l, Mask value, Mask lanes) const {
    Mask* p = reinterpret_cast<Mask*>(base[0] + (l & ~3));
    *p = (*p & ~lanes) | (value & lanes);
  }
  /// Lane addresses of an address operand, before any window is applied.
  void addresses(const Address& a, std::uint64_t out[kLanes]) const;
  void addresses(const Op& op, std::uint64_t out[kLanes]) const;  ///< of set_address

  // ---- waiting (see the top of this file)
  bool converge(const Op& op) {
    if (active != live) return converge_slow(op);
    if (race) note_rendezvous(live);
    return true;
  }
  void note_rendezvous(Mask together);  ///< for the race detector
  /// `kind` keeps different operations apart (shfl meets shfl); lanes outside `members` are a sync.mask
  /// finding.
  bool meet(const Op& op, Mask members, std::uint32_t kind, Meeting& m);
  /// Parks the running fragment at `op` until ready() is true. `key` and `extra` reach ready and describe.
  void wait(const Op& op, ReadyFn ready, DescribeFn describe, std::uint64_t key = 0, std::uint64_t extra = 0,
            bool soft = false);
  /// The same, but when ready() is true the fragment goes on behind `op`, which is not executed again: for
  /// operations that take effect on arrival. ready() may write results (into f.frame->registers).
  void wait_past(const Op& op, ReadyFn ready, DescribeFn describe, std::uint64_t key = 0,
                 std::uint64_t extra = 0);
  bool converge_slow(const Op& op);

  // ---- reporting
  /// Records a finding at `op` for the lowest lane of `lanes`. With the check off nothing happens.
  void report(Check check, std::string_view cls, const Op& op, Mask lanes, std::string message,
              std::string hint = {}, std::uint64_t address = 0, std::string buffer = {},
              std::int64_t byte_offset = 0);
  /// The same, then stops the whole launch (the program cannot go on: divergent barrier, trap, deadlock).
  void fail(Check check, std::string_view cls, const Op& op, Mask lanes, std::string message,
            std::string hint = {});
  Dim3 thread(int lane) const {
    return {tid.x[std::size_t(lane)], tid.y[std::size_t(lane)], tid.z[std::size_t(lane)]};
  }
};

// ---------------------------------------------------------------- blocks and clusters
struct NamedBarrier {
  std::uint32_t arrived = 0;   ///< threads, in multiples of 32 for .aligned forms
  std::uint32_t expected = 0;  ///< of this generation; 0 = none waits
  std::uint64_t generation = 0;
  bool red_and = true, red_or = false;
  std::uint32_t red_popc = 0;
  bool last_and = true, last_or = false;  ///< results of the previous generation
  std::uint32_t last_popc = 0;
  int mode = -1;  ///< sync, arrive or red: what the generation's first arrival used
  const Op* first = nullptr;
  std::uint32_t warps = 0;  ///< that arrived in this generation
};

struct Cta {
  Cluster* cluster = nullptr;
  std::uint32_t rank = 0;  ///< in the cluster
  Dim3 id;                 ///< %ctaid
  std::uint64_t linear = 0;
  std::uint32_t shared_bytes = 0;  ///< static + dynamic
  std::unique_ptr<std::byte[]> shared;
  std::vector<std::uint64_t> shared_init;  ///< one bit per byte; empty without the check
  /// Where never-written values that were stored to shared memory came from, by word: index into Worker::origins.
  std::unordered_map<std::uint32_t, std::uint32_t> shared_origin;
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<NamedBarrier, 16> barriers;
  std::uint32_t threads = 0, exited = 0;
  bool done = false;
  race::CtaState* race = nullptr;
  std::unordered_map<std::uint32_t, std::shared_ptr<void>> state;

  std::uint32_t shared_base() const { return rank << kRankShift; }
};

/// An asynchronous operation between issue and completion. Constructed at issue with everything it needs
/// (host pointers from resolve_one). read() samples its memory sources, complete() writes the destination and
/// signals (mbarrier complete_tx, group retirement); each runs exactly once, in this order.
struct AsyncOp {
  virtual ~AsyncOp() = default;
  virtual void read() {}
  virtual void complete() = 0;
  /// Called at issue when the operation is delayed: fills the destination with junk (see poison_bytes), so
  /// that a program that does not wait computes something visibly wrong.
  virtual void poison() {}
  bool was_read = false;
  std::uint64_t group = 0;                     ///< free for the family: what a wait names
  std::uint64_t read_at = 0, complete_at = 0;  ///< AsyncQueue's time, under AsyncPolicy::random
};

/// eager: an operation reads and completes at issue. late: both happen when a wait forces it or nothing else
/// can run, and of several the newest goes first. random: both happen at times of their own after the issue.
class AsyncQueue {
 public:
  /// eager: read() and complete() before this returns; otherwise poison() and queued.
  void submit(std::unique_ptr<AsyncOp> op);
  bool pending() const { return !queue_.empty(); }
  /// Completes every queued operation for which `covers` is true (a wait that forces them).
  void force(const std::function<bool(const AsyncOp&)>& covers);
  /// Only read()s them (cp.async.bulk.wait_group.read).
  void force_read(const std::function<bool(const AsyncOp&)>& covers);
  /// Completes one operation chosen by the policy; false if none is pending. Called when nothing else can
  /// run.
  bool advance();
  /// One pass over the warps has ended. random: operations whose time has come read and complete.
  void tick();
  std::uint64_t draw();  ///< a random number, reproducible for the cluster
  AsyncPolicy policy = AsyncPolicy::eager;
  std::uint64_t random = 0;

 private:
  std::unique_ptr<AsyncOp> take(std::size_t index);
  void tick_due();  ///< what is due now reads and completes
  std::deque<std::unique_ptr<AsyncOp>> queue_;
  std::uint64_t now_ = 0;
};
/// Junk for the destination of an operation in flight.
inline void poison_bytes(std::byte* to, std::size_t bytes) { std::memset(to, 0xa5, bytes); }

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;  ///< by rank
  Dim3 id, shape;
  std::uint32_t device = 0;  ///< of the launch
  AsyncQueue async;
  std::unordered_map<std::uint32_t, std::shared_ptr<void>> state;
  Worker* worker = nullptr;
  std::uint64_t random = 0;                  ///< of the schedule
  std::shared_ptr<race::ClusterState> race;  ///< owns what its blocks and warps point to
  std::uint64_t slices = 0;
  bool polled = false;   ///< the last pass did little else
  int async_rounds = 0;  ///< passes since an operation was last made to complete
  int soft_rounds = 0;   ///< times all waits that may be given up were, without progress
};

std::uint64_t draw(Cluster& c);  ///< a random number for the schedule
/// What %clock and %globaltimer show: instructions executed, time slept, and time skipped because everybody
/// only waits for time to pass.
std::uint64_t clock_of(Warp& w);

/// A family's own state in a warp, CTA or cluster: made on first use. `slot` is any number the family owns
/// (use the ptx::Family value).
template <class T, class Owner>
T& state_of(Owner& owner, std::uint32_t slot) {
  std::shared_ptr<void>& p = owner.state[slot];
  if (!p) p = std::make_shared<T>();
  return *static_cast<T*>(p.get());
}

// ---------------------------------------------------------------- memory
enum class Access : std::uint8_t { read, write, atomic, async_read, async_write, address_only };

/// Translates `addr` (as the instruction sees it, in `where`) for the lanes in `lanes`, checks bounds and
/// alignment (natural, `bytes`; or `align` if given), marks writes as initialised and notes reads of
/// never-written bytes. Returns the lanes that may proceed; out[lane] is their host storage, `bytes` long.
Mask resolve(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes,
             Access access, Mask lanes, std::byte** out, std::uint32_t align = 0);
/// One address on behalf of `lane`; any size (bulk copies). nullptr after a finding.
std::byte* resolve_one(Warp& w, const Op& op, Where where, std::uint64_t addr, std::uint64_t bytes,
                       Access access, int lane, std::uint32_t align = 1);
/// Marks bytes as written for owners that complete later than they resolved (Access::async_write does not).
void mark_written(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes);
/// The CTA of this warp's cluster that a shared address names, or nullptr.
Cta* shared_owner(const Warp& w, std::uint32_t shared_address);
/// What a generic address points into (generic, when into nothing).
Where classify(const Warp& w, std::uint64_t generic_address);

// ---------------------------------------------------------------- counting
enum class SharedKind : std::uint8_t {
  load,
  store,
  atomic,
  matrix,
  matrix_store
};  ///< matrix: ldmatrix rows
/// Counts one warp access to shared memory: `offset` in bytes within the CTA, per lane in `lanes`.
void count_shared(Warp& w, const Op& op, SharedKind kind, std::uint32_t bytes, const std::uint32_t* offset,
                  Mask lanes);
enum class GlobalKind : std::uint8_t { load, store, atomic };
void count_global(Warp& w, const Op& op, GlobalKind kind, std::uint32_t bytes, const std::uint64_t* addr,
                  Mask lanes);
/// Wavefronts and conflicts of one access by the measured rules (no side effects; also for tests and tools).
struct SharedCost {
  std::uint32_t wavefronts = 0, conflicts = 0;
};
SharedCost shared_cost(SharedKind kind, std::uint32_t bytes, const std::uint32_t* offset, Mask lanes);
std::uint32_t sectors(std::uint32_t bytes, const std::uint64_t* addr, Mask lanes);

/// Emulator fault that ends a launch; used inside, turned into EmuFault or a finding.
struct StopLaunch {};

// ---------------------------------------------------------------- small helpers for handlers
template <class F>
inline void for_lanes(Mask m, F&& f) {
  while (m) {
    f(std::countr_zero(m));
    m &= m - 1;
  }
}
inline Mask lane_bit(int lane) { return Mask(1) << lane; }
inline std::uint32_t lane_count(Mask m) { return m == ~Mask(0) ? kLanes : std::uint32_t(std::popcount(m)); }

}  // namespace cgp::emu
