// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/program.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "cgp/base/text.h"
#include "cgp/profile/counters/perf_events.h"
#include "cgp/profile/cupti/cupti_plan.h"
#include "cgp/profile/measure/system.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using measure::Metric;
using measure::Source;

void remove_events(const std::string& prefix) {
  const fs::path path(prefix);
  const std::string begin = path.filename().string() + ".";
  std::error_code ec;
  std::vector<fs::path> all;
  for (const auto& e : fs::directory_iterator(path.parent_path(), ec))
    if (e.path().filename().string().rfind(begin, 0) == 0) all.push_back(e.path());
  for (const auto& p : all) fs::remove(p, ec);
}

std::string reason_without_timeline(const Timeline& t, const std::string& library) {
  if (library.empty()) return "libcgp_inject.so is not beside cgp (set CGP_INJECT_LIBRARY)";
  if (!t.activities.empty() || !t.ranges.empty()) return {};
  if (!t.errors.empty()) return t.errors[0];
  return t.complete && t.chip.empty() ? "the program did not use a CUDA GPU" : "no event arrived";
}

}  // namespace

std::vector<std::string> counter_names(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const auto& word : words) {
    const auto set = word == "none"       ? std::vector<std::string>{}
                     : word == "basic"    ? measure::counters_of(measure::CounterSet::basic)
                     : word == "roofline" ? measure::counters_of(measure::CounterSet::roofline)
                     : word == "memory"   ? measure::counters_of(measure::CounterSet::memory)
                     : word == "stalls"   ? measure::counters_of(measure::CounterSet::stalls)
                                          : std::vector<std::string>{word};
    out.insert(out.end(), set.begin(), set.end());
  }
  return out;
}

std::string record_problem(const std::string& record) {
  if (record == "auto" || record == "all") return {};
  const auto parts = text::split(record, ',');
  const auto number = [](std::string_view s) {
    int v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    return error == std::errc{} && end == s.data() + s.size() ? v : 0;
  };
  return parts.size() == 2 && number(parts[0]) > 0 && number(parts[1]) > number(parts[0])
             ? ""
             : "auto, all, or milliseconds and of how many, as 20,1000";
}

std::string inject_library() {
  if (const char* given = std::getenv("CGP_INJECT_LIBRARY"); given && *given)
    return access(given, R_OK) == 0 ? given : "";
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  for (const fs::path& folder : {self.parent_path(), self.parent_path().parent_path() / "lib"}) {
    const std::string path = (folder / "libcgp_inject.so").string();
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

std::string library_beside_inject(const char* name) {
  const std::string path = fs::path(inject_library()).replace_filename(name).string();
  return access(path.c_str(), R_OK) == 0 ? path : "";
}

ProgramRun run_program(const std::vector<std::string>& command, const ProgramOptions& options) {
  ProgramRun run;
  const std::string library = options.trace_gpu ? inject_library() : "";
  const std::string prefix = options.keep_events.empty()
                                 ? (fs::temp_directory_path() /
                                    text::cat("cgp-events-", getpid(), "-", int(!options.counters.empty())))
                                       .string()
                                 : options.keep_events;
  measure::ProcessOptions p;
  const bool part = options.duration_seconds > 0 &&
                    (options.timeout_seconds <= 0 || options.duration_seconds < options.timeout_seconds);
  p.timeout_seconds = part ? options.duration_seconds : options.timeout_seconds;
  p.capture = !options.show_output;
  p.environment = options.environment;
  if (!library.empty()) {
    p.environment.insert(p.environment.end(),
                         {{"CUDA_INJECTION64_PATH", library}, {"CGP_INJECT_OUT", prefix}});
    if (!options.counters.empty()) {
      p.environment.emplace_back("CGP_INJECT_MODE", "range");
      p.environment.emplace_back("CGP_INJECT_METRICS", text::join(options.counters, ","));
      p.environment.emplace_back("CGP_INJECT_LAUNCHES", std::to_string(options.most_launches));
    }
    if (options.record != "all") p.environment.emplace_back("CGP_INJECT_WINDOW", options.record);
    if (options.all_api) p.environment.emplace_back("CGP_INJECT_API", "all");
  }
  measure::MetricSet last;  // what /proc said before the process was gone
  p.watch = [&](pid_t pid) {
    measure::MetricSet now;
    measure::read_process(pid, now);
    if (now.has(Metric::rss_mb)) last = std::move(now);
  };
  const measure::PerfCounters perf;
  const auto before = measure::read_system();
  run.process = measure::run_process(command, p);
  const auto after = measure::read_system();
  if (part && run.process.timed_out)
    run.process.timed_out = false, run.process.signal = run.process.exit_code = 0;
  perf.read(run.metrics);
  measure::read_processor(run.metrics);
  measure::add_process_result(run.process, run.metrics);
  measure::add_system_change(before, after, run.metrics);
  run.steal = measure::steal_share(before, after).value_or(0);
  if (last.present_count() == 0)
    for (Metric m : {Metric::rss_mb, Metric::vms_mb, Metric::disk_read_bytes, Metric::disk_write_bytes,
                     Metric::file_descriptors_open})
      last.absent(m, "the program ended before it could be looked at");
  run.metrics.merge(last);
  run.metrics.set(Metric::wall_clock_time_us, run.process.wall_seconds * 1e6, Source::measured,
                  "start to end of the process");
  run.metrics.set(Metric::samples, 1.0, Source::counted, "runs");
  if (before.package_joules && after.package_joules)
    run.metrics.set(Metric::joules_per_inference, *after.package_joules - *before.package_joules,
                    Source::measured, "RAPL, whole package");
  else
    run.metrics.absent(Metric::joules_per_inference, "no RAPL counter in /sys/class/powercap");
  if (!library.empty()) {
    run.timeline = read_timeline(prefix);
    if (options.keep_events.empty()) remove_events(prefix);
  }
  run.no_gpu = options.trace_gpu ? reason_without_timeline(run.timeline, library) : "it was not asked for";
  if (run.no_gpu.empty() && options.counters.empty()) add_metrics(run.timeline, run.metrics);
  return run;
}

}  // namespace cgp::profile
