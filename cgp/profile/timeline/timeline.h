// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a program did on the GPU, from the events that libcgp_inject.so wrote (cgp/profile/cupti/inject.cpp), and what
// follows from them: which kernels took how long, how busy the GPU was, what launching cost.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct Activity {
  enum class Kind : std::uint8_t { kernel, copy, set, api, sync } kind = Kind::kernel;
  std::string name;
  std::uint64_t start = 0, end = 0;  ///< ns of the machine's clock
  std::uint32_t device = 0, stream = 0, correlation = 0, graph = 0;
  std::uint64_t thread = 0;     ///< of api calls
  std::uint32_t process = 0;    ///< of kernels; 0: not known
  std::uint64_t bytes = 0;      ///< of copies and sets
  std::uint32_t copy_kind = 0;  ///< 1 to the device, 2 from it, 8 on it
  bool pageable = false;        ///< host memory that is not pinned
  measure::Triple grid{}, block{};
  std::uint32_t registers = 0, static_shared = 0, dynamic_shared = 0, local_bytes = 0;
  double us() const { return double(end - start) * 1e-3; }
  bool on_gpu() const { return kind == Kind::kernel || kind == Kind::copy || kind == Kind::set; }
};

struct RangeRow {
  std::string name;
  measure::Triple grid{}, block{};
  std::map<std::string, double> values;
};

struct Timeline {
  std::vector<Activity> activities;  ///< by start
  std::vector<RangeRow> ranges;
  std::string chip;
  int passes = 0;
  std::uint64_t live_bytes_peak = 0, allocations = 0;
  double jit_ms = 0;
  bool jit_compiled = false, jit_loaded = false;
  double overhead_ms = 0;  ///< that CUPTI says it added
  std::uint64_t dropped = 0;
  std::uint64_t counted_only = 0;  ///< launches after which counting ended though more came; 0: it did not
  bool complete = true;            ///< every process wrote its end
  std::vector<std::string> errors;
  struct Window {
    std::uint64_t begin = 0, end = 0;  ///< end 0: open
  };
  std::vector<Window> windows;                   ///< recorded parts (CGP_INJECT_WINDOW); empty: all of it
  std::uint64_t recorded_ns = 0, lasted_ns = 0;  ///< of windows, and of the processes that had them
  /// Of the time; 100 without windows, and with one that was never closed.
  double recorded_percent() const {
    return recorded_ns < lasted_ns ? 100 * double(recorded_ns) / double(lasted_ns) : 100;
  }
};

/// What went wrong or was left out, as sentences.
std::vector<std::string> notes_of(const Timeline& t);
/// "4.2 % of the time was recorded, in 3 parts ..."; empty where all of it was.
std::string recorded_text(const Timeline& t);
/// What began and ended within; end 0: after `begin`.
Timeline part_of(const Timeline& t, std::uint64_t begin, std::uint64_t end);

/// Reads all files `prefix`.PID. A last line that was cut off (a crash) is left out, anything else that is no
/// event is an error in the list.
Timeline read_timeline(const std::string& prefix);
void read_events(const std::string& text, Timeline& into);

struct TimelineSummary {
  std::uint64_t launches = 0, graph_launches = 0, copies = 0;
  double recorded_percent = 100;  ///< of the time; everything below is of that
  std::size_t parts = 0;          ///< windows, where recorded_percent is less
  double span_ms = 0;             ///< first start to last end on the GPU, of each part
  double busy_ms = 0;             ///< some kernel or copy ran
  double kernel_ms = 0;           ///< sum over kernels
  double longest_gap_ms = 0;      ///< with nothing on the GPU
  std::string after_longest_gap;  ///< the kernel or copy that ended it
  // NaN (in JSON null) where nothing of the kind was seen:
  double launch_api_ms = 0;  ///< host time in launch calls
  double launch_us = 0;      ///< median host time of one launch call
  double latency_us = 0;     ///< median from the call to the start on an idle GPU
  double gap_us = 0;         ///< median gap between neighbours on a stream
  double idle_percent() const { return span_ms > 0 ? 100 * (1 - busy_ms / span_ms) : 100; }
  /// The GPU waited for the host more than half of the time, and kernels are short.
  bool launch_bound = false;
  std::string dominant;  ///< kernel with the largest share
  double dominant_percent = 0;
};
TimelineSummary summarise(const Timeline& t);
/// Kernels by total time, counters joined by name and order of launch.
std::vector<KernelUse> kernels_of(const Timeline& t, const std::string& counted_by = "CUPTI range profiler");
/// "copy to the GPU", of Activity::copy_kind.
const char* copy_name(std::uint32_t kind);
/// Transfers, memory, compilation into metrics.
void add_metrics(const Timeline& t, measure::MetricSet& into);
/// Metrics of one kernel from its counters (names of CUPTI).
void counters_to_metrics(const std::map<std::string, double>& c, measure::MetricSet& into,
                         const std::string& from);

/// Operations that counters (names of CUPTI) saw, those of tensor cores too; NaN where they were not counted,
/// or tensor cores worked and theirs were not.
double counted_operations(const std::map<std::string, double>& c);

nlohmann::ordered_json to_json(const TimelineSummary& s);

}  // namespace cgp::profile
