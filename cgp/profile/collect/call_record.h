// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program's system calls as a golden record: what differs from run to run by chance is taken out, and two
// records are compared call by call. A change of a library, of a configuration file that is read, or of a
// system call in a loop shows at the first run, and needs no statistics.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "cgp/profile/counters/system_calls.h"

namespace cgp::profile {

/// What is left out of a record, and which parts of file names are.
struct CallRules {
  /// Calls that depend on when threads meet.
  std::set<std::string> ignored = {"futex", "restart_syscall", "rt_sigreturn", "sched_yield"};
  std::vector<std::string> masks = {
      "/proc/[0-9]+"};  ///< regular expressions (ECMAScript); what matches is "*"
  std::string folder;   ///< in names "$PWD"; empty: none
};

/// Equal calls in a row.
struct CallLine {
  std::string text;  ///< openat "/etc/passwd" = ENOENT
  std::uint64_t times = 1;
  bool operator==(const CallLine&) const = default;
};

struct CallTask {
  std::string id;  ///< as measure::TracedTask's
  std::vector<CallLine> lines;
};

struct CallRecord {
  std::vector<std::string> command;
  CallRules rules;
  std::vector<CallTask> tasks;
};

/// Throws ArgumentError for a mask that is no regular expression.
CallRecord make_record(const measure::SystemCallTrace& trace, const std::vector<std::string>& command,
                       const CallRules& rules);

/// order: call by call in each task. counts: how often each call with its files and outcome was made by all
/// tasks together, for programs whose threads share work. names: which were made at all.
enum class CallOrder { order, counts, names };

/// One place where two records differ.
struct CallDifference {
  std::string where;               ///< "task 0.1, after 17 calls", "all tasks"
  std::vector<std::string> lines;  ///< "  as before", "- only in the golden record", "+ only now"
};

/// Empty: they are equal. Rules of both are applied to both.
std::vector<CallDifference> compare_records(const CallRecord& golden, const CallRecord& now, CallOrder by);

nlohmann::ordered_json to_json(const CallRecord& record);
/// Throws ParseError with `origin` for what is no record.
CallRecord read_record(const std::string& json, const std::string& origin);

/// Calls, failures and bytes by name, the most frequent first.
std::string call_table(const measure::SystemCallTrace& trace);
nlohmann::ordered_json totals_json(const measure::SystemCallTrace& trace);

}  // namespace cgp::profile
