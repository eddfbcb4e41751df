// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program to its end and says what it used: wall and processor time, memory, faults, switches. No
// shell.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cgp/base/program.h"

namespace cgp::measure {

struct ProcessOptions {
  std::string folder;  ///< to run in; empty: this one
  std::vector<std::pair<std::string, std::string>>
      environment;             ///< set on top of this process's; an empty value unsets
  double timeout_seconds = 0;  ///< then SIGTERM, and SIGKILL a second later; 0: none
  bool capture = true;         ///< keep standard output and error; false: they go where this process's go
  bool discard = false;        ///< to nowhere; goes before `capture`
  std::size_t keep_bytes = 1 << 20;  ///< of each stream; the middle of more is left out
  /// Called with the process id while it runs, about every `watch_seconds`, less often when it takes long.
  std::function<void(pid_t)> watch;
  double watch_seconds = 0.02;
};

struct ProcessResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  bool interrupted = false;  ///< this process was told to end meanwhile, and passed it on
  double wall_seconds = 0, user_seconds = 0, system_seconds = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t minor_faults = 0, major_faults = 0, voluntary_switches = 0, involuntary_switches = 0;
  std::string out, err;
  bool ok() const { return exit_code == 0 && !timed_out && !interrupted; }
  /// "exit code 3", "SIGSEGV", "timed out after 10 s", "interrupted".
  std::string describe() const;
};

/// Throws ArgumentError when `command` is empty, Error when the program cannot be started (with the system's
/// reason).
ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options = {});

/// Words of a command line as a POSIX shell splits them (quotes and backslashes, no expansion). Throws
/// ArgumentError for an open quote.
std::vector<std::string> split_command(const std::string& text);
/// The other way: quoted where needed.
std::string join_command(const std::vector<std::string>& words);

}  // namespace cgp::measure
