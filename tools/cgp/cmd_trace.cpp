// SPDX-License-Identifier: Apache-2.0
// cgp trace: the timeline of a program on the GPU, for viewers and as a flame graph.
#include <fmt/core.h>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/timeline/phases.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using profile::time_text;

profile::Timeline recorded(const TraceOptions& o, measure::ProcessResult& process) {
  if (!o.from.empty()) {
    process.exit_code = 0;
    return profile::load_timeline(o.from);
  }
  if (o.command.empty())
    throw ArgumentError(ErrorText{"a program to trace is needed", {}, {}, "cgp trace -- PROGRAM ARGUMENTS"});
  Progress progress;
  progress.step("running the program");
  profile::ProgramOptions p;
  p.timeout_seconds = o.timeout, p.duration_seconds = o.duration;
  p.all_api = o.all_api, p.record = o.record;
  auto run = profile::run_program(o.command, p);
  process = run.process;
  if (run.timeline.activities.empty() && run.process.ok())
    throw Unsupported(ErrorText{"there is nothing on the GPU to show",
                                {},
                                run.no_gpu,
                                "cgp profile binary shows what the processor did"});
  return run.timeline;
}

std::string summary_text(const profile::TimelineSummary& s) {
  return format("{} kernels, {} copies in {}; the GPU was busy for {:.0f} %\n", s.launches, s.copies,
                time_text(s.span_ms * 1e3), 100 - s.idle_percent()) +
         format("launch calls took {} of the host ({} each), {} from call to start, {} between kernels\n",
                time_text(s.launch_api_ms * 1e3), time_text(s.launch_us), time_text(s.latency_us),
                time_text(s.gap_us));
}

}  // namespace

int trace(const Context& context, const TraceOptions& o) {
  measure::ProcessResult process;
  const profile::Timeline t = recorded(o, process);
  const std::string title = o.from.empty() ? measure::join_command(o.command) : o.from;
  const auto phases = profile::phases_of(t);
  const auto& s = phases.whole;
  std::vector<std::string> written;
  LateFailure files;
  const auto put = [&](const std::string& path, const std::string& content) {
    if (!path.empty() && files.write(path, content)) written.push_back(path);
  };
  put(o.perfetto, profile::perfetto_json(t, title));
  put(o.speedscope, profile::speedscope_json(t, title));
  put(o.flamegraph, profile::flamegraph_svg(t, title));
  auto d = profile::document_of(t, "trace", title, o.command);
  if (!o.from.empty()) {  // it was recorded somewhere
    d.machine = {{"imported", "trace"}, {"file", o.from}};
    d.machine_key = "a machine that the recording does not name";
    d.time = "";
  }
  if (!o.save.empty()) put(o.save, spec::dumped(profile::to_json(d), 1) + "\n");
  if (context.json) {
    auto j = profile::to_json(phases);
    j["schema"] = "cgp.trace/1", j["files"] = written, j["ended"] = process.describe(),
    j["errors"] = t.errors;
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    std::string out =
        process.ok() ? "" : format("FAILED: {}; what was recorded until then follows\n", process.describe());
    out += s.span_ms > 0 ? summary_text(s) + profile::phases_text(phases) : "nothing ran on the GPU\n";
    if (phases.judged().launch_bound) out += "LAUNCH-BOUND\n";
    out += profile::waste_text(d.waste, context.width);
    for (const auto& n : d.notes) out += format("note: {}\n", n);
    for (const auto& f : written) out += format("wrote {}\n", f);
    if (written.empty())
      out += "next: --perfetto FILE (ui.perfetto.dev), --speedscope FILE, --flamegraph FILE.svg\n";
    write_out(out);
  }
  files.rethrow();
  return process.ok() ? kClean : kProgramFailed;
}

}  // namespace cgp::cli
