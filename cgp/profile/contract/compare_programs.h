// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs against each other: fresh processes, interleaved, in an order that alternates.
#include <optional>
#include <string>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/profile/collect/timing_options.h"
#include "cgp/profile/measure/paired.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

enum class Clock : std::uint8_t { wall, cpu, output };

struct TimedProgram {
  std::string label;
  std::vector<std::string> command;
  std::string folder;
};

struct TimingRule {
  Clock clock = Clock::wall;
  std::string regex;        ///< Clock::output: its first group is the time
  double unit_seconds = 1;  ///< of what the regex finds
  double timeout_seconds = 0;
};
/// Throws ArgumentError for other clocks and units, and for what is no expression with a group.
TimingRule timing_rule(const TimingOptions& o);
/// "wall time", "processor time" or "reported time".
std::string describe(const TimingRule& rule);

struct OneRun {
  double seconds = 0;  ///< by the rule; 0 when it failed
  measure::ProcessResult process;
  std::string failure;  ///< empty: it ran
  bool crashed() const { return !process.ok(); }
};
/// A program that was started and failed: exit code 5. One that prints no time is used wrongly.
struct ProgramFailure : Error {
  using Error::Error;
};
/// Random padding of the environment, so that the layout of the stack is not the same in every run.
/// What the first group of `expression` holds where it is first found. Searched in windows of 8 KiB that
/// overlap by half, since the standard library's search needs stack for each character: a match is at most 4
/// KiB long.
std::optional<std::string> first_group(const std::string& text, const std::string& expression);

OneRun time_once(const TimedProgram& program, const TimingRule& rule, std::uint64_t padding);

struct ProgramComparison {
  measure::PairedResult result;
  std::string failure;   ///< a program failed: what it said
  bool crashed = false;  ///< and that it failed, not that it printed no time
};
/// Throws ProgramFailure, or Error, where there is a failure.
void require_runs(const ProgramComparison& c, const std::string& rule);
ProgramComparison compare_programs(const TimedProgram& a, const TimedProgram& b, const TimingRule& rule,
                                   const measure::PairedOptions& options);

nlohmann::ordered_json to_json(const measure::PairedResult& r);
/// One line: verdict, change, interval, pairs, p.
std::string describe(const measure::PairedResult& r);
void add_metrics(const measure::PairedResult& r, measure::MetricSet& into);

}  // namespace cgp::profile
