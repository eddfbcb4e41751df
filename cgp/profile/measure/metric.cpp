// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/metric.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/plausible.h"

namespace cgp::measure {
namespace {

constexpr MetricInfo kMetrics[] = {
#define CGP_METRIC_CATEGORY(id, title, by)
#define CGP_METRIC(category, name, type, unit, better, text) \
  {Metric::name, Category::category, #name, MetricType::type, unit, Better::better, text},
#include "cgp/profile/measure/metrics.def"
};
constexpr CategoryInfo kCategories[] = {
#define CGP_METRIC_CATEGORY(id, title, by) {Category::id, #id, title, by},
#define CGP_METRIC(category, name, type, unit, better, text)
#include "cgp/profile/measure/metrics.def"
};
constexpr std::string_view kSources[] = {"measured", "counted", "simulated", "derived", "declared"};

/// Why no collector of this version gives a metric; nullptr: one does.
const char* nobody(Metric m) {
  switch (m) {
    case Metric::vram_fragmentation_pct:
      return "the driver does not tell how free memory is divided";
    case Metric::unnecessary_global_loads:
      return "no counter tells a load of what the thread had; cgp explain shows values that are computed "
             "twice";
    case Metric::loop_overhead_cycles:
      return "no counter tells a loop's own instructions from its work; cgp explain shows the loops";
    case Metric::unused_shared_memory_bytes:
      return "no counter tells which bytes of shared memory were touched";
    case Metric::padding_waste_pct:
      return "inactive_thread_pct has all lanes without work, whatever switched them off";
    case Metric::io_overhead_pct:
      return "following system calls makes each some ten times slower, so their times are not taken";
    default:
      return nullptr;
  }
}

bool fits(MetricType type, const Value& v) {
  switch (type) {
    case MetricType::real:
    case MetricType::count:
      return std::holds_alternative<double>(v);
    case MetricType::flag:
      return std::holds_alternative<bool>(v);
    case MetricType::text:
      return std::holds_alternative<std::string>(v);
    case MetricType::triple:
      return std::holds_alternative<Triple>(v);
    case MetricType::map:
      break;
  }
  return std::holds_alternative<std::map<std::string, std::uint64_t>>(v);
}

}  // namespace

std::span<const MetricInfo> metrics() { return kMetrics; }
const MetricInfo& info(Metric m) { return kMetrics[std::size_t(m)]; }
std::span<const CategoryInfo> categories() { return kCategories; }

const MetricInfo* find_metric(std::string_view name) {
  for (const MetricInfo& m : kMetrics)
    if (m.name == name) return &m;
  return nullptr;
}

const MetricInfo& metric_named(std::string_view name) {
  if (const MetricInfo* m = find_metric(name)) return *m;
  std::vector<std::string> all;
  for (const MetricInfo& m : kMetrics) all.emplace_back(m.name);
  const auto close = text::closest(name, all);
  throw ArgumentError({text::cat("there is no metric \"", name, "\""),
                       {},
                       close.empty() ? "" : text::cat("close: ", text::join(close, ", ")),
                       "cgp metrics names all of them"});
}

std::string_view name(Source s) { return kSources[std::size_t(s)]; }

std::optional<Source> parse_source(std::string_view s) {
  for (std::size_t i = 0; i < std::size(kSources); ++i)
    if (kSources[i] == s) return Source(i);
  return std::nullopt;
}

double Reading::number() const {
  if (!held) throw Unsupported(ErrorText{"the metric is absent", {}, why_absent, {}});
  if (const double* d = std::get_if<double>(&*held)) return *d;
  if (const bool* b = std::get_if<bool>(&*held)) return *b ? 1 : 0;
  throw ArgumentError("the metric is not a number");
}

void MetricSet::set(Metric m, Value value, Source source, std::string from) {
  const MetricInfo& i = info(m);
  if (!fits(i.type, value)) throw ArgumentError(text::cat("the value of ", i.name, " is of another type"));
  if (const double* d = std::get_if<double>(&value); d && !std::isfinite(*d))
    throw ArgumentError(text::cat("the value of ", i.name, " must be finite"));
  if (std::string why = implausible(m, value); !why.empty())
    readings_[m] = Reading{{}, {}, {}, std::move(why)};
  else
    readings_[m] = {std::move(value), source, std::move(from), {}};
}

void MetricSet::absent(Metric m, std::string why) {
  Reading& r = readings_[m];
  if (!r.present()) r.why_absent = std::move(why);
}

void MetricSet::remove(Metric m, std::string why) { readings_[m] = Reading{{}, {}, {}, std::move(why)}; }

const Reading& MetricSet::operator[](Metric m) const {
  static const auto none = [] {
    std::vector<Reading> all(std::size(kMetrics));
    for (const MetricInfo& i : kMetrics)
      all[std::size_t(i.id)].why_absent = text::cat(
          "not collected: ", nobody(i.id) ? nobody(i.id) : kCategories[std::size_t(i.category)].collector);
    return all;
  }();
  const auto at = readings_.find(m);
  return at == readings_.end() ? none[std::size_t(m)] : at->second;
}

std::size_t MetricSet::present_count() const {
  std::size_t n = 0;
  for (const auto& [id, r] : readings_) n += r.present();
  return n;
}

void MetricSet::merge(const MetricSet& other) {
  for (const auto& [id, r] : other.readings_) {
    if (has(id)) continue;
    readings_[id] = r;
  }
}

void MetricSet::derive(double flops, double bytes) {
  const auto number = [&](Metric m) { return has(m) ? (*this)[m].number() : std::nan(""); };
  const auto put = [&](Metric m, double v, const char* from) {
    if (!has(m) && std::isfinite(v)) set(m, v, Source::derived, from);
  };
  const double seconds = number(Metric::wall_clock_time_us) * 1e-6;
  if (flops > 0) {
    put(Metric::gflops, flops / seconds * 1e-9, "operations of the algorithm over wall_clock_time_us");
    put(Metric::tflops, flops / seconds * 1e-12, "operations of the algorithm over wall_clock_time_us");
  }
  if (bytes > 0)
    put(Metric::bandwidth_gbps, bytes / seconds * 1e-9, "compulsory bytes over wall_clock_time_us");
  if (flops > 0 && bytes > 0)
    put(Metric::arithmetic_intensity, flops / bytes, "operations over compulsory bytes");
  const double peak = number(Metric::peak_compute_tflops), width = number(Metric::peak_bandwidth_gbps);
  put(Metric::ridge_point, peak * 1000 / width, "peak_compute_tflops over peak_bandwidth_gbps");
  const double intensity = number(Metric::arithmetic_intensity), ridge = number(Metric::ridge_point);
  if (std::isfinite(intensity / ridge) && intensity > 0) {
    put(Metric::distance_to_ridge, ridge / intensity, "ridge_point over arithmetic_intensity");
    if (!has(Metric::bound))
      set(Metric::bound, std::string(intensity < ridge ? "memory" : "compute"), Source::derived,
          "arithmetic_intensity against ridge_point");
    const double ceiling = std::min(peak, intensity * width / 1000);
    const double efficiency = 100 * number(Metric::tflops) / ceiling;
    if (efficiency > 105)
      absent(Metric::efficiency_pct,
             text::cat(int(efficiency + 0.5),
                       " % of the ceiling cannot be: its bytes came from a nearer level of memory than the "
                       "ceiling's, or the ceiling is another device's"));
    else
      put(Metric::efficiency_pct, efficiency, "tflops over the ceiling");
  }
  put(Metric::vram_utilization_pct, 100 * number(Metric::vram_used_mb) / number(Metric::vram_total_mb),
      "vram_used_mb over vram_total_mb");
  put(Metric::tflops_per_watt, number(Metric::tflops) / number(Metric::gpu_power_watts),
      "tflops over gpu_power_watts");
  put(Metric::parallel_efficiency, number(Metric::parallel_speedup) / number(Metric::num_threads),
      "parallel_speedup over num_threads");
  put(Metric::inactive_thread_pct, 100 - number(Metric::warp_execution_efficiency_pct),
      "100 less warp_execution_efficiency_pct");
  if (!has(Metric::swap_activity_detected) && has(Metric::swap_in_count) && has(Metric::swap_out_count))
    set(Metric::swap_activity_detected, number(Metric::swap_in_count) + number(Metric::swap_out_count) > 0,
        Source::derived, "swap_in_count and swap_out_count");
}

}  // namespace cgp::measure
