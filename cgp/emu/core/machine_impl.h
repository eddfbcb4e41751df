// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the emulator's own files share beyond machine.h: decoded programs, device memory, launches, workers.
#include <shared_mutex>

#include "cgp/emu/core/machine.h"

namespace cgp::emu {

// ---------------------------------------------------------------- programs
/// A word of the constant pool that is known only at launch.
struct PoolRelocation {
  enum Kind : std::uint8_t { global, shared, function } kind = global;
  std::uint8_t bits = 64;
  std::uint32_t offset = 0;  ///< of the row in the pool
  std::uint32_t target = 0;  ///< ptx::SymbolId; index into shared_vars; function index
  std::uint32_t owner = 0;   ///< function whose constants these are
  std::int64_t addend = 0;
};

struct SharedVar {
  const ptx::Var* var = nullptr;
  std::uint32_t function = ptx::kNone;  ///< kNone: module scope
  bool dynamic = false;                 ///< extern, unsized
};

struct ParamSlot {
  std::uint32_t offset = 0;  ///< entry: in Launch::params; func: in the frame's locals
  std::uint32_t bytes = 0;
  Loc reg = kNoLoc;  ///< .reg parameter of a function
  bool predicate = false;
};

/// Sources and destinations of one instruction, for the propagation of never-written data.
struct DataFlow {
  std::vector<Loc> sources, dests, addresses;
};

struct Function {
  const ptx::Function* ptx = nullptr;
  std::string name;
  std::uint32_t index = 0;
  std::uint32_t first_op = 0, op_count = 0;
  const Op* begin = nullptr;
  std::uint32_t register_bytes = 0;
  std::uint32_t local_bytes = 0, local_align = 16;
  std::vector<ParamSlot> params, returns;
  std::vector<std::uint32_t> callees, shared_vars;
  bool calls_indirectly = false;
  std::string unsupported;
  /// Aligned barriers, by op: ranges of ops that a lane only reaches past them (check_barrier.cpp).
  std::unordered_map<std::uint32_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>> skip_points;
  std::vector<Loc> register_locs;                                 ///< by ptx::RegId; kNoLoc: not used
  std::vector<bool> async_rows;                                   ///< by row (Loc / kRow32)
  std::vector<std::vector<std::uint32_t>> tables;                 ///< brx.idx targets, relative to `begin`
  std::unordered_map<ptx::SymbolId, std::uint32_t> local_offset;  ///< .local and .param variables
};

struct InstRef {
  std::uint32_t function = 0, index = 0;
};

struct ProgramImpl {
  ptx::Module module;
  bool avx512 = false;
  std::vector<Function> functions;
  std::unordered_map<ptx::SymbolId, std::uint32_t> function_of;
  std::vector<Op> ops;
  std::vector<std::uint64_t> pool;
  std::vector<PoolRelocation> relocations;
  std::vector<SharedVar> shared_vars;
  std::vector<EntryInfo> entries;
  std::vector<InstRef> insts;
  std::vector<DataFlow> flow;
  std::vector<std::shared_ptr<const void>> kept;

  const ptx::Inst& inst(std::uint32_t index) const {
    const InstRef r = insts[index];
    return functions[r.function].ptx->body[r.index];
  }
  std::string text(std::uint32_t index) const;    ///< the instruction as printed
  std::string opcode(std::uint32_t index) const;  ///< "ld.global.v4.f32"
  /// Functions that a launch of `entry` can reach, the entry first.
  std::vector<std::uint32_t> reachable(std::uint32_t entry) const;
  /// Offsets of shared_vars for an entry (kNone: not used by it); returns static bytes and where dynamic
  /// starts.
  struct SharedLayout {
    std::vector<std::uint32_t> offset;
    std::uint32_t static_bytes = 0;
    std::uint32_t dynamic_align = 1;
    bool dynamic = false;
    bool reserved = false;  ///< the code asks for %reserved_smem_offset_...
  };
  SharedLayout shared_layout(std::uint32_t entry) const;
};
std::unique_ptr<ProgramImpl> build_program(ptx::Module module, bool avx512);
bool host_has_avx512();

// ---------------------------------------------------------------- device memory
struct Allocation {
  std::uint64_t base = 0, size = 0;
  std::string name;
  bool unnamed = false;  ///< by its owner: called by the argument of the running launch that points to it
  std::atomic<bool> live{true};  ///< a kernel may free it while another block looks it up
  bool constant = false;
  std::unique_ptr<std::uint64_t[]> storage;  ///< 8-byte aligned
  std::byte* host = nullptr;
  std::unique_ptr<std::atomic<std::uint64_t>[]> init;  ///< bit per byte

  bool contains(std::uint64_t a, std::uint64_t n) const {
    return a >= base && n <= size && a - base <= size - n;
  }
  void mark(std::uint64_t offset, std::uint64_t n);
  void unmark(std::uint64_t offset, std::uint64_t n);
  bool marked(std::uint64_t offset, std::uint64_t n) const;
};

/// All allocations of a device by address; freed ones stay (without storage) so that findings can name them. Each
/// device has a range of addresses of its own. An address of a peer that is in use leads to that peer's heap.
class Heap {
 public:
  Heap();
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  std::uint64_t alloc(std::uint64_t bytes, std::string name, std::uint64_t align, bool constant = false);
  bool free(std::uint64_t address);  ///< false: no live allocation starts there
  void bury();                       ///< releases the storage of what was freed; no kernel may run
  /// Of all heaps: what was found before may be freed once it has changed.
  static std::uint64_t frees() { return frees_.load(std::memory_order_relaxed); }
  /// Addresses of `other` are found from now on. False: the two share a range of addresses.
  bool use_peer(const std::shared_ptr<Heap>& other);
  bool holds(const Allocation& a) const;  ///< of this device itself
  /// The name of the live allocation of another device, which this one does not use, around `address`; else empty.
  std::string name_elsewhere(std::uint64_t address) const;
  /// The allocation with the greatest base <= address, live or not; nullptr if none.
  Allocation* at_or_below(std::uint64_t address);
  Allocation* find(std::uint64_t address, std::uint64_t bytes);  ///< live and containing the range
  /// The live allocation whose nearest end is closest.
  Allocation* nearest(std::uint64_t address);

  void free_all();  ///< the device goes, peers may still name its memory

 private:
  Heap* owner(std::uint64_t address);  ///< this heap or the peer's; nullptr: nobody's that is in use
  std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Allocation>> all_;  ///< ascending base
  std::vector<Allocation*> graves_;               ///< freed, storage still there
  std::vector<std::shared_ptr<Heap>> peers_;      ///< changed while no kernel runs
  static inline std::atomic<std::uint64_t> frees_{0};
  std::uint64_t range_ = 0;
  std::uint64_t next_ = kGlobalBase;
};

struct Instance {
  std::shared_ptr<const Program> program;
  std::unordered_map<ptx::SymbolId, Symbol> symbols;
  mutable bool loaded = true;
};

struct MachineImpl {
  DeviceProperties properties;
  std::shared_ptr<Heap> heap = std::make_shared<Heap>();
  std::uint64_t launches = 0;
};

// ---------------------------------------------------------------- launches
/// Where never-written data came from.
struct TaintOrigin {
  const Op* op = nullptr;
  std::uint64_t address = 0;
  std::string buffer;
  std::int64_t byte_offset = 0;
  bool shared = false, tensor = false;  ///< shared memory, Tensor Memory; else global
};

/// What the workers know about blocks that only poll (check_spin.cpp).
struct SpinBoard {
  enum Level : std::uint8_t { moving, stuck, stuck_twice, without_blocks };
  std::mutex mutex;
  std::vector<Level> level;             ///< by worker
  std::atomic<bool> clock_read{false};  ///< a warp that does nothing else reads the clock
  int skips = 0;                        ///< how often time was skipped in a row
};

/// One device's part of a launch.
struct DevicePart {
  MachineImpl* machine = nullptr;
  const Instance* instance = nullptr;
  std::vector<std::byte> params;
  std::vector<std::vector<std::uint64_t>> pools;  ///< constant pool per cluster rank
  std::atomic<std::uint64_t> next_cluster{0}, resident{0};
  std::once_flag workspace_once;
  std::uint64_t workspace = 0;  ///< of cooperative groups' grid barrier: size, state
};

struct LaunchState {
  explicit LaunchState(std::size_t count) : devices(count) {}
  std::deque<DevicePart> devices;  ///< of one architecture
  const DeviceProperties* properties = nullptr;
  const ProgramImpl* program = nullptr;
  const Function* entry = nullptr;
  Launch launch;
  Options options;
  ProgramImpl::SharedLayout layout;
  std::uint32_t dynamic_offset = 0, shared_bytes = 0;
  std::vector<std::string> shared_names;
  Dim3 cluster_grid;
  std::uint64_t clusters = 0;  ///< of each device
  std::uint32_t warps_per_cta = 0;
  std::uint64_t resident_limit = 0;  ///< clusters of a device
  std::atomic<bool> stop{false};
  SpinBoard spin;
  std::atomic<std::uint64_t> skipped{0};  ///< time skipped while all blocks only polled (check_spin.cpp)
  std::atomic<std::uint64_t> timer{0};    ///< newest value of %globaltimer, one for all blocks
  std::mutex mutex;                       ///< findings, output, fault
  std::vector<Finding> findings;
  std::map<std::pair<std::uint32_t, std::string>, std::size_t> finding_of;  ///< (instruction, class) -> index
  std::shared_ptr<race::LaunchState> race;                                  ///< nullptr without Check::race
  std::string output;
  std::exception_ptr fault;
  /// System memory behind the kernel's own, part of shared_bytes: cooperative groups keep their barriers of
  /// large tiles there.
  static constexpr std::uint32_t kReservedShared = 1024;
  std::uint32_t reserved_offset = 0, reserved_bytes = 0;

  /// The number of a device in findings: absent where there is only one.
  std::optional<std::uint32_t> device_number(std::uint32_t device) const {
    return devices.size() > 1 ? std::optional(device) : std::nullopt;
  }
  /// "'x'", with " of device 1" where there are several.
  std::string buffer_text(const Allocation& a) const;
};

/// A range of global memory that an instruction used last: almost always the next use is in it too.
struct CachedRange {
  std::uint64_t base = 1, size = 0;
  std::byte* host = nullptr;
  Allocation* allocation = nullptr;
};

class AccessRecorder;

/// Executions of consecutive operations by the same lanes, noted where they begin and (negative) behind their
/// end: the sums from the first operation on are the counts of each.
struct RunEdge {
  std::uint64_t issues = 0, lanes = 0;
};

/// Loads and stores of an instruction by whole warps that need one pass of shared memory for each word of a
/// lane; in global memory with their sectors.
struct RowCount {
  std::uint64_t rows = 0, sectors = 0;
};

struct Worker {
  Worker();
  ~Worker();
  /// Memory is that of this device from now on.
  void enter(std::uint32_t device);
  LaunchState* launch = nullptr;
  Heap* heap = nullptr;  ///< of the device whose blocks run
  std::vector<PcCounters> pc;
  std::vector<RunEdge> runs;       ///< by operation, with one more: issues and lanes that `pc` lacks
  std::vector<RowCount> rows;      ///< by instruction: what `pc` and `totals` lack
  std::vector<CachedRange> cache;  ///< by instruction
  std::deque<std::unique_ptr<Cluster>> resident;
  std::vector<TaintOrigin> origins;
  std::vector<std::unique_ptr<std::byte[]>> spare_shared;
  Counters totals;                           ///< memory counts; the rest is summed from pc
  std::unique_ptr<AccessRecorder> accesses;  ///< with Options::access_map
  std::uint64_t random = 0;
  std::uint64_t index = 0;
  std::uint32_t device = 0;                 ///< that `heap` is of
  std::uint32_t next_device = 0;            ///< where the next cluster is looked for
  std::uint64_t frees = 0;                  ///< Heap::frees() when the cache was valid
  std::uint64_t polls = 0;                  ///< strong accesses, atomics and sleeps executed
  std::uint64_t turns = 0, next_probe = 0;  ///< slices run; the one after which spinning is looked for
};

// sched.cpp
/// Runs `w` until it parks, ends or has executed `budget` instructions. Returns how many it executed.
std::uint64_t run_warp(Warp& w, std::uint64_t budget);
/// Makes the best fragment the running one, merging equal ones. False: nothing runnable.
bool reschedule(Warp& w);
bool runnable(Warp& w);
/// Sends the lanes of the running fragment apart: `taken` to `target`, the others to w.pc.
void branch(Warp& w, const Op& op, const Op* target, Mask taken);
void end_fragment(Warp& w, Mask lanes);  ///< lanes exit
/// Starts `callee`; the frame's locals hold room for its parameters.
Frame* push_frame(Warp& w, const Function& callee, const Op* return_to, const Op* call);
void pop_frame(Warp& w, Frame* frame);
void grow_local(Warp& w, std::uint32_t bytes);
/// For the schedules that part lanes where PTX lets them: the lowest lane goes on alone, the others stand at
/// `op` and execute it later. False: nothing to part.
bool part_lanes(Warp& w, const Op& op);
std::unique_ptr<Cta> make_cta(LaunchState& launch, Worker& worker, Cluster& cluster, std::uint32_t rank);
void run_launch(LaunchState& launch, Worker& worker);

// exec_barrier.cpp
bool barrier_complete(const Cta& cta, const NamedBarrier& b);
/// After lanes exited: barriers that wait for "all threads" may be complete.
void release_barriers(Cta& cta);

// memory.cpp
void mark_unwritten(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes);
/// The same where a never-written value is stored to shared memory; `origin` is the value's.
void store_unwritten(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes, std::uint32_t origin);
/// The origin of the value that was stored to shared memory at `addr`; none: nothing was.
std::optional<std::uint32_t> stored_origin(Warp& w, Where where, std::uint64_t addr);
/// The same for offset `at` of a block's memory; what `op` reads there where nothing was stored.
std::uint32_t shared_origin(Warp& w, const Op& op, const Cta& cta, std::uint32_t at);
bool is_written(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes);

// checks
void propagate_taint(Warp& w, const Op& op);
void propagate_guard(Warp& w, const Op& op);
/// `origin`: an index into Worker::origins, unless `op` itself is where the value comes from.
void taint_loaded(Warp& w, const Op& op, Loc dest, Mask lanes, std::optional<std::uint32_t> origin = {});
/// The lanes of `dest` that hold never-written data from now on are `lanes` and, with `keep`, those that did before.
void taint_result(Warp& w, const Op& op, Loc dest, Mask lanes, bool keep, std::uint32_t origin);
std::uint32_t taint_origin(const Warp& w, Loc l);  ///< of a register that taint_of() is not 0 for
/// A bulk or tensor store moves bytes of shared memory that were never written to global memory.
void report_stored(Warp& w, const Op& op, int lane, const Cta& cta, std::uint32_t at);
void report_taint(Warp& w, const Op& op, Loc source, Mask lanes, std::string_view use);
/// The same for memory that an instruction reads and keeps to itself (red): reported at once.
void report_origin(Warp& w, const Op& op, Mask lanes, std::string_view use);
/// Fills Function::skip_points; op_at: index of each instruction's first op, and of the end.
void find_skip_points(Function& f, const std::vector<std::uint32_t>& op_at);
/// For the running fragment, while `waiting` waits at an aligned instruction of the same frame: fails if it
/// has gone past a barrier; else the next op at which to look again (nullptr: none).
const Op* next_skip_point(Warp& w, const Fragment& waiting);
/// Watched warps, after a jump: whether the warp is certain to repeat itself, or has changed something.
bool note_jump(Warp& w);
/// Reports a deadlock when every resident block of the launch only polls memory that nobody changes.
void check_spinning(Worker& worker);
/// Whether the worker's blocks were found to poll only, and nobody has changed anything since.
bool seen_stuck(const Worker& worker);
/// A worker got or finished a block (moving), or has none (without_blocks).
void note_blocks(Worker& worker, SpinBoard::Level level);
bool give_up_soft_waits(Cluster& c);
/// Watched warps: sets Warp::changed when a store changes memory.
void note_changes(Warp& w, int count, int bytes, int cell, const Loc* rows, std::byte* const* to, Mask lanes);
/// Watched warps: what they read.
inline void note_poll(Warp& w, const Op& op, std::uint64_t address) {
  if (!w.suspect) return;
  w.spin.polled = &op;
  w.spin.polled_address = address;
}
Mask taint_of(const Warp& w, Loc l);
std::string describe_wait(const Warp& w, const Fragment& f);
void report_deadlock(Cluster& cluster, std::string_view what);
/// Findings of one cause become one; in the order of a report.
void sum_up(LaunchState& launch);
/// "PTX line 12", and the C++ line where there is one: "PTX line 12, kernel.cu:7".
std::string line_text(const ProgramImpl& p, std::uint32_t inst);
/// "'flags' + 12" or "shared memory + 64": what an address of `where` lies in.
std::string place_of(const Warp& w, Where where, std::uint64_t address);
/// The name of the register in row `l` of a function.
std::string register_name(const Function& f, Loc l);
OtherParty other_party(const Warp& w, const Op& op, Mask lanes);
Finding make_finding(const Warp& w, std::string_view cls, const Op& op, Mask lanes, std::string message);
/// The second party of a finding, at instruction `inst`.
OtherParty make_other(const LaunchState& launch, std::uint32_t inst, std::uint32_t device, const Dim3& block,
                      const Dim3& thread);
/// `key` tells findings of one class at one instruction apart.
void add_finding(LaunchState& launch, const Op& op, Finding f, std::string_view key = {});
/// The shared variable at `offset` of a block, and how far inside it is.
std::string shared_variable(const LaunchState& launch, std::uint32_t offset, std::int64_t* inside);

// counters.cpp
void count_all(Worker& worker);  ///< moves what `runs` and `rows` hold to `pc` and `totals`
Counters collect(const LaunchState& launch, const std::vector<std::unique_ptr<Worker>>& workers);

// access_map.cpp
std::vector<AccessMap> collect_accesses(const LaunchState& launch,
                                        const std::vector<std::unique_ptr<Worker>>& workers);

}  // namespace cgp::emu
