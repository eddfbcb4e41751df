// SPDX-License-Identifier: Apache-2.0
// cgp profile binary | python: any program, from outside.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/counted_run.h"
#include "cgp/profile/collect/energy.h"
#include "cgp/profile/collect/heap.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/counters/system_calls.h"
#include "cgp/profile/cupti/cupti_plan.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/sampling/annotate.h"
#include "cgp/profile/sampling/cpu_profile.h"
#include "cgp/profile/timeline/launched.h"
#include "cgp/profile/timeline/phases.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"
#include "cgp/runtime/device.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using profile::Document;
using profile::number_text;
using profile::time_text;
using text::cat;

/// The chip of the first GPU here; where there is none, what an H200 has: the plan is then an example.
std::string chip_here() {
  try {
    if (std::string chip = measure::chip_of(runtime::Device::open("cuda").info().arch); !chip.empty())
      return chip;
  } catch (const Error&) {  // no GPU or no driver: said by the run itself
  }
  return "GH100";
}

/// A second run with kernel replay; the plan is printed before it, since each pass runs every kernel once
/// more.
void count_kernels(const ProfileOptions& o, Document& d, const profile::Timeline& traced) {
  std::vector<std::string> words;
  for (auto word : text::split(o.counters, ',')) words.emplace_back(word);
  const auto names = profile::counter_names(words);
  if (names.empty()) return;
  try {
    const std::string chip = chip_here();
    const auto plan = measure::plan_counters(chip, names);
    if (plan.metrics.empty())
      throw ArgumentError(ErrorText{"--counters is none, basic, roofline, memory, stalls or names of CUPTI",
                                    {},
                                    cat("there is no counter ", text::join(plan.missing, ", ")),
                                    "ncu --query-metrics names all of them"});
    for (const auto& m : plan.missing) d.notes.push_back(cat("no counter ", m, " on a ", chip));
    std::fputs(
        format("cgp: {} counters need {} passes on a {}: each of up to {} launches runs {} times more\n",
               plan.metrics.size(), plan.passes, chip, o.launches, plan.passes)
            .c_str(),
        stderr);
  } catch (const Unsupported&) {
    // planning is a courtesy; the run itself says what is missing
  }
  profile::ProgramOptions options;
  options.counters = names;
  options.most_launches = o.launches;
  options.timeout_seconds = o.timeout, options.duration_seconds = o.duration;
  const auto run = profile::run_program(o.command, options);
  for (const auto& e : profile::notes_of(run.timeline)) d.notes.push_back("counters: " + e);
  if (!run.no_gpu.empty()) {
    d.notes.push_back("no counters: " + run.no_gpu);
    return;
  }
  profile::Timeline joined = traced;
  joined.ranges = run.timeline.ranges, joined.passes = run.timeline.passes, joined.chip = run.timeline.chip;
  d.kernels = profile::kernels_of(joined);
  d.more["counting"] = {{"chip", joined.chip}, {"passes", joined.passes}, {"launches", joined.ranges.size()}};
}

void filter_kernels(const std::string& part, Document& d) {
  if (part.empty()) return;
  std::erase_if(d.kernels, [&](const profile::KernelUse& k) {
    return k.name.find(part) == std::string::npos &&
           profile::short_name(k.name).find(part) == std::string::npos;
  });
  if (d.kernels.empty()) d.notes.push_back(cat("no kernel's name contains \"", part, "\""));
}

std::string process_text(const profile::ProgramRun& run) {
  const auto& m = run.metrics;
  const auto value = [&](Metric id, double scale = 1) {
    if (!m.has(id)) return std::string("-");
    const bool count = measure::info(id).type == measure::MetricType::count;
    return count ? format("{:.0f}", m[id].number()) : number_text(m[id].number() * scale);
  };
  std::string out =
      format("process    {} wall, {} user, {} system; peak memory {} MB\n",
             time_text(run.process.wall_seconds * 1e6), time_text(run.process.user_seconds * 1e6),
             time_text(run.process.system_seconds * 1e6), value(Metric::rss_peak_mb));
  out += format("           faults {} minor, {} major; switches {} own, {} forced; migrations {}\n",
                value(Metric::page_faults_minor), value(Metric::page_faults_major),
                value(Metric::voluntary_ctx_switches), value(Metric::involuntary_ctx_switches),
                value(Metric::cpu_migration_count));
  if (m.has(Metric::instructions))
    out +=
        format("           {} instructions ({})", value(Metric::instructions), m[Metric::instructions].from);
  else
    out += format("           instructions -: {}", m[Metric::instructions].why_absent);
  return out + '\n';
}

/// At most 4000 bytes, and whole characters.
std::string beginning(const std::string& s) {
  std::size_t n = std::min<std::size_t>(s.size(), 4000);
  while (n > 0 && n < s.size() && (static_cast<unsigned char>(s[n]) & 0xc0) == 0x80) --n;
  return s.substr(0, n);
}

/// The end of what a program wrote before it failed.
std::string last_lines(const std::string& all) {
  constexpr std::size_t kMost = 4000;
  if (all.size() <= kMost) return profile::visible(all);
  const auto line = all.find('\n', all.size() - kMost);
  const std::size_t from = line == all.npos ? all.size() - kMost : line + 1;
  return format("... {} bytes before this\n", from) + profile::visible(all.substr(from));
}

/// The last lines of what the program itself printed.
std::string printed_text(const std::string& all, int width) {
  const auto lines = text::split(text::trim(all), '\n');
  if (all.empty() || lines.empty()) return {};
  constexpr std::size_t kMost = 6;
  std::string out;
  const std::size_t first = lines.size() > kMost ? lines.size() - kMost : 0;
  if (first) out += format("printed    ({} lines before)\n", first);
  for (std::size_t i = first; i < lines.size(); ++i)
    out += format(
        "{:<11}{}\n", i == first && !first ? "printed" : "",
        profile::fitted(profile::visible(std::string(lines[i])), std::size_t(std::max(40, width - 12))));
  return out;
}

std::string text_of(const Document& d, const profile::ProgramRun& run, const profile::Phases& phases,
                    int width) {
  const profile::TimelineSummary& s = phases.judged();
  const char* part = phases.steady ? " of the steady state" : "";
  std::string verdict;
  if (!run.process.ok())
    verdict = format("FAILED: {}; what was recorded until then follows", run.process.describe());
  else if (!run.no_gpu.empty())
    verdict = format("CPU only: {}", run.no_gpu);
  else if (s.launch_bound)
    verdict = format("LAUNCH-BOUND: the GPU was idle for {:.0f} % of {}{}", s.idle_percent(),
                     time_text(s.span_ms * 1e3), part);
  else
    verdict = format("GPU busy for {:.0f} % of {}{}; {} takes {:.0f} % of the kernels' time",
                     100 - s.idle_percent(), time_text(s.span_ms * 1e3), part,
                     profile::short_name(s.dominant), s.dominant_percent);
  std::string out = profile::fitted(verdict, std::size_t(std::max(width, 60)) * 2) + "\n" + process_text(run);
  if (d.more.contains("energy")) out += profile::energy_text(d);
  out += printed_text(run.process.out, width);
  if (d.more.contains("cpu_samples")) out += profile::cpu_text(d.more["cpu_samples"], width);
  if (run.no_gpu.empty()) {
    out += format(
        "{}gpu        {} kernels ({} in graphs' launches), {} copies; launch call {}, to start {}, gap {}\n",
        profile::phases_text(phases), s.launches, s.graph_launches, s.copies, time_text(s.launch_us),
        time_text(s.latency_us), time_text(s.gap_us));
    out += profile::kernel_table(d.kernels, width);
  }
  if (!run.process.ok() && !run.no_gpu.empty())
    out += format("gpu        nothing recorded: {}\n", run.no_gpu);
  out += profile::waste_text(d.waste, width);
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  return out;
}

}  // namespace

int profile_program(const Context& context, const ProfileOptions& o) {
  if (o.command.empty())
    throw ArgumentError(ErrorText{
        "a program to profile is needed", {}, {}, cat("cgp profile ", o.what, " -- PROGRAM ARGUMENTS")});
  std::vector<std::string> command = o.command;
  const std::string& first = command[0];
  if (o.what == "python" &&
      (first[0] == '-' || (first.size() > 3 && first.substr(first.size() - 3) == ".py")))
    command.insert(command.begin(), "python3");
  if ((o.waits || o.launch_stacks) && o.sample_rate == 0)
    throw ArgumentError(ErrorText{cat(o.waits ? "--waits" : "--launch-stacks", " is a part of sampling"),
                                  {},
                                  "--sample 0 is none",
                                  {}});
  ProfileOptions options = o;
  options.command = command;
  Document d = profile::new_document(o.what, measure::join_command(command), command);
  profile::ProgramRun run;
  profile::Phases phases;
  std::string heap_text;
  {
    Progress progress;
    progress.step("running the program");
    profile::ProgramOptions p;
    p.timeout_seconds = o.timeout, p.duration_seconds = o.duration;
    p.all_api = o.all_api, p.record = o.record;
    p.trace_gpu = !o.no_trace;
    std::optional<profile::EnergyMeter> energy;
    if (o.energy) energy.emplace();
    std::optional<profile::CpuSampler> sampler;
    if (o.sample_rate > 0) {
      sampler.emplace(profile::SamplerOptions{.rate = double(o.sample_rate),
                                              .waits = o.waits,
                                              .launches = o.launch_stacks,
                                              .python = o.what == "python",
                                              .library = profile::library_beside_inject("libcgp_sample.so")});
      p.environment = sampler->environment();
    }
    run = profile::run_program(command, p);
    if (sampler) {
      auto samples = profile::analyse(sampler->stop());
      profile::annotate(samples);
      d.more["cpu_samples"] = profile::to_json(samples);
      d.more["cpu_samples"]["wall_s"] = run.process.wall_seconds;
      if (o.launch_stacks && run.no_gpu.empty())
        d.more["cpu_samples"]["launched"] = profile::launched_json(run.timeline, samples);
      if (o.what == "python" && samples.samples > 0 && samples.python.empty())
        d.notes.push_back(
            "functions of Python are not named, those of the interpreter are: names need CPython 3.9 or "
            "later, "
            "and until 3.11 libcgp_sample.so beside cgp (x86-64)");
    }
    d.metrics = run.metrics;
    if (energy) energy->stop(d);
    phases = profile::phases_of(run.timeline);
    d.kernels = profile::kernels_of(run.timeline);
    d.notes = profile::notes_of(run.timeline);
    if (run.steal > 0.05)
      d.notes.push_back(format("the hypervisor took {:.0f} % of the processors meanwhile: times are too long",
                               100 * run.steal));
    if (o.counters != "none") {
      progress.step("counting, with kernel replay");
      count_kernels(options, d, run.timeline);
    }
    if (o.count != "none") {
      progress.step("counting in another run");
      profile::count_in_another_run(o.count, command, o.timeout, d,
                                    [&](const std::string& what) { progress.step(what); });
      run.metrics.merge(d.metrics);
    }
    if (o.heap) {
      progress.step("the heap");
      const auto heap = profile::profile_heap(command);
      heap.add_to(d.metrics);
      d.more["heap"] = profile::to_json(heap);
      heap_text = profile::heap_text(heap, context.width);
    }
    if (o.overhead) {
      progress.step("the program without recording");
      profile::ProgramOptions bare = p;
      bare.trace_gpu = false;
      const auto plain = profile::run_program(command, bare);
      d.more["overhead"] = {{"recorded_s", run.process.wall_seconds},
                            {"plain_s", plain.process.wall_seconds}};
      d.notes.push_back(format("recorded {} against {} without (one run each)",
                               time_text(run.process.wall_seconds * 1e6),
                               time_text(plain.process.wall_seconds * 1e6)));
    }
  }
  filter_kernels(o.filter, d);
  d.waste = profile::phases_waste(phases, d.kernels);
  if (run.no_gpu.empty()) d.more["timeline"] = profile::to_json(phases);
  d.more["process"] = {{"exit_code", run.process.exit_code},     {"signal", run.process.signal},
                       {"ended", run.process.describe()},        {"user_s", run.process.user_seconds},
                       {"system_s", run.process.system_seconds}, {"output", beginning(run.process.out)},
                       {"errors", beginning(run.process.err)}};
  d.samples.push_back({"wall", "us", {run.process.wall_seconds * 1e6}});
  std::string out = text_of(d, run, phases, context.width) + heap_text;
  if (!run.process.ok() && !run.process.err.empty()) out += "it wrote:\n" + last_lines(run.process.err);
  deliver(context, d, o.save, out);
  return run.process.ok() ? kClean : kProgramFailed;
}

int profile(const Context& context, const ProfileOptions& o) {
  if (o.cross_profile && o.arch != "neon")
    throw ArgumentError(ErrorText{"--cross-profile goes with --arch neon", {}, {}, {}});
  if (o.what == "binary" || o.what == "python") return profile_program(context, o);
  if (o.what == "kernel") return profile_kernel(context, o);
  if (o.what == "compare" && o.function.empty()) return profile_compare(context, o);
  if (o.what == "cublas") return profile_cublas(context, o);
  if (o.what == "library") return profile_library(context, o);
  if (o.what == "metal")
    throw Unsupported(ErrorText{"Metal backend requires macOS — use --backend wgpu for Vulkan", {}, {}, {}});
  if (o.what == "neon")
    throw Unsupported(
        ErrorText{"NEON not available — use --cross-profile for QEMU-based analysis", {}, {}, {}});
  if (o.what == "quant") return profile_quant(context, o);
  if (o.what == "wasm")
    throw Unsupported(
        ErrorText{"profiling WebAssembly needs wasmtime", {}, "this version runs no WebAssembly engine", {}});
  if (o.what == "wgpu") return profile_wgpu(context, o);
  return profile_cpu(context, o);
}

}  // namespace cgp::cli
