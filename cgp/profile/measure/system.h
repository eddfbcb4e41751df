// SPDX-License-Identifier: Apache-2.0
#pragma once
// What Linux says about a process and the machine: /proc, /sys, cgroups. Fields that a file does not have
// become absent metrics with the reason, never 0.
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/metric.h"
#include "cgp/profile/measure/process.h"

namespace cgp::measure {

/// Memory, swap, disk, descriptors, NUMA and switches of a process now; 0: this one.
void read_process(pid_t pid, MetricSet& into);

/// Counters of the whole machine, to be read before and after.
struct SystemCounters {
  std::optional<std::uint64_t> swap_in, swap_out;            ///< pages
  std::optional<std::uint64_t> disk_reads, disk_writes;      ///< operations of all disks
  std::optional<std::uint64_t> total, idle, io_wait, steal;  ///< clock ticks of all processors
  std::optional<std::uint64_t> net_rx, net_tx;               ///< bytes, without lo
  std::optional<double> package_joules;                      ///< RAPL
  double time = 0;                                           ///< of now()
};
SystemCounters read_system();
void add_system_change(const SystemCounters& before, const SystemCounters& after, MetricSet& into);
/// Share of the processors' time that the hypervisor gave to others; absent without the field.
std::optional<double> steal_share(const SystemCounters& before, const SystemCounters& after);

/// What wait4 said: wall time, faults, switches, peak memory.
void add_process_result(const ProcessResult& r, MetricSet& into);

struct MachineFacts {
  std::string cpu;     ///< model name
  std::string kernel;  ///< release
  unsigned cores = 0;
  std::vector<std::string> features;                          ///< avx2, fma, avx512f, ...
  std::vector<std::pair<std::string, std::uint64_t>> caches;  ///< "L1d" and bytes, of one core
  std::uint64_t memory_bytes = 0;
  std::string hypervisor;  ///< empty: none seen
  std::string cgroup;      ///< limits, in words; empty: none
  int numa_nodes = 0;
  /// Changes when results stop being comparable: processor, cores, kernel. No measured frequencies.
  std::string key() const;
};
MachineFacts machine_facts();
/// Clock of this core, from a chain of dependent multiplications (some 10 ms), and its temperature. A clock
/// that cannot be is absent with the reason.
void read_processor(MetricSet& into);
/// Why a clock cannot be measured right, given how fast the time-stamp counter runs; empty: it can.
std::string implausible_clock(double mhz, double tsc_mhz);

}  // namespace cgp::measure
