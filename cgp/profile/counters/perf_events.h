// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counters of the kernel (perf_event_open) around a child process and its children: hardware ones where the
// processor shows them to this machine, software ones everywhere. No perf binary, no root for own processes.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::measure {

struct PerfEvent {
  Metric metric{};
  std::string name;
  std::string why_absent;  ///< empty: it can be counted here
  bool hardware = false;
};
/// Which of them this machine has, each tried.
std::vector<PerfEvent> probe_perf_events();

class PerfCounters {
 public:
  /// Opens what there is; children that this process starts from now on are counted from their exec.
  PerfCounters();
  ~PerfCounters();
  /// Sets the metrics, absent ones with the kernel's reason. Counts that shared a hardware counter are scaled
  /// and say so; below half of the time they are absent.
  void read(MetricSet& into) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::measure
