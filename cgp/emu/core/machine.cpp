// SPDX-License-Identifier: Apache-2.0
// The device: memory calls, loading modules, checking and starting launches.
#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "cgp/base/text.h"
#include "cgp/emu/core/access_map_impl.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {

using text::cat;
using text::hex;

DeviceProperties device_properties(std::string_view arch) {
  struct Row {
    std::string_view digits;
    int sms, warps, blocks;
    std::uint32_t optin, per_sm, cluster;
  };
  // CUDA C Programming Guide, "Technical Specifications per Compute Capability".
  constexpr Row rows[] = {{"75", 40, 32, 16, 64, 64, 1},      {"80", 108, 64, 32, 163, 164, 1},
                          {"86", 84, 48, 16, 99, 100, 1},     {"87", 16, 48, 16, 163, 164, 1},
                          {"89", 128, 48, 24, 99, 100, 1},    {"90", 132, 64, 32, 227, 228, 16},
                          {"100", 148, 64, 32, 227, 228, 16}, {"103", 148, 64, 32, 227, 228, 16},
                          {"120", 170, 48, 24, 99, 100, 8},   {"121", 48, 48, 24, 99, 100, 8}};
  std::string_view digits = arch;
  if (digits.substr(0, 3) == "sm_") digits.remove_prefix(3);
  while (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) digits.remove_suffix(1);
  for (const Row& r : rows)
    if (r.digits == digits) {
      DeviceProperties p;
      p.arch = cat(arch.substr(0, 3) == "sm_" ? "" : "sm_", arch);
      p.sm_count = r.sms;
      p.max_warps_per_sm = r.warps;
      p.max_blocks_per_sm = r.blocks;
      p.shared_per_block_optin = r.optin * 1024;
      p.shared_per_sm = r.per_sm * 1024;
      p.max_cluster = r.cluster;
      return p;
    }
  throw Unsupported(ErrorText{cat("the emulator models no device '", arch, "'"),
                              {},
                              {},
                              "use sm_75 sm_80 sm_86 sm_87 sm_89 sm_90a sm_100a sm_103a sm_120a or sm_121a"});
}

namespace {
/// By bit of Check.
const std::vector<std::string>& check_names() {
  static const std::vector<std::string> names{"bounds",   "alignment", "uninit",    "race",
                                              "async",    "barrier",   "sync_mask", "deadlock",
                                              "lifetime", "program",   "strict"};
  return names;
}
}  // namespace

CheckSet parse_checks(std::string_view text) {
  const auto& names = check_names();
  CheckSet s;
  const auto complete = [](CheckSet x) { return x == CheckSet(Check::strict) ? x | CheckSet::all() : x; };
  for (std::string_view word : text::split(text, ',')) {
    word = text::trim(word);
    const bool minus = !word.empty() && word[0] == '-';
    if (minus) word.remove_prefix(1);
    CheckSet x;
    if (word == "all") {
      x = CheckSet::all();
    } else if (word != "none" && !word.empty()) {
      const auto it = std::find(names.begin(), names.end(), word);
      if (it == names.end()) {
        const auto near = text::closest(word, names);
        throw ArgumentError(ErrorText{cat("there is no check '", word, "'"),
                                      {},
                                      {},
                                      near.empty() ? cat("checks: all, none, ", text::join(names, ", "))
                                                   : cat("did you mean ", text::join(near, ", "), "?")});
      }
      x = CheckSet::from_bits(1u << (it - names.begin()));
    }
    s = minus ? complete(s) - x : s | x;
  }
  return complete(s);
}

std::string name(CheckSet s) {
  if (s == CheckSet::all()) return "all";
  if (s == (CheckSet::all() | Check::strict)) return "strict";
  if (s.empty()) return "none";
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < check_names().size(); ++i)
    if (s.bits() >> i & 1) parts.push_back(check_names()[i]);
  return text::join(parts, ",");
}

// ---------------------------------------------------------------- memory
Machine::Machine(std::string arch) : impl_(std::make_unique<MachineImpl>()) {
  impl_->properties = device_properties(arch);
}
Machine::~Machine() { impl_->heap->free_all(); }
const DeviceProperties& Machine::properties() const { return impl_->properties; }

std::uint64_t Machine::alloc(std::size_t bytes, std::string name, std::size_t align) {
  if (!align || (align & (align - 1)))
    throw ArgumentError(cat("an allocation's alignment must be a power of two, not ", align));
  return impl_->heap->alloc(bytes, std::move(name), align);
}

void Machine::free(std::uint64_t address) {
  if (!impl_->heap->free(address))
    throw ArgumentError(
        ErrorText{cat("free of ", hex(address), ": no live allocation starts there"), {}, {}, {}});
  impl_->heap->bury();
}

namespace {
Allocation& range(MachineImpl& m, std::uint64_t address, std::uint64_t bytes, std::string_view what) {
  Allocation* a = m.heap->find(address, bytes);
  if (a) return *a;
  Allocation* near = m.heap->nearest(address);
  throw ArgumentError(
      ErrorText{cat(what, " of ", bytes, " bytes at ", hex(address), " must lie inside one allocation"),
                {},
                near ? cat("the nearest is '", near->name, "' at ", hex(near->base), ", ", near->size,
                           " bytes", near->live ? "" : ", already freed")
                     : std::string("there are none"),
                {}});
}
}  // namespace

void Machine::write(std::uint64_t address, std::span<const std::byte> data) {
  if (data.empty()) return;
  Allocation& a = range(*impl_, address, data.size(), "write");
  std::memcpy(a.host + (address - a.base), data.data(), data.size());
  a.mark(address - a.base, data.size());
}

void Machine::read(std::uint64_t address, std::span<std::byte> data) const {
  if (data.empty()) return;
  const Allocation& a = range(*impl_, address, data.size(), "read");
  std::memcpy(data.data(), a.host + (address - a.base), data.size());
}

void Machine::fill(std::uint64_t address, std::uint8_t value, std::size_t bytes) {
  if (!bytes) return;
  Allocation& a = range(*impl_, address, bytes, "fill");
  std::memset(a.host + (address - a.base), value, bytes);
  a.mark(address - a.base, bytes);
}

void Machine::copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  copy_from(*this, to, from, bytes);
}

void Machine::copy_from(const Machine& other, std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  if (!bytes) return;
  Allocation& a = range(*impl_, to, bytes, "copy to");
  const Allocation& b = range(*other.impl_, from, bytes, "copy from");
  std::memmove(a.host + (to - a.base), b.host + (from - b.base), bytes);
  // Never-written bytes stay never written.
  for (std::size_t i = 0; i < bytes; ++i) {
    const bool known = b.marked(from - b.base + i, 1);
    if (known)
      a.mark(to - a.base + i, 1);
    else
      a.unmark(to - a.base + i, 1);
  }
}

bool Machine::owns(std::uint64_t address, std::size_t bytes) const {
  return impl_->heap->find(address, bytes);
}

void Machine::mark_uninitialised(std::uint64_t address, std::size_t bytes) {
  if (!bytes) return;
  Allocation& a = range(*impl_, address, bytes, "mark");
  a.unmark(address - a.base, bytes);
}

std::byte* Machine::host_pointer(std::uint64_t address, std::size_t bytes) {
  Allocation* a = impl_->heap->find(address, bytes);
  return a ? a->host + (address - a->base) : nullptr;
}

// ---------------------------------------------------------------- modules
namespace {
void apply_relocations(MachineImpl& m, const ProgramImpl& p, Instance& instance, const ptx::Var& v) {
  const Symbol& s = instance.symbols[v.name];
  Allocation* a = m.heap->find(s.address, s.bytes);
  for (const ptx::Relocation& r : v.relocs) {
    std::uint64_t value = 0;
    if (auto it = instance.symbols.find(r.symbol); it != instance.symbols.end())
      value = it->second.address;
    else if (auto f = p.function_of.find(r.symbol); f != p.function_of.end())
      value = kCodeWindow + (std::uint64_t(f->second) << 4);
    else
      throw Unsupported(cat("the initialiser of '", p.module.text(v.name), "' needs the address of '",
                            p.module.text(r.symbol), "', which this module does not define"));
    value += std::uint64_t(r.addend);
    if (r.mask != ~0ull && r.mask) value = (value & r.mask) >> std::countr_zero(r.mask);
    std::memcpy(a->host + r.offset, &value, std::size_t(r.bytes));
  }
}
}  // namespace

InstanceHandle Machine::load(std::shared_ptr<const Program> program) {
  auto instance = std::make_shared<Instance>();
  const ProgramImpl& p = program->impl();
  instance->program = std::move(program);
  auto place = [&](const ptx::Var& v) {
    if ((v.space != ptx::Space::global && v.space != ptx::Space::constant) ||
        v.linkage == ptx::Linkage::external)
      return;
    const std::uint64_t bytes = std::max<std::uint64_t>(v.bytes(), v.init.size());
    Symbol s{0, bytes};
    try {
      s.address = impl_->heap->alloc(bytes, p.module.text(v.name), std::max(256u, v.alignment()),
                                     v.space == ptx::Space::constant);
    } catch (const std::bad_alloc&) {
      throw Unsupported(ErrorText{"this machine's memory must hold the module's variables",
                                  p.module.text(v.name),
                                  cat("it has ", bytes, " bytes"),
                                  {}});
    }
    Allocation* a = impl_->heap->find(s.address, bytes);
    if (!v.init.empty()) std::memcpy(a->host, v.init.data(), v.init.size());
    a->mark(0, bytes);  // variables without initialiser start as zero
    instance->symbols[v.name] = s;
  };
  for (const ptx::Var& v : p.module.vars) place(v);
  for (const Function& f : p.functions)
    for (const ptx::Var& v : f.ptx->vars) place(v);
  for (const ptx::Var& v : p.module.vars)
    if (!v.relocs.empty()) apply_relocations(*impl_, p, *instance, v);
  return instance;
}

void Machine::unload(const InstanceHandle& instance) {
  for (const auto& [name, s] : instance->symbols) impl_->heap->free(s.address);
  instance->loaded = false;
}

std::optional<Symbol> Machine::symbol(const InstanceHandle& instance, std::string_view name) const {
  const ptx::Module& m = instance->program->module();
  for (const auto& [id, s] : instance->symbols)
    if (m.text(id) == name) return s;
  return std::nullopt;
}

// ---------------------------------------------------------------- launches
namespace {
std::string shape(const Dim3& d) { return cat(d.x, "x", d.y, "x", d.z); }

[[noreturn]] void illegal(const Launch& l, std::string rule, std::string why, std::string hint = {}) {
  throw ArgumentError(ErrorText{
      std::move(rule), cat("launch of '", l.entry, "', grid ", shape(l.grid), ", block ", shape(l.block)),
      std::move(why), std::move(hint)});
}

void check_launch(const DeviceProperties& d, const EntryInfo& e, const Launch& l, std::size_t param_bytes,
                  std::uint32_t shared) {
  if (!l.grid.count() || !l.block.count()) illegal(l, "grid and block dimensions must not be zero", {});
  if (l.block.count() > std::uint64_t(d.max_threads_per_block) || l.block.z > 64)
    illegal(l, cat("a block has at most ", d.max_threads_per_block, " threads"),
            cat("it has ", l.block.count()));
  if (l.grid.y > 65535 || l.grid.z > 65535) illegal(l, "grid.y and grid.z are at most 65535", {});
  auto three = [](const std::array<std::uint32_t, 3>& a) { return Dim3{a[0], a[1], a[2]}; };
  if (e.reqntid && three(*e.reqntid) != l.block)
    illegal(l, "the kernel's .reqntid fixes the block shape", cat("it must be ", shape(three(*e.reqntid))));
  if (e.maxntid && three(*e.maxntid).count() < l.block.count())
    illegal(l, "the kernel's .maxntid limits the block",
            cat("at most ", three(*e.maxntid).count(), " threads"));
  if (e.cluster && three(*e.cluster) != l.cluster)
    illegal(l, "the kernel's .reqnctapercluster fixes the cluster shape",
            cat("it must be ", shape(three(*e.cluster)), ", not ", shape(l.cluster)));
  if (!l.cluster.count() || l.grid.x % l.cluster.x || l.grid.y % l.cluster.y || l.grid.z % l.cluster.z)
    illegal(l, "the grid must be a multiple of the cluster", cat("the cluster is ", shape(l.cluster)));
  if (l.cluster.count() > d.max_cluster)
    illegal(l, cat("a cluster has at most ", d.max_cluster, " blocks on ", d.arch),
            cat("it has ", l.cluster.count()));
  if (shared > d.shared_per_block_optin)
    illegal(l, cat("a block has at most ", d.shared_per_block_optin, " bytes of shared memory on ", d.arch),
            cat(e.static_shared, " static and ", l.dynamic_smem, " dynamic bytes were asked for"));
  if (param_bytes < e.param_bytes)
    illegal(l, "the parameter bytes must cover all parameters",
            cat("got ", param_bytes, " bytes, the kernel has ", e.param_bytes));
}

// One constant pool per cluster rank, because a shared variable's address contains the rank.
void make_pools(const LaunchState& s, DevicePart& device) {
  const ProgramImpl& p = *s.program;
  for (std::uint32_t rank = 0; rank < s.launch.cluster.count(); ++rank) {
    // 64-byte alignment of rows is not required for correctness; vectors of 64-bit words give 16.
    std::vector<std::uint64_t> pool = p.pool;
    if (pool.empty()) pool.resize(16);
    for (const PoolRelocation& r : p.relocations) {
      std::uint64_t v = 0;
      if (r.kind == PoolRelocation::function) {
        v = kCodeWindow + (std::uint64_t(r.target) << 4);
      } else if (r.kind == PoolRelocation::shared) {
        const std::uint32_t at = s.layout.offset[r.target];
        v = (at == ptx::kNone ? 0 : at) | (rank << kRankShift);
      } else {
        v = device.instance->symbols.at(r.target).address;
      }
      v += std::uint64_t(r.addend);
      if (r.bits == 32) v = (v & 0xffffffffu) | v << 32;
      std::fill_n(pool.begin() + r.offset / 8, std::size_t(r.bits) * kLanes / 64, v);
    }
    device.pools.push_back(std::move(pool));
  }
}

// Buffers that nobody named are called by the arguments that point into them.
void name_buffers(const DevicePart& device, const std::vector<ParamInfo>& all) {
  for (std::size_t n = all.size(); n-- > 0;) {
    if (all[n].size != 8 || all[n].offset + 8 > device.params.size()) continue;
    std::uint64_t address = 0;
    std::memcpy(&address, device.params.data() + all[n].offset, 8);
    Allocation* a = device.machine->heap->at_or_below(address);
    if (!a || !a->unnamed || !a->contains(address, 1)) continue;
    // nvcc and the language number their parameters.
    const std::string& name = all[n].name;
    const bool numbered = name == cat("p", n) || name.find("_param_") != name.npos;
    a->name = cat("argument ", n, numbered ? "" : cat(" (", name, ")"));
  }
}

void set_residency(LaunchState& s) {
  const DeviceProperties& d = *s.properties;
  const std::uint32_t shared = std::max(1024u, s.shared_bytes - s.reserved_bytes + 1024);
  const std::uint64_t by_warps = std::uint64_t(d.max_warps_per_sm) / s.warps_per_cta;
  const std::uint64_t per_sm = std::max<std::uint64_t>(
      1, std::min({std::uint64_t(d.max_blocks_per_sm), by_warps, std::uint64_t(d.shared_per_sm / shared)}));
  s.resident_limit =
      std::max<std::uint64_t>(1, per_sm * std::uint64_t(d.sm_count) / s.launch.cluster.count());
  if (s.launch.cooperative && s.clusters > s.resident_limit)
    illegal(s.launch, "a cooperative grid must be resident as a whole",
            cat("at most ", s.resident_limit * s.launch.cluster.count(), " blocks of this kernel fit on ",
                d.arch));
}
}  // namespace

void Machine::enable_peer(Machine& other) {
  if (!impl_->heap->use_peer(other.impl_->heap))
    throw Unsupported({"peers need ranges of addresses of their own",
                       {},
                       &other == this ? "the peer is the device itself" : "more than 31 devices are open",
                       {}});
}

Result Machine::launch(const InstanceHandle& instance, const Launch& launch, const Options& options) {
  const DeviceLaunch one{this, instance, launch.params};
  return launch_together(std::span(&one, 1), launch, options);
}

namespace {
void check_devices(std::span<const DeviceLaunch> devices) {
  if (devices.empty()) throw ArgumentError("a launch needs a device");
  for (const DeviceLaunch& d : devices)
    if (!d.machine || !d.instance || !d.instance->loaded)
      throw ArgumentError("a launch needs a loaded program instance");
  const DeviceLaunch& first = devices[0];
  for (std::size_t i = 1; i < devices.size(); ++i) {
    const DeviceLaunch& d = devices[i];
    const auto refuse = [&](std::string rule, std::string why) {
      throw ArgumentError(
          {std::move(rule), cat("device ", i, " of a launch on ", devices.size()), std::move(why), {}});
    };
    for (std::size_t j = 0; j < i; ++j)
      if (devices[j].machine == d.machine)
        refuse("a launch on several devices names each once", cat("it is device ", j, " too"));
    const std::string &arch = d.machine->properties().arch, &wanted = first.machine->properties().arch;
    if (arch != wanted)
      refuse("a launch on several devices needs one architecture",
             cat("it is ", arch, ", device 0 is ", wanted));
    if (d.instance->program != first.instance->program)
      refuse("devices run one program together", "it has another than device 0");
  }
}
}  // namespace

Result launch_together(std::span<const DeviceLaunch> devices, const Launch& launch, const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  check_devices(devices);
  const Program& program = *devices[0].instance->program;
  const EntryInfo& entry = program.entry(launch.entry);
  if (!entry.unsupported.empty()) throw Unsupported(entry.unsupported);
  LaunchState s(devices.size());
  s.properties = &devices[0].machine->properties();
  s.program = &program.impl();
  for (const Function& f : s.program->functions)
    if (f.ptx->entry && f.name == launch.entry) s.entry = &f;
  s.launch = launch;
  s.options = options;
  s.layout = s.program->shared_layout(s.entry->index);
  s.dynamic_offset = s.layout.static_bytes;
  s.shared_bytes = s.layout.static_bytes + launch.dynamic_smem;
  for (const DeviceLaunch& d : devices)
    check_launch(*s.properties, entry, launch, d.params.size(), s.shared_bytes);
  if (s.layout.reserved) {
    s.reserved_offset = (s.shared_bytes + 127) & ~127u;
    s.reserved_bytes = LaunchState::kReservedShared;
    s.shared_bytes = s.reserved_offset + s.reserved_bytes;
  }
  s.cluster_grid = {launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                    launch.grid.z / launch.cluster.z};
  s.clusters = s.cluster_grid.count();
  s.warps_per_cta = std::uint32_t((launch.block.count() + kLanes - 1) / kLanes);
  set_residency(s);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    DevicePart& d = s.devices[i];
    d.machine = &devices[i].machine->impl();
    d.instance = devices[i].instance.get();
    d.params.assign(devices[i].params.begin(), devices[i].params.end());
    make_pools(s, d);
    name_buffers(d, entry.params);
    ++d.machine->launches;
  }

  const std::uint64_t hardware = std::max(1u, std::thread::hardware_concurrency());
  const bool as_usual = options.async == AsyncPolicy::eager && options.schedule == SchedulePolicy::fair;
  const std::uint64_t wanted =
      options.workers > 0 ? std::uint64_t(options.workers) : (as_usual ? hardware : 1);
  const std::uint64_t count =
      std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(1, s.clusters * devices.size()));
  if (options.checks.has(Check::race)) s.race = race::make_launch(s, count > 1);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto w = std::make_unique<Worker>();
    w->launch = &s;
    w->index = i;
    w->next_device = std::uint32_t(i % devices.size());
    w->random = options.schedule_seed + i + 1;
    w->pc.resize(s.program->insts.size() + 1);
    w->rows.resize(s.program->insts.size() + 1);
    w->runs.resize(s.program->ops.size() + 1);
    w->cache.resize(s.program->insts.size() + 1);
    if (options.access_map && options.counters) w->accesses = std::make_unique<AccessRecorder>(s);
    workers.push_back(std::move(w));
  }
  s.spin.level.assign(std::size_t(count), SpinBoard::moving);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 1; i < count; ++i) threads.emplace_back([&, i] { run_launch(s, *workers[i]); });
  run_launch(s, *workers[0]);
  for (std::thread& t : threads) t.join();
  for (DevicePart& d : s.devices) {
    if (d.workspace) d.machine->heap->free(d.workspace);
    d.machine->heap->bury();
  }
  if (s.fault) std::rethrow_exception(s.fault);

  Result r;
  sum_up(s);
  r.findings = std::move(s.findings);
  r.output = std::move(s.output);
  for (auto& w : workers) count_all(*w);
  if (options.counters) r.counters = collect(s, workers);
  r.accesses = collect_accesses(s, workers);
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

}  // namespace cgp::emu
