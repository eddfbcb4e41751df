// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/collect/time_table.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/import/csv.h"
#include "cgp/profile/measure/count.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {

using fmt::format;
using measure::Metric;
using measure::Source;
using text::cat;

/// Runs until the median is known to the wished precision, the runs or the time are used up.
Document bench_program(const BenchOptions& o, const Step& step) {
  if (o.roofline && (!(o.flops > 0) || !(o.bytes > 0)))  // before the runs, which may take long
    throw ArgumentError(
        ErrorText{"--roofline needs --flops and --bytes", {}, "a program does not say what it works", {}});
  Document d = new_document("bench", measure::join_command(o.command), o.command);
  const TimedProgram program{d.name, o.command, {}};
  const auto rule = timing_rule(o.timing);
  std::vector<double> us;
  const double start = measure::now();
  std::string stopped = "the runs that were asked for are done";
  measure::ProcessResult last;
  for (int run = -o.warmup;; ++run) {  // the first runs bring files into memory and do not count
    step(cat("run ", run + 1));
    prepare_run(o.prepare);
    const auto one = time_once(program, rule, std::uint64_t(run + o.warmup + 1) * 2654435761u);
    if (!one.failure.empty()) {
      const ErrorText text{"the program must run", d.name, one.failure, {}};
      if (one.crashed()) throw ProgramFailure(text);
      throw Error(text);
    }
    last = one.process;
    if (run < 0) continue;
    us.push_back(one.seconds * 1e6);
    if (o.runs > 0) {
      if (int(us.size()) >= o.runs) break;
      continue;
    }
    const auto interval = measure::median_interval(us);
    if (us.size() >= 10 && (interval.high - interval.low) / 2 <= o.precision * measure::median(us)) {
      stopped = format("the median is known to {:.1f} %", 100 * o.precision);
      break;
    }
    if (measure::now() - start > o.budget && us.size() >= 3) {
      stopped = format("the time of {} was used up", time_text(o.budget * 1e6));
      break;
    }
  }
  const std::string from = describe(rule) + " of each run";
  measure::add_process_result(last, d.metrics);
  add_times(d, "time", us, from);
  d.notes.push_back("stopped because " + stopped);
  const auto state = measure::steady_state(us);
  if (state.kind != measure::Steadiness::flat)
    d.notes.push_back(
        format("the runs are not of one level ({}, from run {})", measure::name(state.kind), state.start));
  if (o.count) measure::add_callgrind(measure::callgrind(o.command), d.metrics);
  return d;
}

/// A run of its own for what timing does not see: counts of the processor, counters of the GPU, and the
/// ceilings of this processor beside the rates.
void look_closer(const BenchOptions& o, Document& d, const Step& step) {
  const auto wants = [&](Metric m) {
    return std::find(o.counters.begin(), o.counters.end(), measure::info(m).name) != o.counters.end();
  };
  if (!o.counters.empty()) {
    step("counting");
    ProgramOptions p;
    p.trace_gpu = false;
    auto seen = run_program(o.command, p).metrics;
    if (wants(Metric::instructions)) measure::add_callgrind(measure::callgrind(o.command), seen);
    for (const auto& name : o.counters) {
      const Metric m = measure::metric_named(name).id;
      if (d.metrics.has(m)) continue;
      if (seen.has(m))
        d.metrics.set(m, seen[m].number(), seen[m].source, seen[m].from);
      else
        d.metrics.absent(m, seen[m].why_absent.empty() ? "nothing here counts it" : seen[m].why_absent);
    }
  }
  if (!o.cuda_metrics.empty()) {
    step("counting on the GPU");
    ProgramOptions p;
    p.counters = counter_names(o.cuda_metrics);
    const auto run = run_program(o.command, p);
    d.kernels = kernels_of(run.timeline);
    if (!run.no_gpu.empty()) d.notes.push_back("no counters of the GPU: " + run.no_gpu);
  }
  d.metrics.derive(o.flops, o.bytes);
  if (!o.roofline) return;
  step("measuring the ceilings of one core");
  const auto isa = cpu::widest_isa();
  const double peak = fma_peak_gflops(isa, 0.5);
  const double memory = read_bandwidth_gbps(std::size_t(256) << 20, 1, 0.5);
  d.metrics.set(Metric::peak_compute_tflops, peak * 1e-3, Source::measured,
                cat("multiply-adds of one core, ", std::string(cpu::name(isa))));
  d.metrics.set(Metric::peak_bandwidth_gbps, memory, Source::measured, "256 MiB read by one core");
  d.metrics.derive(o.flops, o.bytes);
}

RegressionCheck check_regression(const BenchOptions& o, const Document& now) {
  const BaselineStore store;
  const Document before = store.load(o.baseline);
  const double floor = std::max(store.noise_floor(now.machine_key).value_or(0.12), o.threshold);
  RegressionCheck c;
  c.rows = diff_documents(before, now, floor, floor);
  bool counted = false;  // exact counts decide where times cannot
  for (const auto& r : c.rows) {
    c.regressed |= r.verdict == "REGRESSION";
    c.undecided |= r.verdict == "SUSPECT" || r.verdict == "INCONCLUSIVE" || r.verdict == "INCOMPARABLE";
    counted |= r.name == measure::info(Metric::instructions).name && r.verdict != "INCOMPARABLE";
  }
  if (c.rows.empty() || counted) c.undecided = c.rows.empty();
  return c;
}

std::string bench_text(const Document& d) {
  const auto& m = d.metrics;
  std::string out;
  if (!m.has(Metric::wall_clock_time_us))
    return format("{}: exact counters only (the emulator has no clock); cgp profile kernel shows them\n",
                  d.name);
  out += format("{}\n  {} median of {:.0f} {}{}", d.name, time_text(m[Metric::wall_clock_time_us].number()),
                m[Metric::samples].number(), m.has(Metric::ci_95_low_us) ? " 95 %" : "", interval_text(m));
  for (const auto& s : d.samples)
    out += format("\n  {:<6} min {}  p25 {}  p75 {}  max {}", s.name,
                  time_text(*std::min_element(s.values.begin(), s.values.end())),
                  time_text(measure::quantile(s.values, 0.25)), time_text(measure::quantile(s.values, 0.75)),
                  time_text(*std::max_element(s.values.begin(), s.values.end())));
  out += '\n';
  if (m.has(Metric::tflops)) out += format("  {} TFLOP/s\n", number_text(m[Metric::tflops].number()));
  if (m.has(Metric::bandwidth_gbps))
    out += format("  {} GB/s\n", number_text(m[Metric::bandwidth_gbps].number()));
  if (m.has(Metric::instructions))
    out += format("  {:.0f} instructions ({})\n", m[Metric::instructions].number(),
                  m[Metric::instructions].from);
  if (m.has(Metric::bound) && m.has(Metric::efficiency_pct))
    out += format("  {}-bound at {:.0f} % of the ceiling: {} GFLOP/s and {} GB/s of one core\n",
                  std::get<std::string>(*m[Metric::bound].held), m[Metric::efficiency_pct].number(),
                  number_text(m[Metric::peak_compute_tflops].number() * 1e3),
                  number_text(m[Metric::peak_bandwidth_gbps].number()));
  for (const auto& n : d.notes) out += format("  {}\n", n);
  return out;
}

/// What --counters asked for, and why what is not there is not.
std::string counters_text(const Document& d, const std::vector<std::string>& names, int width) {
  std::string out;
  for (const auto& name : names) {
    const auto& r = d.metrics[measure::metric_named(name).id];
    out += r.present() && !std::holds_alternative<std::string>(*r.held)
               ? format("  {:<26} {} ({})\n", name, number_text(r.number()), r.from)
               : format("  {:<26} - {}\n", name, r.why_absent);
  }
  return out + (d.kernels.empty() ? "" : kernel_table(d.kernels, width));
}

/// One row of a benchmark; what is absent stays empty.
void write_csv(const Document& d, const std::string& path, bool append) {
  const auto* s = d.find_samples("time");
  if (!s && !d.samples.empty()) s = &d.samples[0];
  std::vector<std::pair<const char*, std::string>> fields{
      {"time", d.time}, {"machine", d.machine_key}, {"kind", d.kind}, {"name", d.name}};
  const auto put = [&](const char* name, double v) {
    fields.emplace_back(name, std::isfinite(v) ? format("{}", v) : "");
  };
  put("samples", s ? double(s->values.size()) : std::nan(""));
  for (const auto& [name, q] :
       {std::pair{"min_us", 0.0}, {"p50_us", 0.5}, {"p95_us", 0.95}, {"p99_us", 0.99}, {"max_us", 1.0}})
    put(name, s && !s->values.empty() ? measure::quantile(s->values, q) : std::nan(""));
  put("mean_us", s && !s->values.empty() ? measure::mean(s->values) : std::nan(""));
  for (Metric m : {Metric::stddev_us, Metric::ci_95_low_us, Metric::ci_95_high_us, Metric::tflops,
                   Metric::bandwidth_gbps, Metric::rss_peak_mb, Metric::vram_used_mb})
    put(measure::info(m).name.data(), d.metrics.has(m) ? d.metrics[m].number() : std::nan(""));
  fields.emplace_back("meta", d.more.contains("meta") ? d.more["meta"].dump() : "");
  const auto line = [](const auto& all, auto&& text) {
    std::string out;
    for (const auto& f : all) out += (out.empty() ? "" : ",") + csv_field(text(f));
    return out + "\n";
  };
  const std::string header = line(fields, [](const auto&f) { return std::string(f.first); }),
                    row = line(fields, [](const auto&f) { return f.second; });
  std::error_code none;
  const std::string before = append && std::filesystem::exists(path, none) ? read_file(path) : "";
  if (!before.empty() && before.rfind(header, 0) != 0)
    throw ArgumentError(
        ErrorText{"--append needs a file with the same columns", path, {}, "name another file"});
  write_file(path, (before.empty() ? header : before) + row);
}

}  // namespace cgp::profile
