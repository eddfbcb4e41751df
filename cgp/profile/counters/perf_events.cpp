// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/counters/perf_events.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cgp/base/text.h"

namespace cgp::measure {
namespace {

struct Event {
  Metric metric;
  const char* name;
  std::uint32_t type;
  std::uint64_t config;
};

constexpr std::uint64_t cache(std::uint64_t id, std::uint64_t result) {
  return id | PERF_COUNT_HW_CACHE_OP_READ << 8 | result << 16;
}

// FP_ARITH_INST_RETIRED of Intel's cores: event 0xC7, one unit mask per width (single precision).
constexpr Event kEvents[] = {
    {Metric::cycles, "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {Metric::instructions, "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {Metric::branches, "branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    {Metric::branch_misses, "branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    {Metric::cache_references, "cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    {Metric::cache_misses, "cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {Metric::l1_dcache_load_misses, "L1-dcache-load-misses", PERF_TYPE_HW_CACHE,
     cache(PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_RESULT_MISS)},
    {Metric::llc_loads, "LLC-loads", PERF_TYPE_HW_CACHE,
     cache(PERF_COUNT_HW_CACHE_LL, PERF_COUNT_HW_CACHE_RESULT_ACCESS)},
    {Metric::fp_arith_scalar_single, "fp_arith scalar single", PERF_TYPE_RAW, 0x02c7},
    {Metric::fp_arith_128b_packed_single, "fp_arith 128-bit single", PERF_TYPE_RAW, 0x08c7},
    {Metric::fp_arith_256b_packed_single, "fp_arith 256-bit single", PERF_TYPE_RAW, 0x20c7},
    {Metric::fp_arith_512b_packed_single, "fp_arith 512-bit single", PERF_TYPE_RAW, 0x80c7},
    {Metric::cpu_migration_count, "cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
    {Metric::page_faults_minor, "minor-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN},
    {Metric::page_faults_major, "major-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ},
};

bool intel() {
  unsigned a = 0, b = 0, c = 0, d = 0;
#if defined(__x86_64__)
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
#endif
  return b == 0x756e6547;  // "Genu"
}

int open_event(const Event& e, bool for_children) {
  if (e.type == PERF_TYPE_RAW && !intel()) {
    errno = ENOENT;
    return -1;
  }
  perf_event_attr a;
  std::memset(&a, 0, sizeof a);
  a.size = sizeof a;
  a.type = e.type;
  a.config = e.config;
  a.disabled = 1;
  a.exclude_kernel = e.type != PERF_TYPE_SOFTWARE;  // migrations and faults happen in the kernel
  a.exclude_hv = 1;
  a.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  a.inherit = for_children;
  a.enable_on_exec = for_children;
  return int(syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

std::string reason(const Event& e, int error) {
  if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
    return e.type == PERF_TYPE_SOFTWARE
               ? "this kernel does not count it"
               : "the processor shows no such counter to this machine (virtual machines "
                 "often have none)";
  if (error == EACCES || error == EPERM)
    return "not permitted: lower /proc/sys/kernel/perf_event_paranoid to 2";
  return std::strerror(error);
}

}  // namespace

std::vector<PerfEvent> probe_perf_events() {
  std::vector<PerfEvent> out;
  for (const Event& e : kEvents) {
    const int fd = open_event(e, false);
    out.push_back({e.metric, e.name, fd >= 0 ? "" : reason(e, errno), e.type != PERF_TYPE_SOFTWARE});
    if (fd >= 0) close(fd);
  }
  return out;
}

struct PerfCounters::Impl {
  struct Open {
    const Event* event;
    int fd;
    std::string why;
  };
  std::vector<Open> all;
};

PerfCounters::PerfCounters() : impl_(std::make_unique<Impl>()) {
  for (const Event& e : kEvents) {
    const int fd = open_event(e, true);
    impl_->all.push_back({&e, fd, fd >= 0 ? "" : reason(e, errno)});
  }
}

PerfCounters::~PerfCounters() {
  for (const auto& o : impl_->all)
    if (o.fd >= 0) close(o.fd);
}

void PerfCounters::read(MetricSet& into) const {
  for (const auto& o : impl_->all) {
    std::uint64_t v[3] = {};  // count, enabled, running
    if (o.fd < 0) {
      into.absent(o.event->metric, o.why);
    } else if (::read(o.fd, v, sizeof v) != ssize_t(sizeof v)) {
      into.absent(o.event->metric, std::strerror(errno));
    } else if (v[1] > 0 && v[2] < v[1] / 2) {
      into.absent(o.event->metric,
                  text::cat("it had a hardware counter in only ", 100 * v[2] / v[1], " % of the time"));
    } else {
      const double share = v[2] > 0 && v[2] < v[1] ? double(v[2]) / double(v[1]) : 1;
      into.set(o.event->metric, std::round(double(v[0]) / share), Source::counted,
               share < 1
                   ? text::cat("perf_event_open, scaled from ", std::round(100 * share), " % of the time")
                   : "perf_event_open");
    }
  }
}

}  // namespace cgp::measure
