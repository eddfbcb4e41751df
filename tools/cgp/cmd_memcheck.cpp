// SPDX-License-Identifier: Apache-2.0
// cgp memcheck: a program under valgrind, or what it does on a GPU under compute-sanitizer.
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/profile/collect/memory_check.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int memcheck(const Context& context, const MemcheckOptions& o) {
  if (o.command.empty())
    throw ArgumentError(
        ErrorText{"a program to check is needed", {}, {}, "cgp memcheck -- PROGRAM ARGUMENTS"});
  profile::MemoryReport report;
  {
    Progress progress;
    progress.step("running the program, ten to fifty times slower");
    report = profile::check_memory(o.command, o.gpu, o.timeout);
  }
  if (context.json) {
    auto j = profile::to_json(report);
    j["schema"] = "cgp.memcheck/1";
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    const std::string failed =
        report.process.ok() ? "" : "the program failed: " + report.process.describe() + "\n";
    write_out(profile::memory_text(report) + failed);
  }
  if (!report.errors.empty()) return kCheckFailed;
  return report.process.ok() ? kClean : kProgramFailed;
}

}  // namespace cgp::cli
