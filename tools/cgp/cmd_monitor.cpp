// SPDX-License-Identifier: Apache-2.0
// cgp monitor: a program runs, and every so often a line says what its GPU did meanwhile.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using profile::time_text;

/// Removes the events, whatever happens.
struct Events {
  fs::path folder;
  ~Events() {
    std::error_code ec;
    fs::remove_all(folder, ec);
  }
};

}  // namespace

int monitor(const Context& context, const MonitorOptions& o) {
  if (o.command.empty())
    throw ArgumentError(
        ErrorText{"a program to watch is needed",
                  {},
                  "CUDA loads the recorder when a program starts, so a running one cannot be joined",
                  "cgp monitor -- PROGRAM ARGUMENTS"});
  if (!(o.interval > 0))
    throw ArgumentError(ErrorText{"--interval is positive", {}, format("{}", o.interval), {}});
  const Events events{fs::temp_directory_path() / text::cat("cgp-monitor-", getpid())};
  fs::create_directories(events.folder);
  const std::string prefix = (events.folder / "events").string();
  profile::ProgramOptions p;
  p.keep_events = prefix;
  p.timeout_seconds = o.duration;
  p.show_output = !context.json;
  if (const int every = int(o.interval * 1000); o.window > 0 && o.window < every)
    p.record = text::cat(o.window, ",", every);
  profile::ProgramRun run;
  std::exception_ptr problem;
  std::atomic<bool> done{false};
  std::thread worker([&] {
    try {
      run = profile::run_program(o.command, p);
    } catch (...) {
      problem = std::current_exception();
    }
    done = true;
  });
  std::uint64_t seen = 0;
  int alerts = 0;
  nlohmann::ordered_json all = {{"schema", "cgp.monitor/1"}, {"intervals", nlohmann::ordered_json::array()}};
  const auto show = [&](const profile::Timeline& part) {
    const auto s = profile::summarise(part);
    if (s.launches == 0) return;
    alerts += s.launch_bound;
    if (context.json) {
      all["intervals"].push_back(profile::to_json(s));
    } else {
      write_out(format("{:>7} launches  busy {:>3.0f} %  call {:>8}  gap {:>8}  {}{}\n", s.launches,
                       100 - s.idle_percent(), time_text(s.launch_us), time_text(s.gap_us),
                       profile::fitted(profile::short_name(s.dominant), 40),
                       s.launch_bound ? "  LAUNCH-BOUND" : ""));
    }
  };
  const auto say = [&](bool last) {
    const auto seen_now = profile::read_timeline(prefix);
    if (seen_now.windows.empty()) {
      std::uint64_t end = seen;
      for (const auto& a : seen_now.activities) end = std::max(end, a.end);
      show(profile::part_of(seen_now, seen, 0));
      seen = end;
    }
    for (const auto& w : seen_now.windows) {  // each by itself: nothing is known of the time between them
      if (w.begin <= seen || (w.end == 0 && !last)) continue;
      show(profile::part_of(seen_now, w.begin, w.end));
      seen = w.begin;
    }
  };
  auto next = std::chrono::steady_clock::now() + std::chrono::duration<double>(o.interval);
  while (!done) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (std::chrono::steady_clock::now() < next) continue;
    next += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(o.interval));
    say(false);
  }
  worker.join();
  if (problem) std::rethrow_exception(problem);
  say(true);
  const bool stopped = run.process.timed_out && o.duration > 0;
  if (context.json && !run.process.ok()) std::fputs(run.process.err.c_str(), stderr);
  if (context.json) {
    all["launch_bound_intervals"] = alerts, all["no_gpu"] = run.no_gpu, all["ended"] = run.process.describe();
    write_out(spec::dumped(all, 2) + "\n");
  } else {
    write_out(run.no_gpu.empty()
                  ? format("{} interval{} launch-bound\n", alerts, alerts == 1 ? " was" : "s were")
                  : format("nothing on the GPU: {}\n", run.no_gpu));
  }
  return run.process.ok() || stopped ? kClean : kProgramFailed;
}

}  // namespace cgp::cli
