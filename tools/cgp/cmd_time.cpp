// SPDX-License-Identifier: Apache-2.0
// cgp time: how long a program or a kernel takes, and whether that is known well enough; against another
// program or a saved baseline.
#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/collect/bench.h"
#include "cgp/profile/collect/time_table.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/view/table.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using measure::Source;
using profile::Document;
using profile::time_text;
using text::cat;

int bench_against(const Context& context, const TimeOptions& o) {
  if (measure::split_command(o.against).empty())
    throw ArgumentError(ErrorText{"--against names a program", {}, "it is empty", {}});
  const profile::TimedProgram a{"against", measure::split_command(o.against), {}}, b{"this", o.command, {}};
  const auto rule = profile::timing_rule(o.timing);
  measure::PairedOptions paired;
  paired.max_seconds = o.budget * 12;
  profile::ProgramComparison c;
  {
    Progress progress;
    progress.step("interleaved pairs");
    c = profile::compare_programs(a, b, rule, paired);
  }
  profile::require_runs(c, "both programs must run");
  Document d = profile::new_document("bench", measure::join_command(o.command), o.command);
  profile::add_metrics(c.result, d.metrics);
  d.more["comparison"] = profile::to_json(c.result);
  d.more["comparison"]["against"] = o.against;
  profile::Samples sa{"against", "us", {}}, sb{"time", "us", {}};
  for (const auto& p : c.result.pairs) sa.values.push_back(p.a * 1e6), sb.values.push_back(p.b * 1e6);
  d.metrics.set(Metric::wall_clock_time_us, measure::median(sb.values), Source::measured, "pairs");
  d.samples = {sb, sa};
  deliver(context, d, o.save,
          format("{}\n  {} against {}: {}\n", profile::describe(c.result),
                 time_text(measure::median(sb.values)), time_text(measure::median(sa.values)), c.result.why));
  return c.result.verdict == measure::Verdict::regression ? kCheckFailed : kClean;
}

bool is_kernel(const std::string& name) {
  const auto all = kernels::catalog();
  return std::any_of(all.begin(), all.end(), [&](const auto& k) { return k.name == name; });
}

/// Several programs, or one with parameters.
int time_rounds(const Context& context, const TimeOptions& o) {
  for (const auto& [given, name] : {std::pair{o.against_given, "--against"},
                                    {o.check_regression, "--check-regression"},
                                    {o.count, "--count"},
                                    {o.roofline, "--roofline"},
                                    {!o.counters.empty(), "--counters"},
                                    {!o.cuda_metrics.empty(), "--cuda-metrics"},
                                    {!o.csv.empty(), "--csv"},
                                    {o.flops > 0, "--flops"},
                                    {o.bytes > 0, "--bytes"}})
    if (given)
      throw ArgumentError(ErrorText{
          cat(name, " is of one program"), {}, "--also and --parameter make a table of several", {}});
  if (is_kernel(o.command[0]))
    throw ArgumentError(ErrorText{"--also and --parameter are for programs",
                                  {},
                                  cat(o.command[0], " is a kernel of the catalogue"),
                                  "cgp profile compare puts back ends of a kernel into one table"});
  std::vector<std::vector<std::string>> commands{o.command};
  for (const auto& c : o.also) {
    commands.push_back(measure::split_command(c));
    if (commands.back().empty())
      throw ArgumentError(ErrorText{"--also names a program", {}, "it is empty", {}});
  }
  std::vector<profile::Parameter> parameters;
  for (const auto& p : o.parameters) parameters.push_back(profile::parse_parameter(p));
  profile::TimeTableOptions table{
      profile::expanded(commands, o.prepare, parameters), o.timing, o.runs, o.warmup, o.budget, o.precision};
  Document d;
  {
    Progress progress;
    d = profile::time_table(table, [&](const std::string& what) { progress.step(what); });
  }
  deliver(context, d, o.save, profile::time_table_text(d, context.width));
  return kClean;
}

}  // namespace

int time_command(const Context& context, const TimeOptions& given) {
  TimeOptions o = given;
  if (!o.bench.empty()) {
    if (!o.command.empty())
      throw ArgumentError(
          ErrorText{"--bench names the program, or what follows --", {}, "both are given", {}});
    o.command = measure::split_command(o.bench);
  }
  for (const auto& name : o.counters) measure::metric_named(name);  // an unknown one ends here
  if (o.command.empty())
    throw ArgumentError(ErrorText{"a program or a kernel is needed",
                                  {},
                                  {},
                                  "cgp time -- PROGRAM ARGUMENTS, or cgp time KERNEL m=1024"});
  if (o.check_regression && o.baseline.empty())
    throw ArgumentError(
        ErrorText{"--check-regression needs --baseline NAME", {}, "no baseline is not a pass", {}});
  if (!o.also.empty() || !o.parameters.empty()) return time_rounds(context, o);
  if (o.against_given) {
    if (!o.prepare.empty())
      throw ArgumentError(ErrorText{"--prepare goes before one program, or before each of a table",
                                    {},
                                    "--against has pairs",
                                    "--also instead of --against"});
    return bench_against(context, o);
  }
  const profile::BenchOptions how{o.command, o.timing,    o.prepare,  o.warmup,   o.runs,
                                  o.budget,  o.precision, o.count,    o.counters, o.cuda_metrics,
                                  o.flops,   o.bytes,     o.roofline, o.baseline, o.threshold};
  Document d;
  {
    Progress progress;
    if (is_kernel(o.command[0])) {
      if (!o.prepare.empty())
        throw ArgumentError(ErrorText{
            "--prepare is for programs", {}, cat(o.command[0], " is a kernel of the catalogue"), {}});
      if (!o.timing.regex.empty())
        throw ArgumentError(
            ErrorText{"--time-regex is for programs: a kernel of the catalogue prints no time",
                      {},
                      cat(o.command[0], " is one"),
                      cat("a program of that name: ./", o.command[0])});
      profile::KernelProfileOptions k;
      k.kernel = o.command[0];
      k.settings.assign(o.command.begin() + 1, o.command.end());
      k.device = o.device, k.repeat = o.runs > 0 ? o.runs : 30;
      progress.step(cat("measuring ", k.kernel));
      d = profile::profile_catalogue_kernel(k);
      d.kind = "bench";
    } else {
      const auto step = [&](const std::string& what) { progress.step(what); };
      d = profile::bench_program(how, step);
      profile::look_closer(how, d, step);
    }
  }
  for (const auto& m : o.meta) {
    const auto [name, value] = profile::split_setting(m, "--meta");
    d.more["meta"][name] = value;
  }
  profile::RegressionCheck check;
  if (o.check_regression) check = profile::check_regression(how, d);
  std::string out = profile::bench_text(d) + profile::counters_text(d, o.counters, context.width);
  auto j = profile::to_json(d);
  for (const auto& r : check.rows) {
    out += format("  {}: {} {} against {}: {}\n", r.name, r.verdict, profile::percent_text(r.change),
                  o.baseline, r.why);
    j["regression"].push_back(
        {{"name", r.name}, {"verdict", r.verdict}, {"change", r.change}, {"why", r.why}});
  }
  deliver(context, d, o.save, out, j);
  if (!o.csv.empty()) profile::write_csv(d, o.csv, o.append);
  return check.regressed ? kCheckFailed : check.undecided ? kInconclusive : kClean;
}

}  // namespace cgp::cli
