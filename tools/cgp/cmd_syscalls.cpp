// SPDX-License-Identifier: Apache-2.0
// cgp syscalls: the system calls of a program, counted, kept as a golden record and compared with one.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/call_record.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using profile::CallOrder;
using text::cat;

std::string differences_text(const std::vector<profile::CallDifference>& all, const std::string& golden) {
  if (all.empty()) return "the same system calls as in " + golden + "\n";
  std::string out = cat("other system calls than in ", golden, " (-: only there, +: only now)\n");
  for (const auto& d : all) {
    out += d.where + "\n";
    for (const auto& l : d.lines) out += "  " + l + "\n";
  }
  return out;
}

}  // namespace

int syscalls(const Context& context, const SyscallsOptions& o) {
  if (o.command.empty())
    throw ArgumentError(ErrorText{"a program is needed", {}, {}, "cgp syscalls -- PROGRAM ARGUMENTS"});
  profile::CallRules rules;
  rules.ignored.insert(o.ignored.begin(), o.ignored.end());
  rules.masks.insert(rules.masks.end(), o.masks.begin(), o.masks.end());
  rules.folder = std::filesystem::current_path().string();
  profile::CallRecord golden;
  if (!o.golden.empty()) golden = profile::read_record(read_file(o.golden), o.golden);

  // What the program writes must not stand between the lines of a JSON document.
  const auto trace = measure::trace_system_calls(o.command, {context.json, o.timeout});
  const auto record = profile::make_record(trace, o.command, rules);
  LateFailure files;
  if (!o.save.empty()) files.write(o.save, spec::dumped(profile::to_json(record), 1) + "\n");
  std::vector<profile::CallDifference> differences;
  if (!o.golden.empty())
    differences = profile::compare_records(golden, record,
                                           o.by == "order"    ? CallOrder::order
                                           : o.by == "counts" ? CallOrder::counts
                                                              : CallOrder::names);
  if (context.json) {
    auto j = profile::to_json(record);
    j["totals"] = profile::totals_json(trace);
    j["program"] = trace.process.describe();
    if (!o.golden.empty()) {
      j["golden"] = o.golden;
      j["differences"] = nlohmann::ordered_json::array();
      for (const auto& d : differences) j["differences"].push_back({{"where", d.where}, {"lines", d.lines}});
    }
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    write_out((o.golden.empty() ? profile::call_table(trace) : differences_text(differences, o.golden)) +
              (trace.process.ok() ? "" : "the program failed: " + trace.process.describe() + "\n"));
  }
  files.rethrow();
  if (!differences.empty()) return kCheckFailed;
  return trace.process.ok() ? kClean : kProgramFailed;
}

}  // namespace cgp::cli
