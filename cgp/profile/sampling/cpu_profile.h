// SPDX-License-Identifier: Apache-2.0
#pragma once
// What samples of a program say: the functions and lines that took its processor time, by thread, and a flame graph.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgp/profile/sampling/cpu_sampler.h"
#include "cgp/profile/sampling/elf_file.h"

namespace cgp::profile {

struct HotLine {
  SourceLine at;
  std::uint64_t samples = 0;
};
struct HotFunction {
  std::string name;                   ///< demangled, without arguments; "[unknown]" where no table has it
  std::string module;                 ///< file name without folders
  std::uint64_t self = 0, total = 0;  ///< samples in it; in it or in what it called
  std::vector<HotLine> lines;         ///< of `self`, the most first; empty without line tables
  std::string path = {};              ///< of its file
  std::uint64_t begin = 0, end = 0;   ///< its addresses there; 0 where no table has it
  std::map<std::uint64_t, std::uint64_t> instructions = {};  ///< samples of `self` by address
  nlohmann::ordered_json source = {}, assembly = {};         ///< annotate.h
};
struct PythonFunction {
  std::string name, file;
  std::uint64_t self = 0,
                total = 0;  ///< samples in it and in machine code for it; in it or in what it called
};
struct HotThread {
  std::uint32_t process = 0, thread = 0;
  std::string name;
  std::uint64_t samples = 0;
};
/// What called for a launch: "thread;main;f", without the driver's part.
struct LaunchedFrom {
  std::uint32_t process = 0, correlation = 0;
  std::string folded;
};
struct CpuProfile {
  std::string absent;  ///< why there is none
  double rate = 0;
  bool kernel = false;
  std::string timer;                             ///< as of CpuRecording
  std::uint64_t samples = 0, lost = 0, cut = 0;  ///< as of CpuRecording
  std::vector<HotFunction> functions;            ///< by `self`, the most first
  std::vector<PythonFunction> python;            ///< by `self`, where names are known
  std::vector<HotThread> threads;                ///< the most first
  std::map<std::string, std::uint64_t> folded;   ///< "thread;main;f;g", the format of flame graph tools
  bool waits_watched = false;
  std::string waits_absent;
  std::map<std::string, std::uint64_t> waits;  ///< the same, in nanoseconds that threads waited there
  std::uint64_t displaced_ns = 0;              ///< as of CpuRecording
  std::vector<LaunchedFrom> launches;
  double seconds() const { return double(samples) / rate; }
};

/// Names functions by ELF tables, /proc/kallsyms and /tmp/perf-PID.map (what JIT compilers and Python 3.12 write for perf).
CpuProfile analyse(const CpuRecording& r);

/// The section "cpu_samples" of a profile (docs/profiler.md).
nlohmann::ordered_json to_json(const CpuProfile& p);
/// The hot functions of that section, and the hot lines.
std::string cpu_text(const nlohmann::ordered_json& section, int width);
/// Its flame graph: each box as wide as its samples, callers below; empty without samples. The section "waits" in it has
/// one of its own, by milliseconds.
std::string cpu_flamegraph_svg(const nlohmann::ordered_json& section, const std::string& title);

}  // namespace cgp::profile
