// SPDX-License-Identifier: Apache-2.0
// cgp tune gemm: times the candidates on the user's device and keeps the winners; --report says what the cost
// model costs, from measurements of this run or of files.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/runtime/device.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/tune/gemm_measure.h"
#include "cgp/tune/gemm_plan.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using nlohmann::ordered_json;
using Times = std::map<std::string, std::map<std::string, double>>;  // microseconds by problem and variant

// Rows `gemm/...` of files in the format of results/: the same problem once for each variant.
Times read_times(const std::vector<std::string>& files) {
  Times times;
  for (const auto& file : files) try {
      const auto j = nlohmann::json::parse(read_file(file));
      for (const auto& row : j.at("rows")) {
        const std::string name = row.at("name"), variant = row.at("variant");
        if (name.rfind("gemm/", 0) != 0) continue;
        const std::vector<double> ms = row.at("timings").at(0).at("ms");
        times[name.substr(5)][variant] = measure::median(ms) * 1e3;
      }
    } catch (const nlohmann::json::exception& e) {
      throw ArgumentError(
          {text::cat(file, " is not a file of measurements"), {}, e.what(), "cgp tune gemm --out FILE"});
    }
  return times;
}

ordered_json report_json(const std::vector<kernels::GemmRegret>& all) {
  ordered_json j = ordered_json::array();
  for (const auto& r : all)
    j.push_back({{"problem", r.key},
                 {"chosen", r.chosen},
                 {"chosen_us", r.chosen_us},
                 {"fastest", r.fastest},
                 {"fastest_us", r.fastest_us},
                 {"regret", r.regret()}});
  return j;
}

std::string report_text(std::vector<kernels::GemmRegret> all) {
  if (all.empty()) return "no problem whose choice was measured\n";
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& x, const auto& y) { return x.regret() > y.regret(); });
  double logs = 0;
  std::string out = fmt::format("{:<30} {:>8} {:>10} {:>10}  chosen, and what was faster\n", "problem",
                                "regret", "chosen us", "fastest us");
  for (const auto& r : all) {
    logs += std::log1p(r.regret());
    out += fmt::format("{:<30} {:>7.1f}% {:>10.1f} {:>10.1f}  {}{}\n", r.key, 100 * r.regret(), r.chosen_us,
                       r.fastest_us, r.chosen, r.chosen == r.fastest ? "" : ", " + r.fastest);
  }
  return out + fmt::format("\nregret of the cost model over {} problems: mean {:.2f} %, most {:.1f} % ({})\n",
                           all.size(), 100 * std::expm1(logs / double(all.size())), 100 * all[0].regret(),
                           all[0].key);
}

int report(const Context& context, const TuneOptions& o) {
  const auto all = kernels::gemm_regret(read_times(o.files), tune::device_for_arch(o.arch));
  if (context.json)
    write_out(spec::dumped(ordered_json{{"schema", "cgp.regret/1"}, {"problems", report_json(all)}}, 2) +
              "\n");
  else
    write_out(report_text(all));
  return kClean;
}

}  // namespace

int tune(const Context& context, const TuneOptions& o) {
  if (o.what != "gemm")
    throw ArgumentError({"there is a tuner of gemm", {}, text::cat("asked for ", o.what), "cgp tune gemm"});
  if (o.report && !o.files.empty()) return report(context, o);
  const auto problems = tune::gemm_problems(o.problems);
  const auto device = runtime::Device::open(o.device);
  const auto& info = device.info();
  tune::GemmMeasure measure(device, false);
  std::string unreadable;
  (void)kernels::load_gemm_table(info, &unreadable);
  kernels::GemmTable found;
  if (!unreadable.empty()) std::fputs(fmt::format("cgp: {}\nit is replaced\n", unreadable).c_str(), stderr);
  ordered_json rows = ordered_json::array();
  Times times;
  Progress progress;
  for (const auto& p : problems) {
    const auto key = kernels::gemm_key(p);
    progress.step(key);
    std::string selected;
    const auto all = measure.candidates(p, o.rounds ? o.rounds : 20, selected);
    std::string line;
    for (const auto& t : all) {
      if (!t.failure.empty()) {
        std::fputs(fmt::format("cgp: {}: {}: {}\n", key, t.choice.variant.name, t.failure).c_str(), stderr);
        continue;
      }
      times[key][t.choice.variant.name] = t.timing.summary.median * 1e3;
      rows.push_back({{"name", "gemm/" + key},
                      {"variant", t.choice.variant.name},
                      {"flops", p.flops()},
                      {"bytes", tune::gemm_floor(p, info).bytes},
                      {"predicted_us", t.choice.microseconds},
                      {"timings", {{{"name", "cgp"}, {"ms", t.timing.milliseconds}}}}});
    }
    if (all.empty() || !all[0].failure.empty()) continue;
    const double best = all[0].timing.summary.median * 1e3,
                 own = times[key].count(selected) ? times[key][selected] : 0;
    found.set(key, {all[0].choice.variant.config, std::round(best * 100) / 100});
    if (!context.json)
      write_out(fmt::format("{:<30} {:>9.1f} us {:>8.1f} TFLOP/s  {}{}\n", key, best, p.flops() / best * 1e-6,
                            all[0].choice.variant.name,
                            own > best * 1.005
                                ? fmt::format("  (the model's choice: {:+.1f} %)", 100 * (own / best - 1))
                                : ""));
  }
  if (!o.dry_run) kernels::update_gemm_table(found, info, /*replace=*/true);
  if (!o.table_file.empty()) write_file(o.table_file, found.text());
  const auto from =
      kernels::provenance(info, o.command_line, "interleaved rounds, cold L2, random data, events");
  const auto regrets = kernels::gemm_regret(times, info);
  ordered_json j = {
      {"schema", "cgp.tune/1"}, {"gpu", from.gpu}, {"driver", from.driver}, {"date", from.date},
      {"commit", from.commit},  {"how", from.how}, {"rows", rows},          {"regret", report_json(regrets)}};
  j["table"] = o.dry_run ? ordered_json() : ordered_json(kernels::gemm_table_path(info));
  if (!o.output.empty()) write_file(o.output, spec::dumped(j, 2) + "\n");
  if (context.json) {
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    if (o.report) write_out("\n" + report_text(regrets));
    if (!o.dry_run)
      write_out(fmt::format("\n{} winners kept in {}\n", found.size(), kernels::gemm_table_path(info)));
  }
  return kClean;
}

}  // namespace cgp::cli
