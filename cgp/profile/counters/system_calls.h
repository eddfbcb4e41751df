// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every system call of a program, in order, with what it said: by ptrace, which needs no root. Exact, but
// some ten times slower per call, so nothing here is a time. Calls that the vDSO answers (clock_gettime) do
// not reach the system and are not seen.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/profile/measure/process.h"

namespace cgp::measure {

struct SystemCall {
  int number = 0;
  std::vector<std::string> files;  ///< its arguments that name files
  std::int64_t result = 0;         ///< below 0: minus errno
  bool returned = false;           ///< exit and a call that a signal ended for good do not
};

/// A process, or a thread of one.
struct TracedTask {
  /// "0" the program; "0.1" the first process that it began, "0:1" its first thread, "0.1:2" and so on. The
  /// same in every run of a program that begins them in the same order.
  std::string id;
  std::vector<SystemCall> calls;
};

struct SystemCallTrace {
  std::vector<TracedTask> tasks;
  ProcessResult process;  ///< how the program ended; its output is not kept
};

struct SystemCallOptions {
  bool discard = false;        ///< the program's output goes nowhere; otherwise where this process's goes
  double timeout_seconds = 0;  ///< then everything that it began is killed; 0: none
};

/// Runs the program to its end, and all that it begins. Addresses are not randomised, so that equal runs make
/// equal calls. Throws ArgumentError for no command, Error when the program cannot be run, Unsupported where
/// ptrace is not permitted or the processor is none of x86-64.
SystemCallTrace trace_system_calls(const std::vector<std::string>& command,
                                   const SystemCallOptions& options = {});

/// "openat"; "call 999" for what this table does not know.
std::string system_call_name(int number);
/// "ENOENT"; "errno 999".
std::string error_name(int error);
enum class Moves : std::uint8_t { nothing, reads, writes };
/// Whether the call's result is a number of bytes read or written.
Moves system_call_moves(int number);

}  // namespace cgp::measure
