// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/plausible.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/text.h"

namespace cgp::measure {
namespace {

using text::cat;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct Bound {
  Metric metric;
  double least, most;
  const char* why;
};

/// Bounds beyond those that a unit gives. What hardware reaches is rounded up, so that the next generation fits.
constexpr Bound kBounds[] = {
    {Metric::wall_clock_time_us, 1e-6, 1e13, "a time is positive, and a third of a year at most"},
    {Metric::samples, 1, 1e12, "a median has a sample behind it"},
    {Metric::tflops, 0, 1e5, "no device reaches 100 PFLOP/s"},
    {Metric::gflops, 0, 1e8, "no device reaches 100 PFLOP/s"},
    {Metric::peak_compute_tflops, 1e-6, 1e5, "no device reaches 100 PFLOP/s"},
    {Metric::bandwidth_gbps, 0, 1e6, "no memory of one device moves 1 PB/s"},
    {Metric::effective_bandwidth_gbps, 0, 1e6, "no memory of one device moves 1 PB/s"},
    {Metric::peak_bandwidth_gbps, 1e-3, 1e6, "no memory of one device moves 1 PB/s"},
    {Metric::ipc, 0, 8, "an SM has four schedulers, which issue two instructions a cycle at most"},
    {Metric::register_usage_per_thread, 0, 256, "an instruction names at most 256 registers"},
    {Metric::unused_registers_per_thread, 0, 256, "an instruction names at most 256 registers"},
    {Metric::shared_memory_per_block, 0, 1 << 20, "no SM has 1 MiB of shared memory"},
    {Metric::unused_shared_memory_bytes, 0, 1 << 20, "no SM has 1 MiB of shared memory"},
    {Metric::h2d_bandwidth_gbps, 0, 1000, "no link between host and GPU moves 1 TB/s"},
    {Metric::d2h_bandwidth_gbps, 0, 1000, "no link between host and GPU moves 1 TB/s"},
    {Metric::pcie_rx_throughput_gbps, 0, 1000, "no PCIe link moves 1 TB/s"},
    {Metric::pcie_tx_throughput_gbps, 0, 1000, "no PCIe link moves 1 TB/s"},
    {Metric::pcie_gen, 1, 8, "PCIe has generations 1 to 8"},
    {Metric::pcie_width, 1, 32, "a PCIe link has 1 to 32 lanes"},
    {Metric::vram_total_mb, 1, 1e7, "no GPU has 10 TB of memory"},
    {Metric::gpu_memory_total_mb, 1, 1e7, "no GPU has 10 TB of memory"},
    {Metric::gpu_temperature_celsius, -50, 150, "a GPU stops before 150 C"},
    {Metric::cpu_temperature_celsius, -50, 150, "a processor stops before 150 C"},
    {Metric::gpu_power_watts, 0, 5000, "no GPU takes 5 kW"},
    {Metric::gpu_clock_mhz, 1, 5000, "no GPU runs at 5 GHz"},
    {Metric::gpu_memory_clock_mhz, 1, 20000, "no memory runs at 20 GHz"},
    {Metric::cpu_frequency_mhz, 100, 7000, "no processor runs below 100 MHz or reaches 7 GHz"},
    {Metric::heijunka_score, 0, 1, "it is a share"},
    {Metric::poll_efficiency, 0, 1, "it is a share"},
    {Metric::yield_ratio, 0, 1, "it is a share"},
    {Metric::p_value, 0, 1, "it is a probability"},
    {Metric::parallel_efficiency, 0, 4, "a thread does not do the work of four"},
    {Metric::num_threads, 1, 1e6, "one thread at least takes part"},
    {Metric::numa_node, 0, 4096, "no machine has so many nodes"},
    {Metric::regression_pct, -100, kNoLimit, "a program that takes no time at all is 100 % faster"},
    {Metric::effect_size_cohens_d, -kNoLimit, kNoLimit, ""},
};

/// A part and its whole; the part may be `slack` times as large (two readings of a moving number).
struct Part {
  Metric part, whole;
  double slack = 1, whole_scale = 1;
};
constexpr Part kParts[] = {
    {Metric::ci_95_low_us, Metric::ci_95_high_us},
    {Metric::ci_95_low_us, Metric::wall_clock_time_us, 1 + 1e-9},
    {Metric::wall_clock_time_us, Metric::ci_95_high_us, 1 + 1e-9},
    {Metric::branch_misses, Metric::branches},
    {Metric::branches, Metric::instructions},
    {Metric::cache_misses, Metric::cache_references},
    {Metric::instructions, Metric::cycles, 1, 16},
    {Metric::cycles, Metric::instructions, 1, 5000},
    {Metric::free_count, Metric::malloc_count},
    {Metric::heap_peak_mb, Metric::heap_allocated_mb, 1 + 1e-9},
    {Metric::memory_leaks_bytes, Metric::heap_peak_mb, 1.0001, 1e6},
    {Metric::rss_mb, Metric::rss_peak_mb, 1.02},
    {Metric::rss_mb, Metric::vms_mb, 1.02},
    {Metric::vram_used_mb, Metric::vram_total_mb, 1.01},
    {Metric::vram_free_mb, Metric::vram_total_mb, 1.01},
    {Metric::gpu_memory_used_mb, Metric::gpu_memory_total_mb, 1.01},
    {Metric::pcie_rx_throughput_gbps, Metric::pcie_bandwidth_theoretical_gbps, 1.05},
    {Metric::pcie_tx_throughput_gbps, Metric::pcie_bandwidth_theoretical_gbps, 1.05},
    {Metric::tflops, Metric::peak_compute_tflops, 1.05},
    {Metric::parallel_speedup, Metric::num_threads, 4},
};

/// One metric as others give it.
struct Quotient {
  Metric quotient, above, below;
  double scale = 1;
};
constexpr Quotient kQuotients[] = {
    {Metric::tflops_per_watt, Metric::tflops, Metric::gpu_power_watts},
    {Metric::ridge_point, Metric::peak_compute_tflops, Metric::peak_bandwidth_gbps, 1000},
    {Metric::distance_to_ridge, Metric::ridge_point, Metric::arithmetic_intensity},
    {Metric::parallel_efficiency, Metric::parallel_speedup, Metric::num_threads},
};

std::string text_of(const Value& v) {
  if (const double* d = std::get_if<double>(&v)) return cat(*d);
  const auto& t = std::get<Triple>(v);
  return cat(t[0], " x ", t[1], " x ", t[2]);
}

std::string with_unit(double v, std::string_view unit) { return unit.empty() ? cat(v) : cat(v, " ", unit); }

std::string number_problem(const MetricInfo& i, double v) {
  const auto outside = [&](double least, double most, std::string_view why) {
    return v >= least && v <= most ? std::string() : cat(with_unit(v, i.unit), " cannot be: ", why);
  };
  for (const Bound& b : kBounds)
    if (b.metric == i.id) return outside(b.least, b.most, b.why);
  if (i.unit == "%") return outside(0, 101, "it is a share of 100 %");
  return outside(0, kNoLimit, "it is never negative");
}

std::string triple_problem(Metric m, const Triple& t) {
  if (m == Metric::block_dimensions && (t[0] == 0 || t[1] == 0 || t[2] == 0 || t[0] > 1024 || t[1] > 1024 ||
                                        t[2] > 1024 || t[0] * t[1] * t[2] > 1024))
    return "a block has 1 to 1024 threads";
  if (m == Metric::grid_dimensions &&
      (t[0] == 0 || t[1] == 0 || t[2] == 0 || t[0] > 0x7fffffffu || t[1] > 65535 || t[2] > 65535))
    return "a grid has 1 to 2147483647 x 65535 x 65535 blocks";
  return {};
}

/// Takes out the derived one of two, else both.
class Referee {
 public:
  explicit Referee(MetricSet& m) : m_(m) {}
  void contradict(Metric a, Metric b, const std::string& why) {
    const auto derived = [&](Metric x) { return m_[x].source == Source::derived; };
    const bool only_a = derived(a) && !derived(b), only_b = derived(b) && !derived(a);
    if (!only_b) m_.remove(a, why);
    if (!only_a) m_.remove(b, why);
    said.push_back(why);
  }
  std::vector<std::string> said;

 private:
  MetricSet& m_;
};

}  // namespace

std::string implausible(Metric m, const Value& value) {
  const MetricInfo& i = info(m);
  if (const double* d = std::get_if<double>(&value)) return number_problem(i, *d);
  if (const Triple* t = std::get_if<Triple>(&value))
    if (const auto why = triple_problem(m, *t); !why.empty()) return cat(text_of(value), " cannot be: ", why);
  return {};
}

std::vector<std::string> remove_contradictions(MetricSet& m) {
  Referee referee(m);
  auto& said = referee.said;
  const auto both = [&](Metric a, Metric b) { return m.has(a) && m.has(b); };
  for (const Part& p : kParts) {
    if (!both(p.part, p.whole)) continue;
    const double part = m[p.part].number(), whole = m[p.whole].number() * p.whole_scale * p.slack;
    if (part <= whole) continue;
    referee.contradict(p.part, p.whole,
                       cat(info(p.part).name, " (", with_unit(part, info(p.part).unit), ") and ",
                           info(p.whole).name, " (", with_unit(m[p.whole].number(), info(p.whole).unit),
                           ") contradict each other: the first is at most ",
                           p.whole_scale == 1 ? "" : cat(p.whole_scale, " times "), "the second"));
  }
  if (both(Metric::tflops, Metric::gflops)) {
    const double t = m[Metric::tflops].number() * 1000, g = m[Metric::gflops].number();
    if (std::fabs(t - g) > 0.01 * std::max(t, g))
      referee.contradict(Metric::tflops, Metric::gflops,
                         cat("tflops (", t / 1000, ") and gflops (", g, ") contradict each other"));
  }
  for (const Quotient& q : kQuotients) {
    if (!m.has(q.quotient) || !both(q.above, q.below)) continue;
    const double want = m[q.above].number() / m[q.below].number() * q.scale, got = m[q.quotient].number();
    if (!std::isfinite(want) || std::fabs(got - want) <= 0.01 * std::fabs(want) + 1e-9) continue;
    const std::string why = cat(info(q.quotient).name, " is ", got, ", but ", info(q.above).name, " over ",
                                info(q.below).name, " gives ", want);
    m.remove(q.quotient, why);
    said.push_back(why);
  }
  return said;
}

}  // namespace cgp::measure
