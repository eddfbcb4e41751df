// SPDX-License-Identifier: Apache-2.0
// cgp profile kernel: one kernel of the catalogue, on a GPU with times and counters, on the emulator with
// exact counters. cgp profile compare: the same problem on several back ends.
#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog.h"
#include "cgp/prof/cupti_plan.h"
#include "json_text.h"
#include "kernel_profile.h"
#include "profile/prediction.h"
#include "profile/quant_profile.h"
#include "profile/table.h"
#include "profile/waste.h"
#include "profiler_commands.h"
#include "terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using prof::Metric;
using profile::Document;
using profile::number_text;
using profile::time_text;
using text::cat;

std::vector<std::string> counters_of(const std::string& set) {
  if (set == "none") return {};
  if (set == "basic") return prof::counters_of(prof::CounterSet::basic);
  if (set == "roofline") return prof::counters_of(prof::CounterSet::roofline);
  if (set == "memory") return prof::counters_of(prof::CounterSet::memory);
  if (set == "stalls") return prof::counters_of(prof::CounterSet::stalls);
  throw ArgumentError(
      ErrorText{cat("--counters is none, basic, roofline, memory or stalls"), {}, cat("\"", set, "\""), {}});
}

std::string metric_line(const Document& d, Metric m) {
  const auto& r = d.metrics[m];
  const auto& i = prof::info(m);
  if (!r.present()) return {};
  std::string value;
  if (const auto* s = std::get_if<std::string>(&*r.held))
    value = *s;
  else
    value = number_text(r.number());
  const char mark[] = {"mcsdp"[int(r.source)], 0};
  return format("  {:<32} {:>12} {:<12} {}\n", i.name, value, i.unit, mark);
}

std::string text_of(const Document& d, int width, const std::vector<std::string>& only) {
  const auto& m = d.metrics;
  std::string out;
  const std::string device = d.machine["device"]["name"];
  if (m.has(Metric::wall_clock_time_us)) {
    out += format("{}: {} [{}, {}] on {}", d.name, time_text(m[Metric::wall_clock_time_us].number()),
                  time_text(m[Metric::ci_95_low_us].number()), time_text(m[Metric::ci_95_high_us].number()),
                  device);
    if (m.has(Metric::tflops) && m[Metric::tflops].number() > 0.5)
      out += format(", {} TFLOP/s", number_text(m[Metric::tflops].number()));
    if (m.has(Metric::bandwidth_gbps))
      out += format(", {} GB/s", number_text(m[Metric::bandwidth_gbps].number()));
    if (m.has(Metric::bound))
      out += format(", {}-bound at {:.0f} % of the ceiling", std::get<std::string>(*m[Metric::bound].held),
                    m[Metric::efficiency_pct].number());
    out += '\n';
  } else {
    out += format("{}: exact counters of {} (no clock there; --device cuda times it)\n", d.name, device);
  }
  out += format("variant {}; {}\n", d.more["variant"].get<std::string>(),
                d.more["check"]["text"].get<std::string>());
  prof::Category category{};
  bool first = true;
  for (const auto& info : prof::metrics()) {
    std::string line = metric_line(d, info.id);
    if (!only.empty()) {
      if (std::find(only.begin(), only.end(), info.name) == only.end()) continue;
      if (line.empty()) line = format("  {:<32} {:>12} {}\n", info.name, "-", d.metrics[info.id].why_absent);
    }
    if (line.empty()) continue;
    if (first || info.category != category) {
      category = info.category, first = false;
      out += format("{}\n", prof::categories()[std::size_t(category)].title);
    }
    out += line;
  }
  out += "m measured, c counted, s simulated, d derived, p property\n";
  out += profile::predictions_text(profile::accesses_of(d), width);
  out += profile::waste_text(d.waste, width);
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  return out;
}

/// --size as settings: of products m, n and k, of rows rows and cols, else n.
void add_size(const std::string& kernel, const std::string& size, std::vector<std::string>& settings) {
  if (size.empty()) return;
  const auto n = profile::extents(size, "--size");
  std::vector<std::string> names;
  for (const auto& option : kernels::find_kernel(kernel).options) names.push_back(option.name);
  for (const auto& wanted : {std::vector<std::string>{"m", "n", "k"}, {"rows", "cols"}, {"n"}}) {
    const auto known = [&](const std::string& w) {
      return std::find(names.begin(), names.end(), w) != names.end();
    };
    if (!std::all_of(wanted.begin(), wanted.end(), known)) continue;
    for (std::size_t i = 0; i < wanted.size(); ++i) settings.push_back(cat(wanted[i], "=", n[i]));
    return;
  }
  throw ArgumentError(ErrorText{cat("--size does not say what ", kernel, " needs"),
                                {},
                                {},
                                cat("its sizes as NAME=VALUE; cgp list ", kernel, " names them")});
}

struct Row {
  std::string name, why;
  Document document;
};

}  // namespace

int profile_kernel(const Context& context, const ProfileOptions& given) {
  ProfileOptions o = given;
  if (!o.kernel.empty()) o.command.insert(o.command.begin(), o.kernel);
  if (o.command.empty())
    throw ArgumentError(ErrorText{"a kernel to profile is needed", {}, {}, "cgp list names them"});
  for (const auto& m : o.metrics) prof::metric_named(m);  // an unknown name ends here, with the nearest ones
  KernelProfileOptions k;
  k.kernel = o.command[0];
  k.settings.assign(o.command.begin() + 1, o.command.end());
  add_size(k.kernel, o.kernel_size, k.settings);
  k.device = o.device, k.repeat = o.repeat;
  k.counters = counters_of(o.counters);
  Document d;
  {
    Progress progress;
    progress.step(cat("measuring ", k.kernel));
    d = profile_catalogue_kernel(k);
  }
  if (!o.save.empty()) profile::save(d, o.save);
  if (context.json)
    write_out(spec::dumped(profile::to_json(d), 2) + "\n");
  else
    write_out(text_of(d, context.width, o.metrics) + (o.save.empty() ? "" : format("saved {}\n", o.save)));
  return d.more["check"]["pass"].get<bool>() ? kClean : kCheckFailed;
}

int profile_compare(const Context& context, const ProfileOptions& o) {
  std::vector<std::string> backends = o.backends;
  const std::string kernel = o.command.empty() ? "gemm" : o.command[0];
  std::vector<std::string> settings;
  if (o.command.size() > 1) settings.assign(o.command.begin() + 1, o.command.end());
  if (o.size) add_size(kernel, std::to_string(o.size), settings);
  if (backends.empty()) backends = {"emu", "cuda"};
  std::vector<Row> rows;
  for (const auto& b : backends) {
    Row row{b, "", {}};
    try {
      KernelProfileOptions k;
      k.kernel = kernel, k.settings = settings, k.device = b, k.repeat = o.repeat;
      row.document = profile_catalogue_kernel(k);
    } catch (const Unsupported& e) {
      row.why = e.rule() + (e.why().empty() ? "" : ": " + e.why());
    } catch (const ArgumentError& e) {
      if (b.rfind("emu", 0) == 0 || b.rfind("cuda", 0) == 0) throw;
      row.why = "unknown back end; there are emu, emu:ARCH, cuda, cuda:N";
    }
    rows.push_back(std::move(row));
  }
  profile::Table table({"<back end", "<kind", "time", "TFLOP/s", "GB/s", "lanes %", "load eff %", "<note"});
  nlohmann::ordered_json j = {
      {"schema", "cgp.compare/1"}, {"kernel", kernel}, {"rows", nlohmann::ordered_json::array()}};
  for (const auto& r : rows) {
    const auto& m = r.document.metrics;
    const auto cell = [&](Metric id) { return m.has(id) ? number_text(m[id].number()) : std::string("-"); };
    const bool timed = m.has(Metric::wall_clock_time_us);
    table.row({r.name,
               !r.why.empty() ? "-"
               : timed        ? "measured"
                              : "counted",
               timed ? time_text(m[Metric::wall_clock_time_us].number()) : "-", cell(Metric::tflops),
               cell(Metric::bandwidth_gbps), cell(Metric::warp_execution_efficiency_pct),
               cell(Metric::global_load_efficiency_pct), r.why});
    j["rows"].push_back(
        {{"backend", r.name},
         {"skipped", r.why},
         {"kind", timed ? "measured" : "counted"},
         {"profile", r.why.empty() ? profile::to_json(r.document) : nlohmann::ordered_json()}});
  }
  write_out(context.json ? spec::dumped(j, 2) + "\n" : format("{}\n", kernel) + table.text());
  for (const auto& r : rows)
    if (r.why.empty()) return kClean;
  return kUnavailable;
}

}  // namespace cgp::cli
