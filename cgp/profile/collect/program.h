// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program and collects all that can be known about it from outside: processor, memory, files,
// switches, and, by injection, what it did on the GPU.
#include <string>
#include <utility>
#include <vector>

#include "cgp/profile/measure/process.h"
#include "cgp/profile/timeline/timeline.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct ProgramOptions {
  bool trace_gpu = true;
  std::string record = "all";         ///< auto: as much as costs little; ON,EVERY: so many ms of each so many
  std::vector<std::string> counters;  ///< CUPTI metrics: the program is run with kernel replay
  int most_launches = 500;            ///< with counters: then it runs on unmeasured
  bool all_api = false;
  double timeout_seconds = 0;
  double duration_seconds = 0;  ///< the program is ended then, which is no failure
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< set for it
  bool show_output = false;  ///< the program's output goes to standard error
  std::string keep_events;   ///< prefix of the event files; empty: they are removed
};

struct ProgramRun {
  measure::ProcessResult process;
  measure::MetricSet metrics;
  Timeline timeline;
  std::string no_gpu;  ///< why there is no timeline; empty: there is one
  double steal = 0;    ///< share of the processors that the hypervisor took meanwhile
};
ProgramRun run_program(const std::vector<std::string>& command, const ProgramOptions& options);

/// "none", "basic", "roofline", "memory", "stalls" stand for sets (cgp/profile/cupti/cupti_plan.h); other words for
/// themselves.
std::vector<std::string> counter_names(const std::vector<std::string>& words);
/// Why `record` is none of those words; empty: it is one.
std::string record_problem(const std::string& record);

/// $CGP_INJECT_LIBRARY, beside this program, or ../lib. Empty: not found.
std::string inject_library();
/// Another library of that folder: libcgp_heap.so, libcgp_sample.so. Empty: not found.
std::string library_beside_inject(const char* name);

}  // namespace cgp::profile
