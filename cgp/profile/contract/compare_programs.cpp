// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/contract/compare_programs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {

using measure::Metric;
using measure::Source;
using text::cat;

TimingRule timing_rule(const TimingOptions& o) {
  TimingRule rule;
  rule.timeout_seconds = o.timeout_seconds;
  if (o.clock == "cpu")
    rule.clock = Clock::cpu;
  else if (o.clock != "wall")
    throw ArgumentError(ErrorText{"--clock is wall or cpu", {}, cat("\"", o.clock, "\""), {}});
  if (o.regex.empty()) return rule;
  rule.clock = Clock::output;
  rule.regex = o.regex;
  try {
    if (std::regex(o.regex).mark_count() == 0)
      throw ArgumentError(ErrorText{"the first group of --time-regex is the time",
                                    {},
                                    cat("\"", o.regex, "\" has no group"),
                                    "'time: ([0-9.]+) ms'"});
  } catch (const std::regex_error& e) {
    throw ArgumentError(
        ErrorText{"--time-regex is a regular expression", {}, cat("\"", o.regex, "\": ", e.what()), {}});
  }
  static const std::pair<const char*, double> units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  const auto* unit =
      std::find_if(std::begin(units), std::end(units), [&](const auto& u) { return o.unit == u.first; });
  if (unit == std::end(units))
    throw ArgumentError(ErrorText{"--unit is s, ms, us or ns", {}, cat("\"", o.unit, "\""), {}});
  rule.unit_seconds = unit->second;
  return rule;
}

std::string describe(const TimingRule& rule) {
  return rule.clock == Clock::output ? "reported time"
         : rule.clock == Clock::cpu  ? "processor time"
                                     : "wall time";
}

std::optional<std::string> first_group(const std::string& text, const std::string& expression) {
  constexpr std::size_t kWindow = 8192;
  const std::regex pattern(expression);
  std::smatch found;
  for (std::size_t at = 0;; at += kWindow / 2) {
    const bool last = at + kWindow >= text.size();
    const auto begin = text.begin() + std::ptrdiff_t(at),
               end = last ? text.end() : begin + std::ptrdiff_t(kWindow);
    auto flags = std::regex_constants::match_default;
    if (at > 0) flags |= std::regex_constants::match_not_bol | std::regex_constants::match_prev_avail;
    if (!last) flags |= std::regex_constants::match_not_eol;
    // What ends with the window may go on behind it: the next one has it whole.
    if (std::regex_search(begin, end, found, pattern, flags) && found.size() > 1 &&
        (last || found[0].second != end))
      return found[1].str();
    if (last) return std::nullopt;
  }
}

OneRun time_once(const TimedProgram& program, const TimingRule& rule, std::uint64_t padding) {
  OneRun run;
  measure::ProcessOptions o;
  o.folder = program.folder;
  o.timeout_seconds = rule.timeout_seconds;
  o.environment = {{"CGP_PADDING", std::string(padding % 4096 + 1, 'x')}};
  run.process = measure::run_process(program.command, o);
  if (!run.process.ok()) {
    run.failure = run.process.describe();
    if (run.process.interrupted) return run;
    const auto last = text::trim(run.process.err);
    if (!last.empty())
      run.failure +=
          cat(": ", last.substr(last.rfind('\n') == std::string_view::npos ? 0 : last.rfind('\n') + 1));
    return run;
  }
  switch (rule.clock) {
    case Clock::wall:
      run.seconds = run.process.wall_seconds;
      break;
    case Clock::cpu:
      run.seconds = run.process.user_seconds + run.process.system_seconds;
      break;
    case Clock::output: {
      const auto printed = first_group(run.process.out, rule.regex);
      if (printed) run.seconds = std::strtod(printed->c_str(), nullptr) * rule.unit_seconds;
      if (!printed)
        run.failure = cat("no time in its output matches ", rule.regex);
      else if (!(run.seconds > 0) || !std::isfinite(run.seconds))
        run.failure = cat("what its output gives as time is \"", *printed, "\", which is no positive number");
    }
  }
  if (run.failure.empty() && !(run.seconds > 0)) run.failure = "it was too short for the clock";
  return run;
}

ProgramComparison compare_programs(const TimedProgram& a, const TimedProgram& b, const TimingRule& rule,
                                   const measure::PairedOptions& options) {
  ProgramComparison out;
  SplitMix64 random(options.seed + 99);
  const auto timed = [&](const TimedProgram& p, std::uint64_t padding) {
    OneRun r = time_once(p, rule, padding);
    if (r.failure.empty()) return r.seconds;
    out.crashed = r.crashed();
    throw Error(ErrorText{"both programs must run", p.label, r.failure, {}});
  };
  try {
    timed(a, 1), timed(b, 1);  // files into the page cache
    out.result = measure::compare_paired(
        [&](bool b_first) {
          const std::uint64_t padding = random.next();  // the same on both sides of a pair
          measure::Pair p;
          if (b_first)
            p.b = timed(b, padding), p.a = timed(a, padding);
          else
            p.a = timed(a, padding), p.b = timed(b, padding);
          return p;
        },
        options);
  } catch (const ArgumentError&) {
    throw;
  } catch (const Error& e) {
    out.failure = cat(e.where(), ": ", e.why());
  }
  return out;
}

void require_runs(const ProgramComparison& c, const std::string& rule) {
  if (c.failure.empty()) return;
  const ErrorText text{rule, {}, c.failure, {}};
  if (c.crashed) throw ProgramFailure(text);
  throw Error(text);
}

nlohmann::ordered_json to_json(const measure::PairedResult& r) {
  nlohmann::ordered_json j = {
      {"method", "interleaved pairs, sign-flip test on signed ranks, looks at 12, 20, 32"},
      {"verdict", measure::name(r.verdict)},
      {"change", r.change}};
  const auto finite = [](double v) {
    return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json();
  };
  j["interval"] = {finite(r.interval.low), finite(r.interval.high)};
  j["p"] = r.p, j["p_mean"] = r.p_mean, j["detectable"] = r.detectable;
  j["pairs"] = nlohmann::ordered_json::array();
  for (const auto& p : r.pairs) j["pairs"].push_back({p.a, p.b});
  j["seconds"] = r.seconds, j["why"] = r.why;
  return j;
}

std::string describe(const measure::PairedResult& r) {
  return fmt::format("{}  {} [{}, {}]  {} pairs, p {:.4f}", measure::name(r.verdict), percent_text(r.change),
                     percent_text(r.interval.low), percent_text(r.interval.high), r.pairs.size(), r.p);
}

void add_metrics(const measure::PairedResult& r, measure::MetricSet& m) {
  const std::string from = "interleaved pairs";
  m.set(Metric::regression_pct, 100 * r.change, Source::measured, from);
  m.set(Metric::p_value, r.p, Source::derived, "sign-flip test");
  m.set(Metric::verdict, std::string(measure::name(r.verdict)), Source::derived, "sign-flip test");
  std::vector<double> a, b;
  for (const auto& p : r.pairs) a.push_back(std::log(p.a)), b.push_back(std::log(p.b));
  if (const double d = measure::cohens_d(a, b); std::isfinite(d))
    m.set(Metric::effect_size_cohens_d, d, Source::derived, "logarithms of the pairs, unpaired");
  else
    m.absent(Metric::effect_size_cohens_d, "neither side varies");
}

}  // namespace cgp::profile
