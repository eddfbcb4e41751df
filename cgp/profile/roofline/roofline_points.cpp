// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/roofline/roofline_points.h"

#include <cmath>

#include "cgp/profile/timeline/timeline.h"

namespace cgp::profile {
namespace {

using measure::Metric;

/// Counters are those of one launch, so `flops` are too.
std::vector<RoofLevel> levels_of(const std::map<std::string, double>& counters, double flops) {
  const auto counter = [&](const char* name) {
    const auto at = counters.find(name);
    return at == counters.end() ? std::nan("") : at->second;
  };
  constexpr double kWavefront = 128;  // bytes that shared memory moves in a cycle
  const std::pair<const char*, double> bytes[] = {
      {"HBM", counter("dram__bytes_read.sum") + counter("dram__bytes_write.sum")},
      {"L2", counter("lts__t_bytes.sum")},
      {"L1", counter("l1tex__t_bytes.sum")},
      {"shared", kWavefront * counter("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")}};
  std::vector<RoofLevel> out;
  for (const auto& [name, moved] : bytes)
    if (moved > 0 && flops > 0) out.push_back({name, moved, flops / moved});
  return out;
}

}  // namespace

std::vector<RoofPoint> roof_points(const Document& d) {
  const auto both = [](const measure::MetricSet& m) {
    return m.has(Metric::arithmetic_intensity) && m.has(Metric::gflops);
  };
  const auto point = [](const std::string& name, const measure::MetricSet& m) {
    return RoofPoint{name, m[Metric::arithmetic_intensity].number(), m[Metric::gflops].number()};
  };
  std::vector<RoofPoint> out;
  if (both(d.metrics)) {
    out.push_back(point(d.name, d.metrics));
    if (d.kernels.size() == 1 && d.more.contains("flops") && d.more["flops"].is_number())
      out[0].levels = levels_of(d.kernels[0].counters, d.more["flops"]);
    return out;
  }
  for (const auto& k : d.kernels) {
    if (!both(k.metrics)) continue;
    out.push_back(point(short_name(k.name), k.metrics));
    out.back().levels = levels_of(k.counters, counted_operations(k.counters));
  }
  return out;
}

}  // namespace cgp::profile
