// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a program spends processor time: the kernel's clock of each processor (perf_event_open, cpu-clock, which needs
// no hardware counters) interrupts it and keeps the instruction, the registers and the top of the stack. Callers are found by the
// files' unwind tables (unwind.h), as debuggers find them, and in code without a table (what a JIT wrote) by frame
// pointers. On other processors than x86-64 they are found by frame pointers alone. Where perf_event_open is refused, as in
// containers, libcgp_sample.so in the program does the same at a timer of its processor time (x86-64).
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cgp::profile {

/// An instruction of a module. Of callers it is inside the call, not behind it.
struct CpuFrame {
  std::uint32_t module = 0;  ///< index into CpuRecording::modules
  std::uint64_t address =
      0;  ///< offset in the file; in the kernel and in memory without a file, where it ran
  auto operator<=>(const CpuFrame&) const = default;
};

inline constexpr const char* kKernelModule = "[kernel]";
inline constexpr const char* kMemoryModule = "[memory]";  ///< code without a file: what a JIT wrote

struct CpuStack {
  std::uint32_t process = 0, thread = 0;
  std::vector<CpuFrame> frames;  ///< the running function first
  auto operator<=>(const CpuStack&) const = default;
};

/// Where a kernel was launched; the number is CUPTI's, in its process.
struct LaunchStack {
  std::uint32_t correlation = 0;
  CpuStack stack;
};

struct CpuRecording {
  std::string absent;   ///< why there is none; empty: there is one
  double rate = 0;      ///< samples of a processor in a second of its work
  bool kernel = false;  ///< time in the operating system has frames of its own
  std::string timer;    ///< why the program sampled itself; empty: the kernel did
  std::uint64_t samples = 0, lost = 0;
  std::uint64_t cut =
      0;  ///< samples whose stack is deeper than what was kept of it: their outer callers are unknown
  std::vector<std::string> modules;
  std::map<CpuStack, std::uint64_t> stacks;    ///< how often each was seen
  std::map<std::uint32_t, std::string> names;  ///< of threads
  bool waits_watched = false;
  std::string waits_absent;  ///< why they are not, where that was asked for
  std::map<CpuStack, std::uint64_t>
      waits;  ///< nanoseconds that threads did not run, by where they stopped of themselves
  std::vector<LaunchStack> launches;
  std::uint64_t displaced_ns = 0;  ///< that threads could run, and others ran in their place
};

struct SamplerOptions {
  double rate =
      499;  ///< in a second of a processor's work; the program's own timer is no faster than the kernel's tick
  /// Where threads wait, too. Each time one stops its stack is copied, which takes some microseconds; the operating system
  /// must allow to see its own part.
  bool waits = false;
  bool launches = false;  ///< the stacks of launches that libcgp_inject.so asks for, too (x86-64)
  bool python =
      false;  ///< CPython's functions have names: 3.9 to 3.11 by the library, later ones of themselves
  std::string library = {};  ///< libcgp_sample.so; empty: it is not here
};

/// Samples what the thread that made it starts from then on: make it, run the program from the same thread with
/// environment(), stop it.
class CpuSampler {
 public:
  explicit CpuSampler(const SamplerOptions& options);
  ~CpuSampler();
  CpuSampler(const CpuSampler&) = delete;
  CpuSampler& operator=(const CpuSampler&) = delete;
  /// What the program must be started with.
  const std::vector<std::pair<std::string, std::string>>& environment() const;
  CpuRecording stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::profile
