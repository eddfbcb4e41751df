// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a profile is on disk: one JSON object with the metrics (each with its source or the reason why it is
// absent), the raw samples, the kernels, the waste that was found, and where it was measured.
// docs/profiler.md lists the fields.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::profile {

/// Raw numbers of one measured thing, in order of measurement.
struct Samples {
  std::string name, unit;
  std::vector<double> values;
  std::vector<std::size_t> processes = {};  ///< how many of each fresh process; empty: all of one
};
/// The median of each process; none where there is one process.
std::vector<double> process_medians(const Samples& s);

struct KernelUse {
  std::string name;  ///< as the program has it (mangled)
  std::uint64_t launches = 0;
  measure::Triple grid{}, block{};
  std::uint64_t registers = 0, static_shared = 0, dynamic_shared = 0, local_bytes = 0;
  std::vector<double> us;                  ///< of each launch
  std::map<std::string, double> counters;  ///< hardware counters, mean over the launches that were counted
  measure::MetricSet metrics;
  double total_us() const;
};

/// One kind of waste (docs/profiler.md, "Waste").
struct Waste {
  std::string kind;      ///< transport, waiting, overprocessing, inventory, motion, defects, overproduction
  std::string title;     ///< "bank conflicts"
  std::string kernel;    ///< where; may be empty
  std::string evidence;  ///< the numbers
  std::string advice;    ///< what to try
  double percent = 0;    ///< of the time, an estimate between 0 and 100
  measure::Source source = measure::Source::counted;
};

struct Document {
  std::string kind;  ///< "kernel", "binary", "bench", ...
  std::string name;
  std::vector<std::string> command;
  std::string time;         ///< UTC, ISO 8601
  std::string machine_key;  ///< measure::MachineFacts::key(), and the GPU if one was used
  nlohmann::ordered_json machine = nlohmann::ordered_json::object();
  measure::MetricSet metrics;
  std::vector<Samples> samples;
  std::vector<KernelUse> kernels;
  std::vector<Waste> waste;
  std::vector<std::string> notes;
  /// Sections of single commands ("timeline", "comparison", ...), and whatever a newer version wrote: kept as
  /// it was read.
  nlohmann::ordered_json more = nlohmann::ordered_json::object();

  const Samples* find_samples(std::string_view name) const;
};

/// The median of these microseconds with its interval, if they are enough for one, and all of them as
/// samples. Of several processes (`processes` samples each) the geometric mean of their medians, and the interval
/// between processes (measure::process_interval).
void add_times(Document& d, const std::string& name, std::vector<double> us, const std::string& from,
               std::vector<std::size_t> processes = {});
/// " [1.00 ms, 1.10 ms]", or why there is none.
std::string interval_text(const measure::MetricSet& m);

/// With time and machine of now.
Document new_document(std::string kind, std::string name, std::vector<std::string> command = {});

nlohmann::ordered_json to_json(const Document& d);
/// Throws ParseError when it is no profile (`origin` names it).
Document from_json(const nlohmann::ordered_json& j, const std::string& origin);
void save(const Document& d, const std::string& path);
/// Throws ParseError for text that is no JSON, or nested without bounds.
nlohmann::ordered_json parsed(const std::string& content, const std::string& origin);
/// Throws Error when the file cannot be read, ParseError (with line and column) when it is no JSON.
Document load(const std::string& path);

/// The objects in a list of `j`; none where it or the list is something else: sections are read as they were
/// found.
std::vector<nlohmann::ordered_json> rows_in(const nlohmann::ordered_json& j, const char* list);
/// A number of `j`; NaN where there is none.
double number_in(const nlohmann::ordered_json& j, const char* key);

nlohmann::ordered_json to_json(const measure::MetricSet& m);
/// JSON Schema (2020-12) of a profile, from the metric table.
nlohmann::ordered_json json_schema();

std::string utc_now();
/// "void softmax<float, 4>(float*)" -> "softmax"; names that are not mangled stay.
std::string short_name(const std::string& mangled);

}  // namespace cgp::profile
