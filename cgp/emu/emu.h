// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs PTX text without a GPU: load a Program, make a Machine (a device with memory), launch, read the
// findings and the exact counters. The emulator sees the same text a driver sees, nothing else.
// Inside: machine.h (warps, memory, how to add an instruction), decode.cpp, sched.cpp, exec_*.cpp.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/error.h"

namespace cgp::ptx {
struct Module;
}

namespace cgp::emu {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t(x) * y * z; }
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

// ---------------------------------------------------------------- options
/// What is checked while a kernel runs. Each check gives findings of the classes named beside it.
enum class Check : std::uint32_t {
  bounds = 1u << 0,     ///< oob.global oob.shared oob.local oob.const oob.param
  alignment = 1u << 1,  ///< misaligned
  uninit = 1u << 2,     ///< uninit.global uninit.shared
  race = 1u << 3,       ///< race.*
  async = 1u << 4,      ///< race.async async.register
  barrier = 1u << 5,    ///< barrier.divergence barrier.count
  sync_mask = 1u << 6,  ///< sync.mask
  deadlock = 1u << 7,   ///< deadlock
  lifetime = 1u << 8,   ///< lifetime.dsmem lifetime.global
  program = 1u << 9,    ///< trap, assert: the program itself gave up
  strict = 1u << 10,    ///< no check of its own: warnings become errors
};
inline constexpr std::uint32_t kAllChecks = (1u << 10) - 1;  ///< without strict
/// What this version performs: all of it.
inline constexpr std::uint32_t kPerformedChecks = kAllChecks | std::uint32_t(Check::strict);

class CheckSet {
 public:
  constexpr CheckSet() = default;
  constexpr CheckSet(Check c) : bits_(std::uint32_t(c)) {}
  static constexpr CheckSet all() { return from_bits(kAllChecks); }
  static constexpr CheckSet none() { return CheckSet(); }
  static constexpr CheckSet from_bits(std::uint32_t b) {
    CheckSet s;
    s.bits_ = b;
    return s;
  }
  constexpr bool has(Check c) const { return bits_ & std::uint32_t(c); }
  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr CheckSet operator|(CheckSet a, CheckSet b) { return from_bits(a.bits_ | b.bits_); }
  friend constexpr CheckSet operator-(CheckSet a, CheckSet b) { return from_bits(a.bits_ & ~b.bits_); }
  friend bool operator==(CheckSet, CheckSet) = default;

 private:
  std::uint32_t bits_ = 0;
};
/// "all", "none", or names joined by commas, each optionally with a leading '-' to take it away
/// ("all,-uninit"). "strict" makes warnings errors; alone it is all checks so. Throws ArgumentError naming the
/// closest check.
CheckSet parse_checks(std::string_view text);
std::string name(CheckSet s);

/// When asynchronous operations (cp.async, TMA, wgmma) take effect. A correct program gives the same result
/// under all of them.
enum class AsyncPolicy : std::uint8_t { eager, late, random };
/// fair: lowest PC first within a warp, round robin between warps; diverge: lanes that part never rejoin
/// except where an instruction makes them; random: warps, their time slices and diverged lanes are picked by
/// `schedule_seed`; adversarial: like diverge, lanes also part where PTX lets them, and the warps of a block
/// run last to first, each as far as it can before another gets a turn.
/// Names as text, with seeds: policy.h.
enum class SchedulePolicy : std::uint8_t { fair, diverge, random, adversarial };

struct Options {
  CheckSet checks = CheckSet::all();
  /// Host threads; 0 = as many as the machine has, and one under a policy other than eager and fair: with
  /// one worker a run is the same every time. Several workers make the same choices in each cluster, but
  /// clusters that talk through global memory then meet in an order that the host decides.
  int workers = 0;
  bool counters = true;
  /// Matrix instructions in plain f32 instead of the arithmetic of the tensor core.
  bool fast_matrix = false;
  AsyncPolicy async = AsyncPolicy::eager;
  SchedulePolicy schedule = SchedulePolicy::fair;
  std::uint64_t seed = 0;                 ///< of AsyncPolicy::random
  std::uint64_t schedule_seed = 0;        ///< of the schedule
  std::uint64_t step_limit = 1ull << 32;  ///< instructions of one warp, after which it counts as hung
  std::size_t max_findings = 64;          ///< distinct (class, instruction) pairs kept
  bool access_map = false;                ///< fill Result::accesses; needs `counters`
};

// ---------------------------------------------------------------- programs
struct ParamInfo {
  std::string name;
  std::uint32_t offset = 0, size = 0, align = 1;  ///< bytes, in Launch::params
  std::string type;                               ///< "u32", "b64", "b8" (array of bytes)
  bool is_pointer = false;                        ///< declared .ptr
};

struct EntryInfo {
  std::string name;
  std::vector<ParamInfo> params;
  std::uint32_t param_bytes = 0;    ///< size of Launch::params
  std::uint32_t static_shared = 0;  ///< bytes of .shared variables
  bool dynamic_shared = false;      ///< uses an extern .shared array
  std::uint32_t local_bytes = 0;    ///< .local variables, per thread
  std::optional<std::array<std::uint32_t, 3>> maxntid, reqntid, cluster;
  std::string unsupported;  ///< why the emulator cannot run it (instruction and PTX line); empty = it can
};

/// One PTX instruction of a program, for annotated listings.
struct InstructionInfo {
  std::string text;      ///< "add.s32 %r1, %r2, 4;"
  std::string opcode;    ///< "add.s32"
  std::string function;  ///< the .entry or .func it belongs to
  int ptx_line = 0;
  std::string file;  ///< from .loc, empty without
  int line = 0, column = 0;
};

struct ProgramImpl;  // decoded code, see machine.h

/// PTX, parsed and decoded; independent of any device, shared between machines.
class Program {
 public:
  /// Throws ParseError. An instruction the emulator does not know makes its entry's `unsupported` non-empty.
  /// `portable` takes the handlers without AVX-512, for tests and comparisons.
  static std::shared_ptr<const Program> load(std::string_view ptx_text, bool portable = false);
  const std::vector<EntryInfo>& entries() const;
  /// Throws ArgumentError with the closest names.
  const EntryInfo& entry(std::string_view name) const;
  const std::string& target() const;
  const ptx::Module& module() const;
  /// Index = position in Counters::per_pc.
  std::size_t instruction_count() const;
  InstructionInfo instruction(std::size_t index) const;

  const ProgramImpl& impl() const { return *impl_; }
  explicit Program(std::unique_ptr<ProgramImpl> impl);
  ~Program();

 private:
  std::unique_ptr<ProgramImpl> impl_;
};

// ---------------------------------------------------------------- launches and results
struct Launch {
  std::string entry;
  Dim3 grid, block, cluster{1, 1, 1};
  std::uint32_t dynamic_smem = 0;  ///< bytes
  bool cooperative = false;        ///< the whole grid must be resident
  std::span<const std::byte> params;
};

/// Only errors fail a run. Warnings are wrong by the letter of PTX, and harmless in binaries that ship; under
/// Check::strict they are errors. Notes are harmless on hardware (race.same_value).
enum class Severity : std::uint8_t { error, warning, note };
std::string_view name(Severity s);

/// The second access of a race, or whom a deadlocked warp waits for.
struct OtherParty {
  std::string access;  ///< what it does there: "writes 4 bytes"; may be empty
  std::string instruction;
  int ptx_line = 0;
  std::string file;
  int line = 0, column = 0;
  std::optional<std::uint32_t> device;  ///< as in Finding
  Dim3 block, thread;
};

struct Finding {
  std::string cls;                      ///< "oob.global", "deadlock", ... (finding_class.h, docs/findings.md)
  Severity severity = Severity::error;  ///< the class's; under Check::strict its warnings are errors
  std::string message;                  ///< one or more sentences with the numbers
  std::string access;                   ///< what `instruction` does: "reads 4 bytes"; may be empty
  std::string instruction;
  int ptx_line = 0;
  std::string file;  ///< C++ source from .loc, empty without
  int line = 0, column = 0;
  std::optional<std::uint32_t>
      device;  ///< its number in launch_together(); absent where a launch has one device
  Dim3 block{0, 0, 0}, thread{0, 0, 0};
  std::uint64_t address = 0;
  std::string buffer;            ///< nearest allocation or variable
  std::int64_t byte_offset = 0;  ///< of `address` from the start of `buffer`
  std::string hint;
  std::uint64_t count = 1;  ///< how often this class was met, at all `instructions`
  /// Instructions with the same cause: of one C++ line (of both parties), or next to each other. The first is
  /// shown.
  std::uint32_t instructions = 1;
  std::optional<OtherParty> other;
  /// With `other`: what would have ordered the two and is not there ("no barrier between them")
  std::string missing_edge;
};
/// A finding as several lines of text for a terminal.
std::string describe(const Finding& f);
/// The order of a report: errors first, what may be the cause of others before these (a race before the value that
/// was never written and the deadlock), then by line.
bool reported_before(const Finding& a, const Finding& b);

/// Counts of one instruction over all warps of the launch.
struct PcCounters {
  std::uint64_t issues = 0;                            ///< warp instructions
  std::uint64_t lanes = 0;                             ///< thread instructions: lanes whose guard was true
  std::uint64_t requests = 0, sectors = 0, bytes = 0;  ///< memory: warps that accessed it, 32-byte sectors
  std::uint64_t wavefronts = 0, conflicts = 0;  ///< shared memory passes, and those beyond one per group
  std::uint64_t divergent = 0;                  ///< branches: issues whose lanes went different ways
};

/// Exact counts; the rules are those measured on an H200 (docs/emulator.md).
struct Counters {
  std::uint64_t warp_instructions = 0, thread_instructions = 0;
  std::map<std::string, std::uint64_t> by_family, by_opcode;  ///< warp instructions; both sum to the total
  std::uint64_t global_load_requests = 0, global_load_sectors = 0, global_load_bytes = 0;
  std::uint64_t global_store_requests = 0, global_store_sectors = 0, global_store_bytes = 0;
  std::uint64_t global_atomic_requests = 0, global_atomic_sectors = 0;
  /// Of the sectors above: moved by bulk copies (and TMA), which are no requests of a warp.
  std::uint64_t global_bulk_load_sectors = 0, global_bulk_store_sectors = 0;
  std::uint64_t shared_load_requests = 0, shared_load_wavefronts = 0, shared_load_conflicts = 0;
  std::uint64_t shared_store_requests = 0, shared_store_wavefronts = 0, shared_store_conflicts = 0;
  std::uint64_t shared_atomic_requests = 0, shared_atomic_conflicts = 0;
  std::uint64_t local_load_requests = 0, local_store_requests = 0;
  std::uint64_t branches = 0, divergent_branches = 0, barriers = 0;
  /// Blocks that ended; what their warps executed in all, and those of the busiest one (waiting in loops
  /// included).
  std::uint64_t blocks = 0, block_steps = 0, busiest_block_steps = 0;
  double simt_efficiency = 0;       ///< thread / (32 * warp instructions)
  std::vector<PcCounters> per_pc;   ///< index: Program::instruction
  void add(const Counters& other);  ///< for sums over launches
};
/// Every scalar counter by name, in a fixed order (for tables and JSON).
std::vector<std::pair<std::string, std::uint64_t>> flatten(const Counters& c);

/// How often the parts of one allocation or variable were accessed, or (shared) the shared memory of a block,
/// summed over all blocks.
struct AccessMap {
  struct Cell {
    std::uint64_t reads = 0, writes = 0, atomics = 0;  ///< by threads; bulk copies count each 16 bytes
    std::uint64_t sectors = 0;                         ///< 32-byte sectors moved (global)
  };
  std::string buffer;
  std::uint64_t address = 0, bytes = 0;
  bool shared = false;
  std::uint32_t cell_bytes = 32;  ///< a power of two; at most 4096 cells
  std::vector<Cell> cells;        ///< cell i holds bytes [i, i + 1) * cell_bytes
};

struct Result {
  Counters counters;
  std::vector<Finding> findings;    ///< one a cause, in the order of reported_before
  std::vector<AccessMap> accesses;  ///< with Options::access_map, by address, what was never touched left out
  std::string output;               ///< what the kernel printed
  double seconds = 0;               ///< host time
  /// No finding is an error.
  bool clean() const;
};

// ---------------------------------------------------------------- the device
struct DeviceProperties {
  std::string arch;  ///< "sm_90a"
  int sm_count = 132, warp_size = 32, max_threads_per_block = 1024, max_warps_per_sm = 64,
      max_blocks_per_sm = 32;
  std::uint32_t shared_per_block = 48 * 1024, shared_per_block_optin = 227 * 1024, shared_per_sm = 228 * 1024;
  std::uint32_t registers_per_sm = 65536, max_cluster = 16;
};
/// Throws Unsupported for an architecture that is not modelled.
DeviceProperties device_properties(std::string_view arch);

struct Instance;  // a Program loaded into a Machine: addresses of its variables
using InstanceHandle = std::shared_ptr<const Instance>;

/// A variable of a loaded module.
struct Symbol {
  std::uint64_t address = 0, bytes = 0;
};

struct MachineImpl;

/// A device: memory, loaded modules, launches. Not for concurrent use by several threads.
class Machine {
 public:
  explicit Machine(std::string arch = "sm_90a");
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  const DeviceProperties& properties() const;

  /// `name` is what findings call the buffer. Addresses are never used twice. Contents count as never
  /// written.
  std::uint64_t alloc(std::size_t bytes, std::string name = {}, std::size_t align = 256);
  /// Throws ArgumentError unless `address` came from alloc and is live.
  void free(std::uint64_t address);
  /// Host copies; throw ArgumentError unless [address, address + size) lies inside one allocation.
  void write(std::uint64_t address, std::span<const std::byte> data);
  void read(std::uint64_t address, std::span<std::byte> data) const;
  void fill(std::uint64_t address, std::uint8_t value, std::size_t bytes);
  void copy(std::uint64_t to, std::uint64_t from, std::size_t bytes);
  void copy_from(const Machine& other, std::uint64_t to, std::uint64_t from, std::size_t bytes);
  /// Whether [address, address + bytes) lies inside one live allocation.
  bool owns(std::uint64_t address, std::size_t bytes = 1) const;
  /// Forgets that the range was written (a fresh buffer over old storage).
  void mark_uninitialised(std::uint64_t address, std::size_t bytes);
  /// Host storage of a device range, for zero-copy runtimes; nullptr if not inside one allocation.
  std::byte* host_pointer(std::uint64_t address, std::size_t bytes);

  /// Places the module's .global and .const variables and applies their initialisers.
  InstanceHandle load(std::shared_ptr<const Program> program);
  void unload(const InstanceHandle& instance);
  std::optional<Symbol> symbol(const InstanceHandle& instance, std::string_view name) const;

  /// Kernels of this device may use memory of `other` from now on; the other direction is a call of its own. Throws
  /// Unsupported where the two share a range of addresses (more than 31 machines are alive).
  void enable_peer(Machine& other);

  /// Runs to completion. Throws ArgumentError for an illegal launch, Unsupported for an entry the emulator
  /// cannot run, EmuFault when a program goes wrong in a way that the enabled checks do not report.
  Result launch(const InstanceHandle& instance, const Launch& launch, const Options& options = {});

  MachineImpl& impl() { return *impl_; }

 private:
  std::unique_ptr<MachineImpl> impl_;
};

/// One device's part of a launch on several devices: the kernel as loaded there, and its parameters.
struct DeviceLaunch {
  Machine* machine = nullptr;
  InstanceHandle instance;
  std::span<const std::byte> params;
};

/// Runs one kernel on several devices at the same time: blocks of all of them take turns, so that they may wait for
/// each other through peer memory, and one race detector sees all, with scopes (.gpu does not order devices, .sys
/// does). `launch` gives the shape for each device; its `params` are not used. Counters are sums over the devices.
/// Throws as Machine::launch, and ArgumentError unless the machines are different ones of one architecture and the
/// instances are of one Program.
Result launch_together(std::span<const DeviceLaunch> devices, const Launch& launch,
                       const Options& options = {});

}  // namespace cgp::emu
