// SPDX-License-Identifier: Apache-2.0
// cgp baseline: saved profiles by name, their history with changepoints, and the noise floor of this machine.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/series.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using profile::time_text;

std::vector<double> block(const std::function<void()>& f) {
  std::vector<double> v;
  for (int i = 0; i < 15; ++i) {
    const double start = measure::now();
    f();
    v.push_back(measure::now() - start);
  }
  return v;
}

/// Medians of blocks of identical work, some time apart: the 99th percentile of how much two of them differ.
double calibrate(Progress& progress) {
  std::vector<double> memory(1 << 21, 1.0);
  const auto compute = [] {
    double x = 1;
    for (int i = 0; i < 300000; ++i) x = x * 1.0000001 + 1e-9;
    measure::keep(x);
  };
  const auto stream = [&] {
    for (double& x : memory) x += 1;
    measure::keep(memory[0]);
  };
  double floor = 0;
  for (const std::function<void()>& f : {std::function<void()>(compute), std::function<void()>(stream)}) {
    std::vector<double> medians, changes;
    for (int i = 0; i < 24; ++i) {
      progress.step(format("block {} of 24", i + 1));
      medians.push_back(measure::median(block(f)));
    }
    for (std::size_t i = 0; i < medians.size(); ++i)
      for (std::size_t j = i + 1; j < medians.size(); ++j)
        changes.push_back(std::fabs(medians[j] / medians[i] - 1));
    floor = std::max(floor, measure::quantile(changes, 0.99));
  }
  return floor;
}

int show_history(const Context& context, const BaselineOptions& o, const profile::BaselineStore& store) {
  const auto all = store.history(o.name);
  std::vector<double> logs;
  profile::Table table({"#", "<time", "median", "<"});
  nlohmann::ordered_json j = {
      {"schema", "cgp.history/1"}, {"name", o.name}, {"points", nlohmann::ordered_json::array()}};
  std::vector<const profile::Document*> timed;
  for (const auto& d : all) {
    if (!d.metrics.has(Metric::wall_clock_time_us) || !(d.metrics[Metric::wall_clock_time_us].number() > 0))
      continue;
    timed.push_back(&d);
    logs.push_back(std::log(d.metrics[Metric::wall_clock_time_us].number()));
  }
  const auto steps = measure::changepoints(logs), cross = measure::energy_changepoints(logs);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const bool step = std::find(steps.begin(), steps.end(), i) != steps.end();
    const bool agreed =
        std::any_of(cross.begin(), cross.end(), [&](std::size_t c) { return c + 1 >= i && c <= i + 1; });
    const double us = timed[i]->metrics[Metric::wall_clock_time_us].number();
    table.row({std::to_string(i + 1), timed[i]->time, time_text(us),
               step ? (agreed ? "<- step (PELT and E-divisive)" : "<- step (PELT alone)") : ""});
    j["points"].push_back({{"time", timed[i]->time}, {"us", us}, {"step", step}, {"agreed", step && agreed}});
  }
  write_out(context.json ? spec::dumped(j, 2) + "\n"
                         : table.text() +
                               (timed.size() < all.size()
                                    ? format("{} saved without a time\n", all.size() - timed.size())
                                    : "") +
                               (timed.size() < 10 ? "a step needs 5 points on each side\n" : ""));
  return kClean;
}

}  // namespace

int baseline(const Context& context, const BaselineOptions& o) {
  const profile::BaselineStore store(o.folder);
  if (o.action == "calibrate") {
    double floor = 0;
    {
      Progress progress;
      floor = calibrate(progress);
    }
    const std::string key = measure::machine_facts().key();
    store.set_noise_floor(key, floor);
    if (context.json)
      write_out(spec::dumped(nlohmann::ordered_json(
                                 {{"schema", "cgp.noise/1"}, {"machine_key", key}, {"noise_floor", floor}}),
                             2) +
                "\n");
    else
      write_out(format(
          "identical runs differ by up to {:.1f} % here ({})\n{}\n", 100 * floor, key,
          floor > 0.03
              ? "saved profiles can show large changes only: compare with pairs (cgp diff --left --right)"
              : "saved profiles can be compared"));
    return kClean;
  }
  if (o.action == "list") {
    nlohmann::ordered_json j = {{"schema", "cgp.baselines/1"}, {"names", store.names()}};
    std::string out;
    for (const auto& n : store.names()) {
      const auto d = store.load(n);
      out += format("{:<24} {}  {}  {}\n", n, d.time,
                    d.metrics.has(Metric::wall_clock_time_us)
                        ? time_text(d.metrics[Metric::wall_clock_time_us].number())
                        : "-",
                    d.name);
    }
    write_out(context.json  ? spec::dumped(j, 2) + "\n"
              : out.empty() ? format("none in {}\n", store.folder())
                            : out);
    return kClean;
  }
  if (o.name.empty())
    throw ArgumentError(ErrorText{"a baseline has a name", {}, {}, "cgp baseline save NAME FILE"});
  if (o.action == "save") {
    if (o.file.empty())
      throw ArgumentError(
          ErrorText{"which profile is saved must be said", {}, {}, "cgp baseline save NAME FILE"});
    store.save(o.name, profile::load_any(o.file), o.force);
    write_out(context.json ? "{\"schema\": \"cgp.baselines/1\"}\n"
                           : format("saved {} in {}\n", o.name, store.folder()));
    return kClean;
  }
  if (o.action == "history") return show_history(context, o, store);
  write_out(spec::dumped(profile::to_json(store.load(o.name)), 2) + "\n");
  return kClean;
}

}  // namespace cgp::cli
