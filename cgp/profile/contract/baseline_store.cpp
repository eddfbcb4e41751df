// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/contract/baseline_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using text::cat;

ordered_json noise_file(const std::string& path) {
  if (!fs::exists(path)) return ordered_json::object();
  auto j = parsed(read_file(path), path);
  return j.is_object() ? j : ordered_json::object();
}

/// Seconds of a unit of time; 0 for another unit.
double seconds_of(const std::string& unit) {
  return unit == "s"                    ? 1
         : unit == "ms"                 ? 1e-3
         : unit == "us" || unit == "µs" ? 1e-6
         : unit == "ns"                 ? 1e-9
                                        : 0;
}

/// Why the two cannot be compared; empty: `b` is now in the unit of `a`.
std::string made_alike(const Samples& a, Samples& b) {
  if (a.unit != b.unit) {
    const double from = seconds_of(b.unit), to = seconds_of(a.unit);
    if (from == 0 || to == 0) return fmt::format("one is in \"{}\", the other in \"{}\"", a.unit, b.unit);
    for (double& v : b.values) v *= from / to;
    b.unit = a.unit;
  }
  for (const Samples* s : {&a, static_cast<const Samples*>(&b)})
    for (double v : s->values)
      if (!(v > 0) || !std::isfinite(v)) return fmt::format("{} {} is no measurement", v, s->unit);
  return {};
}

/// Both sides are several fresh processes: what differs between identical ones is in the data, and no floor is
/// needed. Level 0.5 %, since each row of a comparison is another chance of a false alarm.
void judge_processes(const std::vector<double>& a, const std::vector<double>& b, bool rate, double least,
                     FileDiff& d) {
  std::vector<double> la, lb;
  for (double v : a) la.push_back(std::log(v));
  for (double v : b) lb.push_back(std::log(v));
  d.before = measure::geometric_mean(a), d.after = measure::geometric_mean(b);
  d.change = d.after / d.before - 1;
  const double p = measure::welch_p(la, lb);
  const double va = std::pow(measure::stddev(la), 2) / double(a.size()),
               vb = std::pow(measure::stddev(lb), 2) / double(b.size());
  d.floor = std::max(least, 3 * std::sqrt(va + vb));  // what so many processes could have shown
  const std::string numbers =
      fmt::format("{} and {} processes, Welch's test: p {:.4f}", a.size(), b.size(), p);
  if (p < 0.005 && std::fabs(d.change) > least) {
    const bool worse = (d.change > 0) != rate;
    d.verdict = worse ? "SUSPECT" : "IMPROVED";
    d.why =
        numbers +
        (worse ? "; the two were not measured side by side: cgp diff --left ... --right ... decides" : "");
  } else if (d.floor <= least && std::fabs(d.change) <= least) {
    d.verdict = "NO_CHANGE", d.why = numbers;
  } else {
    d.verdict = "INCONCLUSIVE";
    d.why = fmt::format("{}; a change of less than {:.0f} % is not seen with so few", numbers, 100 * d.floor);
  }
}

FileDiff diff_samples(const Samples& a, Samples b, double floor, double equivalence) {
  FileDiff d;
  d.name = a.name, d.unit = a.unit;
  if (d.why = made_alike(a, b); !d.why.empty()) {
    d.before = measure::median(a.values), d.after = measure::median(b.values);
    d.verdict = "INCOMPARABLE";
    return d;
  }
  const bool rate = a.unit.size() > 2 && a.unit.compare(a.unit.size() - 2, 2, "/s") == 0;  // more is better
  d.before = measure::median(a.values), d.after = measure::median(b.values);
  d.change = d.after / d.before - 1;
  d.floor = floor;
  d.effect = measure::cliffs_delta(a.values, b.values);
  const auto pa = process_medians(a), pb = process_medians(b);
  if (a.values == b.values) {
    d.verdict = "NO_CHANGE", d.why = "the same samples";
  } else if (pa.size() >= 3 && pb.size() >= 3) {
    judge_processes(pa, pb, rate, equivalence, d);
  } else if (a.values.size() < 5 || b.values.size() < 5) {
    d.verdict = "INCONCLUSIVE";
    d.why = fmt::format("{} and {} samples are too few", a.values.size(), b.values.size());
  } else if (std::fabs(d.change) > floor && std::fabs(d.effect) >= 0.6) {
    const bool worse = (d.change > 0) != rate;
    d.verdict = worse ? "SUSPECT" : "IMPROVED";
    d.why = fmt::format(
        "identical runs differ by up to {:.0f} % here{}", 100 * floor,
        worse ? "; the two were not measured side by side: cgp diff --left ... --right ... decides" : "");
  } else if (std::fabs(d.change) <= floor && floor <= equivalence) {
    d.verdict = "NO_CHANGE";
  } else {
    d.verdict = "INCONCLUSIVE";
    d.why = fmt::format(
        "identical runs differ by up to {:.0f} % on this machine; cgp diff --left ... --right ... measures "
        "pairs",
        100 * floor);
  }
  return d;
}

}  // namespace

BaselineStore::BaselineStore(std::string folder) : folder_(std::move(folder)) {
  if (!folder_.empty()) return;
  const char* given = std::getenv("CGP_BASELINES");
  folder_ = given && *given ? given : ".cgp";
}

std::string BaselineStore::path(const std::string& name) const {
  if (name.empty() || name.find('/') != std::string::npos || name[0] == '.')
    throw ArgumentError(
        ErrorText{"a baseline's name is a file name without slashes", {}, cat("\"", name, "\""), {}});
  return cat(folder_, "/baselines/", name, ".json");
}

std::vector<std::string> BaselineStore::names() const {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(folder_ + "/baselines", ec))
    if (e.path().extension() == ".json") out.push_back(e.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

Document BaselineStore::load(const std::string& name) const {
  const std::string file = path(name);
  if (!fs::exists(file)) {
    const auto all = names();
    throw ArgumentError(ErrorText{cat("there is no baseline \"", name, "\""), folder_,
                                  all.empty() ? "there are none" : "there are: " + text::join(all, ", "),
                                  "cgp baseline save NAME FILE"});
  }
  return profile::load(file);
}

void BaselineStore::save(const std::string& name, const Document& d, bool force) const {
  const std::string file = path(name);
  if (fs::exists(file) && !force)
    throw ArgumentError(
        ErrorText{cat("the baseline \"", name, "\" exists"), file, {}, "--force replaces it"});
  const std::string kept = cat(folder_, "/history/", name);
  fs::create_directories(folder_ + "/baselines");
  fs::create_directories(kept);
  int n = 1;  // after the last, whatever was removed before it
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(kept, ec))
    if (e.path().extension() == ".json") n = std::max(n, std::atoi(e.path().stem().c_str()) + 1);
  profile::save(d, fmt::format("{}/{:06}.json", kept, n));
  profile::save(d, file);
}

std::vector<Document> BaselineStore::history(const std::string& name) const {
  std::vector<std::string> files;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(cat(folder_, "/history/", name), ec))
    if (e.path().extension() == ".json") files.push_back(e.path().string());
  std::sort(files.begin(), files.end());
  std::vector<Document> out;
  for (const auto& f : files) out.push_back(profile::load(f));
  if (out.empty()) load(name);  // throws with the names there are
  return out;
}

std::optional<double> BaselineStore::noise_floor(const std::string& machine_key) const {
  const auto j = noise_file(folder_ + "/noise.json");
  if (!j.contains(machine_key) || !j[machine_key].is_number()) return std::nullopt;
  const double share = j[machine_key].get<double>();
  return share >= 0 ? std::optional(share) : std::nullopt;  // above 1 on machines that are that noisy
}

void BaselineStore::set_noise_floor(const std::string& machine_key, double share) const {
  auto j = noise_file(folder_ + "/noise.json");
  j[machine_key] = share;
  fs::create_directories(folder_);
  write_file(folder_ + "/noise.json", spec::dumped(j, 1) + "\n");
}

namespace {

/// Counters that are the same every time a kernel runs on the same data.
bool repeats(const std::string& counter) {
  for (const char* part : {"inst_executed", "bank_conflicts", "branch_targets_threads_divergent",
                           "launch__registers_per_thread", "sass__memory_"})
    if (counter.find(part) != std::string::npos)
      return counter.find(".sum") == counter.size() - 4 || counter.find('.') == std::string::npos;
  return false;
}

/// Kernels of the same name: less is better of all that is compared.
void diff_counters(const KernelUse& a, const KernelUse& b, std::vector<FileDiff>& out) {
  for (const auto& [counter, before] : a.counters) {
    const auto after = b.counters.find(counter);
    if (after == b.counters.end() || !repeats(counter)) continue;
    FileDiff d;
    d.name = cat(fmt::format("{:.24}", short_name(a.name)), ": ", counter);
    d.before = before, d.after = after->second, d.floor = 0.001;
    d.change = before > 0 ? d.after / before - 1 : d.after > 0 ? INFINITY : 0;
    if (d.before == 0 && d.after == 0) continue;
    const bool same = std::fabs(d.change) <= d.floor;
    d.verdict = same ? "NO_CHANGE" : d.change > 0 ? "REGRESSION" : "IMPROVED";
    if (!same) d.why = "exact counts";
    out.push_back(std::move(d));
  }
}

}  // namespace

std::vector<FileDiff> diff_documents(const Document& before, const Document& after, double floor,
                                     double equivalence) {
  std::vector<FileDiff> out;
  const bool comparable = before.machine_key == after.machine_key;
  const std::string machines =
      cat("measured on \"", before.machine_key, "\" and on \"", after.machine_key, "\"");
  for (const auto& a : before.samples) {
    const Samples* b = after.find_samples(a.name);
    if (!b || a.values.empty() || b->values.empty()) continue;
    FileDiff d = diff_samples(a, *b, floor, equivalence);
    if (!comparable) d.verdict = "INCOMPARABLE", d.why = machines;
    out.push_back(std::move(d));
  }
  // Exact counts need no statistics and no quiet machine.
  for (const auto& info : measure::metrics()) {
    const bool exact = info.type == measure::MetricType::count && info.better != measure::Better::none;
    const auto &a = before.metrics[info.id], &b = after.metrics[info.id];
    if (!exact || !a.present() || !b.present() || a.source != measure::Source::counted ||
        b.source != measure::Source::counted)
      continue;
    if (info.id != measure::Metric::instructions && info.id != measure::Metric::shared_bank_conflicts &&
        info.id != measure::Metric::divergent_branches &&
        info.id != measure::Metric::sass_instruction_count &&
        info.id != measure::Metric::register_usage_per_thread && info.id != measure::Metric::total_syscalls)
      continue;
    FileDiff d;
    d.name = info.name, d.unit = info.unit;
    d.before = a.number(), d.after = b.number();
    d.change = d.before > 0 ? d.after / d.before - 1 : d.after > 0 ? INFINITY : 0;
    d.floor = a.from == b.from ? 0.001 : 0;
    if (a.from != b.from)
      d.verdict = "INCOMPARABLE", d.why = cat("counted by ", a.from, " and by ", b.from);
    else if (std::fabs(d.change) <= d.floor)
      d.verdict = "NO_CHANGE";
    else
      d.verdict = (d.change > 0) == (info.better == measure::Better::lower) ? "REGRESSION" : "IMPROVED",
      d.why = "exact counts";
    out.push_back(std::move(d));
  }
  for (const auto& a : before.kernels)
    for (const auto& b : after.kernels)
      if (a.name == b.name) diff_counters(a, b, out);
  return out;
}

}  // namespace cgp::profile
