// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reports of NVIDIA's kernel profiler: what `ncu --csv` prints (the pages raw, details and source), and
// .ncu-rep files as they are. A report file is "NVR\0", a length and a header, then blocks: a length, a
// header (how many sources and results follow, the table of metric names, the device), the sources and the
// results, each with its length. Headers and results are protocol buffers; protobuf_wire.h reads what is
// needed of them.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::profile {

/// One machine instruction, with the counters that ncu has for it.
struct NcuInstruction {
  std::uint64_t address = 0;
  std::string text;  ///< SASS, where a page has it; of a report file the opcode, of accesses to memory
  std::map<std::string, double> values;
};

/// What a rule of ncu says about a launch.
struct NcuAdvice {
  std::string rule, text;
  double percent = 0;   ///< estimated gain; 0: none given
  bool global = false;  ///< of the whole kernel, not of one unit
};

struct NcuLaunch {
  std::string name;
  measure::Triple grid{}, block{};
  std::map<std::string, double> counters;  ///< by metric name, in bytes, ns, Hz
  std::vector<NcuInstruction> instructions;
  std::vector<NcuAdvice> advice;
};

struct NcuReport {
  std::string gpu, arch;  ///< "NVIDIA H200", "sm_90"; empty where the page does not tell
  std::string page;       ///< raw, details, source, report
  std::vector<NcuLaunch> launches;
  std::vector<std::string> notes;
};

/// The text begins like one of ncu's pages (after the lines that ncu prints while it runs).
bool is_ncu_csv(std::string_view text);
bool is_ncu_report(std::string_view bytes);

/// Both throw ParseError with the row, or with the place where the file is not what it should be.
NcuReport read_ncu_csv(std::string_view text, const std::string& origin);
NcuReport read_ncu_report(std::string_view bytes, const std::string& origin);

}  // namespace cgp::profile
