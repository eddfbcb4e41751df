// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can be known about a run: the metrics of metrics.def, each with its value, where the value came from,
// or why there is none. A metric that was not collected is absent with a reason; it is never 0.
//
//   MetricSet m;
//   m.set(Metric::wall_clock_time_us, 12.5, Source::measured, "steady clock");
//   m.absent(Metric::cycles, "the processor shows no counters to this machine");
//   m[Metric::cycles].value()   // throws: says the reason
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cgp::measure {

enum class Metric : std::uint8_t {
#define CGP_METRIC_CATEGORY(id, title, by)
#define CGP_METRIC(category, name, type, unit, better, text) name,
#include "cgp/profile/measure/metrics.def"
};
enum class Category : std::uint8_t {
#define CGP_METRIC_CATEGORY(id, title, by) id,
#define CGP_METRIC(category, name, type, unit, better, text)
#include "cgp/profile/measure/metrics.def"
};

enum class MetricType : std::uint8_t { real, count, flag, text, triple, map };
enum class Better : std::uint8_t { lower, higher, none };

struct MetricInfo {
  Metric id{};
  Category category{};
  std::string_view name;
  MetricType type{};
  std::string_view unit;  ///< empty: a plain number
  Better better{};
  std::string_view text;  ///< what it is and where it comes from
};
/// By number: metrics()[0] is MET-001.
std::span<const MetricInfo> metrics();
const MetricInfo& info(Metric m);
/// nullptr when there is no such metric.
const MetricInfo* find_metric(std::string_view name);
/// find_metric, or ArgumentError with the closest names.
const MetricInfo& metric_named(std::string_view name);

struct CategoryInfo {
  Category id{};
  std::string_view name, title;
  std::string_view collector;  ///< who collects its metrics
};
std::span<const CategoryInfo> categories();

/// Where a value came from.
enum class Source : std::uint8_t {
  measured,   ///< a clock, a sensor
  counted,    ///< exact counts: hardware counters, single steps, the emulator, records of a trace
  simulated,  ///< a model of a cache or predictor
  derived,    ///< computed from other metrics
  declared,   ///< a property of the program or the device: launch shapes, data sheets
};
std::string_view name(Source s);
std::optional<Source> parse_source(std::string_view s);

using Triple = std::array<std::uint64_t, 3>;
using Value = std::variant<double, bool, std::string, Triple, std::map<std::string, std::uint64_t>>;

struct Reading {
  std::optional<Value> held;
  Source source = Source::measured;
  std::string from;  ///< the collector: "CUPTI range profiler", "/proc/PID/status"
  std::string why_absent = "it was not collected";

  bool present() const { return held.has_value(); }
  /// The number (a flag as 0 or 1); throws Unsupported with the reason when absent, ArgumentError when the
  /// metric is no number.
  double number() const;
};

class MetricSet {
 public:
  /// A value that cannot be (plausible.h) makes the metric absent with the reason. Throws ArgumentError when the value
  /// is not of the metric's type or not finite.
  void set(Metric m, Value value, Source source, std::string from);
  /// Keeps a value that is there already: a collector that fails does not erase another's result.
  void absent(Metric m, std::string why);
  /// Takes a value out that turned out to be wrong.
  void remove(Metric m, std::string why);
  /// Of what nobody set: absent, with the collector that would have.
  const Reading& operator[](Metric m) const;
  bool has(Metric m) const { return (*this)[m].present(); }
  std::size_t present_count() const;
  /// Values of `other` where this has none.
  void merge(const MetricSet& other);
  /// Fills what follows from other values: rates from time, ridge, bound, efficiency, shares of memory,
  /// watts. `flops` and `bytes` of one run where they are known, else 0.
  void derive(double flops = 0, double bytes = 0);

 private:
  std::map<Metric, Reading> readings_;
};

}  // namespace cgp::measure
