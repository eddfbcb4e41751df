// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/stack_reader.h"

#include <linux/perf_event.h>
#if defined(__x86_64__)
#include <asm/perf_regs.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "cgp/profile/sampling/elf_file.h"
#include "cgp/profile/sampling/unwind.h"

namespace cgp::profile {
namespace {

#if defined(__x86_64__)
/// Registers of a sample in the order of their bits: perf's number, and DWARF's.
constexpr std::pair<int, std::size_t> kRegisters[] = {
    {PERF_REG_X86_AX, 0},   {PERF_REG_X86_BX, 3},   {PERF_REG_X86_CX, 2},   {PERF_REG_X86_DX, 1},
    {PERF_REG_X86_SI, 4},   {PERF_REG_X86_DI, 5},   {PERF_REG_X86_BP, 6},   {PERF_REG_X86_SP, 7},
    {PERF_REG_X86_IP, 16},  {PERF_REG_X86_R8, 8},   {PERF_REG_X86_R9, 9},   {PERF_REG_X86_R10, 10},
    {PERF_REG_X86_R11, 11}, {PERF_REG_X86_R12, 12}, {PERF_REG_X86_R13, 13}, {PERF_REG_X86_R14, 14},
    {PERF_REG_X86_R15, 15}};
#else
constexpr std::array<std::pair<int, std::size_t>, 0> kRegisters{};
#endif

constexpr std::uint16_t kOfLaunch =
    0x8000;  // in `misc`: the stack of a launch, whose number is in place of the address

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::uint32_t module = 0;
};
/// Of one process, by where they begin.
using Maps = std::map<std::uint64_t, Mapping>;

/// One record, whose `time` puts those of all processors in order.
struct Record {
  std::uint64_t time = 0;
  const perf_event_header* header = nullptr;
  StackReader::Records::From from = {};
  const char* body() const { return reinterpret_cast<const char*>(header + 1); }
};

template <class T>
T take(const char*& at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  at += sizeof v;
  return v;
}

/// With sample_id_all every record but a sample ends with pid, tid and time.
std::uint64_t time_of(const perf_event_header& h) {
  const char* end = reinterpret_cast<const char*>(&h) + h.size;
  const char* at = h.type == PERF_RECORD_SAMPLE ? reinterpret_cast<const char*>(&h) + sizeof h + 16 : end - 8;
  return take<std::uint64_t>(at);
}

}  // namespace

/// Turns records, in the orderof their time, into stacks of modules.
class StackReader::Impl {
 public:
  explicit Impl(CpuRecording& out) : out_(out) {}

  void read(const Record& r) {
    const char* at = r.body();
    switch (r.header->type) {
      case PERF_RECORD_MMAP2: {
        const auto pid = take<std::uint32_t>(at);
        at += 4;
        Mapping m;
        m.begin = take<std::uint64_t>(at);
        m.end = m.begin + take<std::uint64_t>(at);
        m.offset = take<std::uint64_t>(at);
        at += 24 + 8;  // device, inode, generation; protection and flags
        const std::string file(at);
        const bool there = file[0] == '/' && file.rfind("//anon", 0) != 0 &&
                           file.rfind("/dev/zero", 0) != 0 && file.rfind("/memfd:", 0) != 0;
        m.module = module_of(there || file == "[vdso]" ? file : kMemoryModule);
        insert(maps_[pid], m);
        break;
      }
      case PERF_RECORD_COMM: {
        const auto pid = take<std::uint32_t>(at), tid = take<std::uint32_t>(at);
        out_.names[tid] = at;
        if (r.header->misc & PERF_RECORD_MISC_COMM_EXEC) maps_[pid].clear();
        break;
      }
      case PERF_RECORD_FORK: {
        const auto pid = take<std::uint32_t>(at), parent = take<std::uint32_t>(at),
                   tid = take<std::uint32_t>(at), parent_tid = take<std::uint32_t>(at);
        if (pid != parent) maps_[pid] = maps_[parent];
        if (const auto name = out_.names.find(parent_tid); name != out_.names.end())
          out_.names[tid] = std::string(name->second);
        break;
      }
      case PERF_RECORD_LOST:
        at += 8;
        out_.lost += take<std::uint64_t>(at);
        break;
      case PERF_RECORD_SAMPLE:
        if (r.from == Records::From::program && r.header->misc & kOfLaunch)
          launch(at);
        else  // the timer's ticks that were missed count for the one that came
          sample(at, r.from == Records::From::switches ? r.time : 0,
                 r.from == Records::From::program ? r.header->misc : 1);
        break;
      case PERF_RECORD_SWITCH:
        switched(r);
        break;
      default:
        break;
    }
  }

 private:
  std::uint32_t module_of(const std::string& name) {
    const auto [at, fresh] = modules_.try_emplace(name, std::uint32_t(out_.modules.size()));
    if (fresh) out_.modules.push_back(name);
    return at->second;
  }

  /// A new mapping replaces what was there.
  static void insert(Maps& maps, const Mapping& m) {
    auto at = maps.lower_bound(m.begin);
    if (at != maps.begin()) {
      Mapping& before = std::prev(at)->second;
      if (before.end > m.end) {
        Mapping rest = before;
        rest.offset += m.end - rest.begin, rest.begin = m.end;
        maps[rest.begin] = rest;
      }
      before.end = std::min(before.end, m.begin);
    }
    while (at != maps.end() && at->first < m.end) {
      if (at->second.end > m.end) {
        Mapping rest = at->second;
        rest.offset += m.end - rest.begin, rest.begin = m.end;
        maps[rest.begin] = rest;
      }
      at = maps.erase(at);
    }
    maps[m.begin] = m;
  }

  /// None where no code is: what a frame pointer led to in code that keeps none.
  std::optional<CpuFrame> frame_of(const Maps& maps, std::uint64_t address, bool kernel) {
    if (kernel) return CpuFrame{module_of(kKernelModule), address};
    const auto next = maps.upper_bound(address);
    if (next == maps.begin()) return std::nullopt;
    const Mapping& m = std::prev(next)->second;
    if (address >= m.end) return std::nullopt;
    if (out_.modules[m.module] == kMemoryModule) return CpuFrame{m.module, address};
    return CpuFrame{m.module, address - m.begin + m.offset};
  }

  /// A thread stopped, for others where it was displaced, or goes on.
  void switched(const Record& r) {
    const char* at = reinterpret_cast<const char*>(r.header) + r.header->size - 16 + 4;
    const auto stopped = stopped_.find(take<std::uint32_t>(at));
    if (stopped == stopped_.end()) return;
    if (r.header->misc & PERF_RECORD_MISC_SWITCH_OUT) {
      stopped->second.displaced = r.header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
      return;
    }
    const std::uint64_t ns = r.time - std::min(r.time, stopped->second.time);
    if (stopped->second.displaced)
      out_.displaced_ns += ns;
    else
      out_.waits[std::move(stopped->second.stack)] += ns;
    stopped_.erase(stopped);
  }

  void launch(const char* at) {
    LaunchStack one;
    one.correlation = std::uint32_t(take<std::uint64_t>(at));
    one.stack = stack_of(at).stack;
    if (!one.stack.frames.empty()) out_.launches.push_back(std::move(one));
  }

  /// `stopped_at`: 0 for a sample of the clock, which stands for `weight` ones.
  void sample(const char* at, std::uint64_t stopped_at, std::uint64_t weight) {
    at += 8;  // the instruction is the first of its chain
    auto [stack, cut] = stack_of(at);
    if (stack.frames.empty()) return;
    if (stopped_at) {
      const auto thread = stack.thread;
      stopped_[thread] = {stopped_at, false, std::move(stack)};
      return;
    }
    if (cut) out_.cut += weight;
    out_.samples += weight;
    out_.stacks[std::move(stack)] += weight;
  }

  struct Whole {
    CpuStack stack;
    bool cut = false;
  };
  /// From the process on.
  Whole stack_of(const char* at) {
    CpuStack stack;
    stack.process = take<std::uint32_t>(at), stack.thread = take<std::uint32_t>(at);
    at += 8;
    const Maps& maps = maps_[stack.process];
    std::vector<CpuFrame> by_pointers;
    bool kernel = false, first = true;
    for (auto n = take<std::uint64_t>(at); n > 0; --n) {
      const auto address = take<std::uint64_t>(at);
      if (address >= std::uint64_t(PERF_CONTEXT_MAX)) {
        kernel = address == std::uint64_t(PERF_CONTEXT_KERNEL), first = true;
        continue;
      }
      auto& frames = kernel ? stack.frames : by_pointers;
      const auto frame = frame_of(maps, first ? address : address - 1, kernel);
      if (!frame && !(stack.frames.empty() && by_pointers.empty())) {
        if (kernel) continue;
        at += 8 * (n - 1);  // past what is left of the chain
        break;
      }
      frames.push_back(frame ? *frame : CpuFrame{module_of(kMemoryModule), address});
      first = false;
    }
    auto by_tables = kUnwindTables ? unwound(maps, at) : Chain{};
    const auto& user =
        by_tables.whole || by_tables.frames.size() >= by_pointers.size() ? by_tables.frames : by_pointers;
    stack.frames.insert(stack.frames.end(), user.begin(), user.end());
    return {std::move(stack), by_tables.cut};
  }

  struct Chain {
    std::vector<CpuFrame> frames;
    bool whole = false, cut = false;  ///< to the outermost function; the stack that was kept was too short
  };

  /// The registers and the stack of a sample, and the callers that they give.
  Chain unwound(const Maps& maps, const char* at) {
    Chain chain;
    if (take<std::uint64_t>(at) == 0) return chain;  // a thread of the kernel has none
    Registers registers;
    for (const auto& [perf, dwarf] : kRegisters) registers.set(dwarf, take<std::uint64_t>(at));
    const auto room = take<std::uint64_t>(at);
    StackBytes stack{registers.value[Registers::kStack], {}};
    if (room > 0) {
      const char* bytes = at;
      at += room;
      stack.bytes = {bytes, std::size_t(std::min(room, take<std::uint64_t>(at)))};
    }
    constexpr std::size_t kDeepest = 512;
    while (chain.frames.size() < kDeepest) {
      const std::uint64_t ip = registers.value[Registers::kInstruction] - (chain.frames.empty() ? 0 : 1);
      const auto frame = frame_of(maps, ip, false);
      if (!frame) {
        if (chain.frames.empty()) chain.frames.push_back({module_of(kMemoryModule), ip});
        return chain;
      }
      chain.frames.push_back(*frame);
      Step step = Step::unknown;
      if (const auto& [file, table] = table_of(frame->module); file)
        step = table->step(file->address_of(frame->address), registers, stack);
      if (step == Step::unknown && !by_frame_pointer(registers, stack)) return chain;
      if (step == Step::end || step == Step::cut) {
        chain.whole = true, chain.cut = step == Step::cut;
        return chain;
      }
    }
    chain.cut = true;
    return chain;
  }

  static bool by_frame_pointer(Registers& registers, const StackBytes& stack) {
    if (!registers.has(Registers::kFrame)) return false;
    const std::uint64_t at = registers.value[Registers::kFrame];
    std::uint64_t frame = 0, address = 0;
    if (at < registers.value[Registers::kStack] || !stack.read(at, frame) || !stack.read(at + 8, address) ||
        address == 0)
      return false;
    registers.known = 0;
    registers.set(Registers::kFrame, frame), registers.set(Registers::kStack, at + 16);
    registers.set(Registers::kInstruction, address);
    return true;
  }

  struct Table {
    std::unique_ptr<ElfFile> file;
    std::unique_ptr<UnwindTable> table;
  };
  /// Of a file with unwind tables; no file otherwise.
  const Table& table_of(std::uint32_t module) {
    const auto [at, fresh] = tables_.try_emplace(module);
    if (!fresh || out_.modules[module][0] != '/') return at->second;
    auto file = ElfFile::open(out_.modules[module]);
    if (!file) return at->second;
    const auto section = file->section(".eh_frame");
    auto table = std::make_unique<UnwindTable>(section.bytes, section.address);
    if (!table->empty()) at->second = {std::move(file), std::move(table)};
    return at->second;
  }

  CpuRecording& out_;
  std::map<std::string, std::uint32_t> modules_;
  std::map<std::uint32_t, Table> tables_;
  struct Stopped {
    std::uint64_t time = 0;
    bool displaced = false;
    CpuStack stack;
  };
  std::map<std::uint32_t, Stopped> stopped_;  // by thread
  std::map<std::uint32_t, Maps> maps_;
};

std::uint64_t sampled_registers() {
  std::uint64_t mask = 0;
  for (const auto& [perf, dwarf] : kRegisters) mask |= 1ull << perf;
  return mask;
}

StackReader::StackReader(CpuRecording& out) : impl_(std::make_unique<Impl>(out)) {}
StackReader::~StackReader() = default;

void StackReader::read(const std::vector<Records>& all) {
  std::vector<Record> records;
  for (const auto& part : all)
    for (std::size_t at = 0; at + sizeof(perf_event_header) <= part.bytes.size();) {
      const auto* h = reinterpret_cast<const perf_event_header*>(part.bytes.data() + at);
      if (h->size < sizeof *h || at + h->size > part.bytes.size()) break;
      records.push_back({time_of(*h), h, part.from});
      at += h->size;
    }
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.time < b.time; });
  for (const auto& r : records) impl_->read(r);
}

}  // namespace cgp::profile
