// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several programs, or one with several parameters, timed in rounds: each runs once a round, in an order that
// rotates, so that all have the same disturbances.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cgp/profile/collect/timing_options.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// NAME=a,b,c or NAME=FIRST..LAST or NAME=FIRST..LAST..STEP (whole numbers).
struct Parameter {
  std::string name;
  std::vector<std::string> values;
};
/// Throws ArgumentError with what is wrong; a scan has at most 1000 values.
Parameter parse_parameter(const std::string& text);

struct TimedCommand {
  std::string label;
  std::vector<std::string> command;
  std::string prepare;  ///< a shell's words, run before each of its runs and not timed; empty: nothing
};
/// Each command with each combination of the parameters: {NAME} in its words and in `prepare` is replaced. Throws
/// ArgumentError for a parameter that none of them names, and for more than 1000 of them.
std::vector<TimedCommand> expanded(const std::vector<std::vector<std::string>>& commands,
                                   const std::string& prepare, const std::vector<Parameter>& parameters);

/// Runs what prepares a run. Throws Error with what it wrote when it fails.
void prepare_run(const std::string& prepare);

struct TimeTableOptions {
  std::vector<TimedCommand> commands;
  TimingOptions timing;
  int runs = 0;             ///< of each; 0: until the precision or the budget is reached
  int warmup = 1;           ///< of each, before
  double budget = 10;       ///< seconds for each command
  double precision = 0.01;  ///< half the interval of the median, as a share of it
};
/// Throws ProgramFailure when a program crashes, Error when it fails otherwise.
Document time_table(const TimeTableOptions& o, const std::function<void(const std::string&)>& step);
/// The rows by time, each beside the fastest.
std::string time_table_text(const Document& d, int width);

}  // namespace cgp::profile
