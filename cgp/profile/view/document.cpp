// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/view/document.h"

#include <cxxabi.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/plausible.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::profile {
namespace {

using measure::Metric;
using measure::MetricType;
using measure::Source;
using nlohmann::ordered_json;
using text::cat;

constexpr const char* kSchema = "cgp.profile/1";

ordered_json to_json(const measure::Value& value) {
  return std::visit([](const auto& v) { return ordered_json(v); }, value);
}

ordered_json to_json(const measure::MetricInfo& info, const measure::Reading& r) {
  ordered_json j;
  if (r.present()) {
    const bool whole =
        info.type == MetricType::count && std::get<double>(*r.held) >= 0 && std::get<double>(*r.held) < 9e15;
    j["value"] = whole ? ordered_json(std::uint64_t(std::get<double>(*r.held) + 0.5)) : to_json(*r.held);
  } else {
    j["value"] = nullptr;
  }
  if (!info.unit.empty()) j["unit"] = info.unit;
  if (r.present()) {
    j["source"] = measure::name(r.source);
    j["from"] = r.from;
  } else {
    j["absent"] = r.why_absent;
  }
  return j;
}

measure::Value value_of(const measure::MetricInfo& info, const ordered_json& v) {
  switch (info.type) {
    case MetricType::real:
    case MetricType::count:
      return v.get<double>();
    case MetricType::flag:
      return v.get<bool>();
    case MetricType::text:
      return v.get<std::string>();
    case MetricType::triple:
      return v.get<measure::Triple>();
    case MetricType::map:
      break;
  }
  return v.get<std::map<std::string, std::uint64_t>>();
}

/// What cannot be is absent then, with a note.
measure::MetricSet metrics_from(const ordered_json& all, std::vector<std::string>& notes) {
  measure::MetricSet m;
  for (const auto& [name, r] : all.items()) {
    const measure::MetricInfo* info = measure::find_metric(name);
    if (!info) continue;  // of a newer version
    const std::string unit = r.value("unit", std::string(info->unit));
    if (!r.contains("value") || r["value"].is_null())
      m.absent(info->id, r.value("absent", measure::Reading().why_absent));
    else if (unit != info->unit)
      m.remove(info->id, cat("the file gives it in \"", unit, "\", not in \"", info->unit, "\""));
    else
      m.set(info->id, value_of(*info, r["value"]),
            measure::parse_source(r.value("source", "")).value_or(measure::Source::measured),
            r.value("from", ""));
    if (r.contains("value") && !r["value"].is_null() && !m.has(info->id))
      notes.push_back(cat("the file's ", name, " is left out: ", m[info->id].why_absent));
  }
  for (auto& why : measure::remove_contradictions(m)) notes.push_back(std::move(why));
  return m;
}

/// Derived anew each time a profile is written; nothing reads it back.
ordered_json summary_json(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  ordered_json j = {{"mean", measure::mean(values)}, {"stddev", measure::stddev(values)}};
  for (const auto& [name, q] :
       {std::pair{"min", 0.0}, {"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1.0}})
    j[name] = measure::quantile(values, q);
  return j;
}

ordered_json to_json(const KernelUse& k) {
  ordered_json j = {{"name", k.name},
                    {"short_name", short_name(k.name)},
                    {"launches", k.launches},
                    {"grid", k.grid},
                    {"block", k.block},
                    {"registers_per_thread", k.registers},
                    {"static_shared_bytes", k.static_shared},
                    {"dynamic_shared_bytes", k.dynamic_shared},
                    {"local_bytes_per_thread", k.local_bytes},
                    {"total_us", k.total_us()},
                    {"us", k.us}};
  if (!k.counters.empty()) j["counters"] = k.counters;
  if (k.metrics.present_count()) {
    j["metrics"] = ordered_json::object();
    for (const auto& info : measure::metrics())
      if (k.metrics.has(info.id)) j["metrics"][std::string(info.name)] = to_json(info, k.metrics[info.id]);
  }
  return j;
}

KernelUse kernel_from(const ordered_json& j, std::vector<std::string>& notes) {
  KernelUse k;
  k.name = j.at("name");
  k.launches = j.value("launches", std::uint64_t(0));
  k.grid = j.value("grid", measure::Triple{}), k.block = j.value("block", measure::Triple{});
  k.registers = j.value("registers_per_thread", std::uint64_t(0));
  k.static_shared = j.value("static_shared_bytes", std::uint64_t(0));
  k.dynamic_shared = j.value("dynamic_shared_bytes", std::uint64_t(0));
  k.local_bytes = j.value("local_bytes_per_thread", std::uint64_t(0));
  k.us = j.value("us", std::vector<double>{});
  k.counters = j.value("counters", std::map<std::string, double>{});
  if (j.contains("metrics")) k.metrics = metrics_from(j["metrics"], notes);
  return k;
}

/// The time and the number of samples that a profile states are those of its samples.
void check_samples(const Document& d, measure::MetricSet& m, std::vector<std::string>& notes) {
  double least = INFINITY, most = 0;
  std::size_t count = 0;
  for (const auto& s : d.samples) {
    if (s.unit != "us" || s.values.empty()) continue;
    const auto [low, high] = std::minmax_element(s.values.begin(), s.values.end());
    least = std::min(least, *low), most = std::max(most, *high), count += s.values.size();
  }
  const auto remove = [&](Metric metric, const std::string& why) {
    m.remove(metric, why);
    notes.push_back(why);
  };
  if (count == 0) return;
  if (m.has(Metric::wall_clock_time_us))
    if (const double us = m[Metric::wall_clock_time_us].number(); us < 0.99 * least || us > 1.01 * most)
      remove(Metric::wall_clock_time_us,
             cat("wall_clock_time_us (", us, " us) lies outside its samples, ", least, " to ", most, " us"));
  if (m.has(Metric::samples) && m[Metric::samples].number() > double(count))
    remove(Metric::samples,
           cat("samples (", m[Metric::samples].number(), ") are more than the ", count, " that are there"));
}

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> keys{"schema",  "version",     "kind",    "name",    "command",
                                             "time",    "machine_key", "machine", "metrics", "samples",
                                             "kernels", "waste",       "notes"};
  return keys;
}

}  // namespace

double KernelUse::total_us() const {
  double sum = 0;
  for (double t : us) sum += t;
  return sum;
}

const Samples* Document::find_samples(std::string_view wanted) const {
  for (const auto& s : samples)
    if (s.name == wanted) return &s;
  return nullptr;
}

std::vector<double> process_medians(const Samples& s) {
  std::vector<double> medians;
  std::span<const double> rest(s.values);
  for (std::size_t n : s.processes) {
    medians.push_back(measure::median(rest.first(n)));
    rest = rest.subspan(n);
  }
  return medians;
}

std::string utc_now() {
  const time_t t = time(nullptr);
  tm parts{};
  gmtime_r(&t, &parts);
  char out[32];
  strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return out;
}

Document new_document(std::string kind, std::string name, std::vector<std::string> command) {
  Document d;
  d.kind = std::move(kind), d.name = std::move(name), d.command = std::move(command);
  d.time = utc_now();
  const auto m = measure::machine_facts();
  d.machine_key = m.key();
  d.machine = {{"cpu", m.cpu},       {"cores", m.cores},           {"features", m.features},
               {"kernel", m.kernel}, {"hypervisor", m.hypervisor}, {"memory_bytes", m.memory_bytes},
               {"cgroup", m.cgroup}, {"numa_nodes", m.numa_nodes}};
  for (const auto& [level, bytes] : m.caches) d.machine["caches"][level] = bytes;
  return d;
}

ordered_json to_json(const measure::MetricSet& m) {
  ordered_json j = ordered_json::object();
  for (const auto& info : measure::metrics()) j[std::string(info.name)] = to_json(info, m[info.id]);
  return j;
}

ordered_json to_json(const Document& d) {
  auto metrics = d.metrics;
  auto notes = d.notes;
  for (auto& why : measure::remove_contradictions(metrics)) notes.push_back(std::move(why));
  check_samples(d, metrics, notes);
  ordered_json j = {{"schema", kSchema},
                    {"version", "2.1"},
                    {"kind", d.kind},
                    {"name", d.name},
                    {"command", d.command},
                    {"time", d.time},
                    {"machine_key", d.machine_key},
                    {"machine", d.machine},
                    {"metrics", to_json(metrics)}};
  j["samples"] = ordered_json::array();
  for (const auto& s : d.samples) {
    j["samples"].push_back(
        {{"name", s.name}, {"unit", s.unit}, {"values", s.values}, {"summary", summary_json(s.values)}});
    if (!s.processes.empty()) j["samples"].back()["processes"] = s.processes;
  }
  j["kernels"] = ordered_json::array();
  for (const auto& k : d.kernels) j["kernels"].push_back(to_json(k));
  j["waste"] = ordered_json::array();
  for (const auto& w : d.waste)
    j["waste"].push_back({{"kind", w.kind},
                          {"title", w.title},
                          {"kernel", w.kernel},
                          {"impact_pct", w.percent},
                          {"evidence", w.evidence},
                          {"advice", w.advice},
                          {"source", measure::name(w.source)}});
  j["notes"] = notes;
  for (const auto& [key, value] : d.more.items()) j[key] = value;
  return j;
}

Document from_json(const ordered_json& j, const std::string& origin) {
  const auto refuse = [&](const std::string& why) {
    throw ParseError(ErrorText{"the file must be a profile of cgp", origin, why,
                               "cgp time, cgp profile and cgp roofline write them with --save"});
  };
  if (!j.is_object() || j.value("schema", "") != kSchema)
    refuse(j.is_object() && j.contains("schema")
               ? cat("its schema is ", spec::dumped(j["schema"]), ", not \"", kSchema, "\"")
               : "it has no schema");
  Document d;
  try {
    d.kind = j.at("kind"), d.name = j.at("name");
    d.command = j.value("command", std::vector<std::string>{});
    d.time = j.value("time", ""), d.machine_key = j.value("machine_key", "");
    if (j.contains("machine")) d.machine = j["machine"];
    std::vector<std::string> wrong;
    d.metrics = metrics_from(j.at("metrics"), wrong);
    for (const auto& s : j.value("samples", ordered_json::array())) {
      d.samples.push_back({s.at("name"), s.value("unit", ""), s.at("values").get<std::vector<double>>(),
                           s.value("processes", std::vector<std::size_t>{})});
      const auto& of = d.samples.back();
      for (double v : of.values)
        if (of.unit == "us" && !(v > 0))
          refuse(cat("the samples \"", of.name, "\" have a time of ", v, " us"));
      std::size_t counted = 0;
      bool some = true;
      for (std::size_t n : of.processes) some = some && n > 0 && n <= of.values.size(), counted += n;
      if (!of.processes.empty() && (!some || counted != of.values.size()))
        refuse(cat("the samples \"", of.name, "\" are not as many as their processes have"));
    }
    for (const auto& k : j.value("kernels", ordered_json::array()))
      d.kernels.push_back(kernel_from(k, wrong));
    for (const auto& w : j.value("waste", ordered_json::array()))
      d.waste.push_back({w.value("kind", ""), w.value("title", ""), w.value("kernel", ""),
                         w.value("evidence", ""), w.value("advice", ""), w.value("impact_pct", 0.0),
                         measure::parse_source(w.value("source", "")).value_or(measure::Source::counted)});
    d.notes = j.value("notes", std::vector<std::string>{});
    check_samples(d, d.metrics, wrong);
    d.notes.insert(d.notes.end(), wrong.begin(), wrong.end());
  } catch (const nlohmann::json::exception& e) {
    refuse(e.what());
  }
  for (const auto& [key, value] : j.items())
    if (std::find(known_keys().begin(), known_keys().end(), key) == known_keys().end()) d.more[key] = value;
  return d;
}

void add_times(Document& d, const std::string& name, std::vector<double> us, const std::string& from,
               std::vector<std::size_t> processes) {
  const Samples samples{name, "us", std::move(us), std::move(processes)};
  const auto medians = process_medians(samples);
  d.samples.push_back(samples);
  if (!medians.empty()) {
    const std::string of = cat(from, ", geometric mean of the medians of ", medians.size(), " processes");
    d.metrics.set(Metric::wall_clock_time_us, measure::geometric_mean(medians), Source::measured, of);
    d.metrics.set(Metric::samples, double(samples.values.size()), Source::counted, from);
    d.metrics.set(Metric::stddev_us, measure::stddev(samples.values), Source::measured, from);
    const auto interval = measure::process_interval(medians);
    const std::string method = "Student's t on the logarithms of the processes' medians";
    for (const auto& [m, v] : {std::pair{Metric::ci_95_low_us, interval ? interval->low : 0},
                               {Metric::ci_95_high_us, interval ? interval->high : 0}})
      if (interval)
        d.metrics.set(m, v, Source::measured, method);
      else
        d.metrics.absent(m, cat(medians.size(), " processes are too few for it"));
    return;
  }
  us = samples.values;
  d.metrics.set(Metric::wall_clock_time_us, measure::median(us), Source::measured, from);
  d.metrics.set(Metric::samples, double(us.size()), Source::counted, from);
  if (us.size() > 1)
    d.metrics.set(Metric::stddev_us, measure::stddev(us), Source::measured, from);
  else
    d.metrics.absent(Metric::stddev_us, "one sample has no spread");
  if (const auto interval = measure::known_median_interval(us)) {
    d.metrics.set(Metric::ci_95_low_us, interval->low, Source::measured, from);
    d.metrics.set(Metric::ci_95_high_us, interval->high, Source::measured, from);
  } else {
    for (Metric m : {Metric::ci_95_low_us, Metric::ci_95_high_us})
      d.metrics.absent(m, cat(us.size(), us.size() == 1 ? " sample is" : " samples are", " too few for it"));
  }
}

std::string interval_text(const measure::MetricSet& m) {
  if (m.has(Metric::ci_95_low_us))
    return cat(" [", time_text(m[Metric::ci_95_low_us].number()), ", ",
               time_text(m[Metric::ci_95_high_us].number()), "]");
  return m.has(Metric::samples) ? cat(" (95 % interval: ", m[Metric::ci_95_low_us].why_absent, ")") : "";
}

void save(const Document& d, const std::string& path) {
  write_file(path, spec::dumped(to_json(d), 1) + "\n");
}

ordered_json parsed(const std::string& content, const std::string& origin) {
  if (spec::too_deep(content) != content.npos)
    throw ParseError(ErrorText{"a profile is JSON of at most 200 levels", origin, "it is nested deeper", {}});
  try {
    return ordered_json::parse(content);
  } catch (const nlohmann::json::parse_error& e) {
    throw ParseError(ErrorText{"a profile is JSON", origin, e.what(), {}});
  }
}

std::vector<ordered_json> rows_in(const ordered_json& j, const char* list) {
  std::vector<ordered_json> rows;
  if (j.is_object() && j.contains(list) && j[list].is_array())
    std::copy_if(j[list].begin(), j[list].end(), std::back_inserter(rows),
                 [](const auto& r) { return r.is_object(); });
  return rows;
}

double number_in(const ordered_json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_number() ? j[key].get<double>() : std::nan("");
}

Document load(const std::string& path) { return from_json(parsed(read_file(path), path), path); }

ordered_json json_schema() {
  const auto type_of = [](MetricType t) -> ordered_json {
    switch (t) {
      case MetricType::real:
        return {{"type", {"number", "null"}}};
      case MetricType::count:
        return {{"type", {"integer", "null"}}, {"minimum", 0}};
      case MetricType::flag:
        return {{"type", {"boolean", "null"}}};
      case MetricType::text:
        return {{"type", {"string", "null"}}};
      case MetricType::triple:
        return {
            {"type", {"array", "null"}}, {"items", {{"type", "integer"}}}, {"minItems", 3}, {"maxItems", 3}};
      case MetricType::map:
        break;
    }
    return {{"type", {"object", "null"}}, {"additionalProperties", {{"type", "integer"}}}};
  };
  ordered_json metrics = ordered_json::object();
  for (const auto& m : measure::metrics()) {
    ordered_json one = {{"type", "object"}, {"description", m.text}, {"required", {"value"}}};
    one["properties"] = {
        {"value", type_of(m.type)},
        {"unit", m.unit.empty() ? ordered_json({{"type", "string"}}) : ordered_json({{"const", m.unit}})},
        {"source", {{"enum", {"measured", "counted", "simulated", "derived", "declared"}}}},
        {"from", {{"type", "string"}}},
        {"absent", {{"type", "string"}}}};
    // a value has a source, no value has a reason
    one["if"] = {{"properties", {{"value", {{"type", "null"}}}}}};
    one["then"] = {{"required", {"absent"}}};
    one["else"] = {{"required", {"source", "from"}}};
    metrics[std::string(m.name)] = one;
  }
  ordered_json j = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                    {"title", "A profile written by cgp"},
                    {"type", "object"},
                    {"required", {"schema", "kind", "name", "time", "machine_key", "metrics", "samples"}}};
  j["properties"] = {
      {"schema", {{"const", kSchema}}},
      {"kind", {{"type", "string"}}},
      {"samples",
       {{"type", "array"}, {"items", {{"type", "object"}, {"required", {"name", "unit", "values"}}}}}},
      {"metrics", {{"type", "object"}, {"properties", metrics}, {"additionalProperties", false}}}};
  return j;
}

std::string short_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  // ncu and nsys give names as they are written in C++: "void f<int>(float *)".
  if ((status != 0 || !text) && mangled.find('(') == std::string::npos) return mangled;
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  // Without template and call arguments and the return type; "(anonymous namespace)::" is no call.
  for (std::size_t at; (at = name.find("(anonymous namespace)::")) != std::string::npos;) name.erase(at, 23);
  std::string flat;
  int depth = 0;
  for (char c : name) {
    if (c == '<') ++depth;
    if (c == '(' && depth == 0) break;
    if (depth == 0) flat += c;
    if (c == '>') --depth;
  }
  if (const auto space = flat.rfind(' '); space != std::string::npos) flat.erase(0, space + 1);
  return flat.empty() ? name : flat;
}

}  // namespace cgp::profile
