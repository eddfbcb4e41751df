// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/time_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using nlohmann::ordered_json;
using text::cat;

constexpr std::size_t kMost = 1000;

bool whole(std::string_view s, long long& v) {
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  return r.ec == std::errc() && r.ptr == s.data() + s.size();
}

std::string replaced(std::string text, const std::string& name, const std::string& value) {
  const std::string mark = "{" + name + "}";
  for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos; at += value.size())
    text.replace(at, mark.size(), value);
  return text;
}

std::size_t fastest_of(const std::vector<std::vector<double>>& us) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < us.size(); ++i)
    if (measure::median(us[i]) < measure::median(us[best])) best = i;
  return best;
}

}  // namespace

Parameter parse_parameter(const std::string& given) {
  const auto refuse = [&](const std::string& why) -> ArgumentError {
    return ArgumentError(ErrorText{"a parameter is NAME=a,b,c or NAME=FIRST..LAST or NAME=FIRST..LAST..STEP",
                                   {},
                                   cat("\"", given, "\": ", why),
                                   "cgp time --parameter threads=1..8 -- ./prog {threads}"});
  };
  const auto equals = given.find('=');
  if (equals == given.npos || equals == 0) throw refuse("it has no name");
  Parameter p{given.substr(0, equals), {}};
  const std::string values = given.substr(equals + 1);
  if (const auto dots = values.find(".."); dots != values.npos) {
    const auto second = values.find("..", dots + 2);
    long long first = 0, last = 0, step = 1;
    const std::string_view all = values;
    if (!whole(all.substr(0, dots), first) ||
        !whole(all.substr(dots + 2, second == values.npos ? second : second - dots - 2), last) ||
        (second != values.npos && !whole(all.substr(second + 2), step)))
      throw refuse("its ends and its step are whole numbers");
    if (step <= 0 || last < first) throw refuse("it holds no value");
    for (long long v = first; v <= last && p.values.size() <= kMost; v += step)
      p.values.push_back(std::to_string(v));
  } else {
    for (const auto v : text::split(values, ',')) p.values.emplace_back(v);
  }
  if (p.values.size() > kMost) throw refuse("it has more than 1000 values");
  for (const auto& v : p.values)
    if (v.empty()) throw refuse("a value is empty");
  return p;
}

std::vector<TimedCommand> expanded(const std::vector<std::vector<std::string>>& commands,
                                   const std::string& prepare, const std::vector<Parameter>& parameters) {
  std::vector<TimedCommand> out;
  for (const auto& c : commands) out.push_back({"", c, prepare});
  for (const auto& p : parameters) {
    std::vector<TimedCommand> next;
    bool used = false;
    for (const auto& c : out) {
      std::vector<TimedCommand> mine;
      for (const auto& value : p.values) {
        TimedCommand one = c;
        for (auto& w : one.command) w = replaced(w, p.name, value);
        one.prepare = replaced(one.prepare, p.name, value);
        mine.push_back(std::move(one));
      }
      const bool named = mine[0].command != c.command || mine[0].prepare != c.prepare;
      used = used || named;
      if (!named) mine.resize(1);  // a command beside the scan
      next.insert(next.end(), mine.begin(), mine.end());
      if (next.size() > kMost)
        throw ArgumentError(
            ErrorText{"at most 1000 commands are timed", {}, "the parameters have more combinations", {}});
    }
    if (!used)
      throw ArgumentError(
          ErrorText{cat("a command names the parameter as {", p.name, "}"), {}, "none does", {}});
    out = std::move(next);
  }
  for (auto& c : out) c.label = measure::join_command(c.command);
  return out;
}

void prepare_run(const std::string& prepare) {
  if (prepare.empty()) return;
  const auto r = measure::run_process({"sh", "-c", prepare});
  if (!r.ok())
    throw Error(ErrorText{
        "what --prepare names must end well", prepare, cat(r.describe(), " ", text::trim(r.err)), {}});
}

Document time_table(const TimeTableOptions& o, const std::function<void(const std::string&)>& step) {
  const auto rule = timing_rule(o.timing);
  const std::size_t n = o.commands.size();
  std::vector<std::vector<double>> us(n);
  const double start = measure::now();
  const auto known = [&](const std::vector<double>& v) {
    if (v.size() < 10) return false;
    const auto i = measure::median_interval(v);
    return (i.high - i.low) / 2 <= o.precision * measure::median(v);
  };
  for (int round = -o.warmup;; ++round) {
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t which = (k + std::size_t(round + o.warmup)) % n;
      const auto& c = o.commands[which];
      step(cat(round < 0 ? "warming up: " : cat("round ", round + 1, ": "), c.label));
      prepare_run(c.prepare);
      const auto one =
          time_once({c.label, c.command, {}}, rule, std::uint64_t(round + o.warmup + 1) * 2654435761u);
      if (!one.failure.empty()) {
        const ErrorText text{"every program must run", c.label, one.failure, {}};
        if (one.crashed()) throw ProgramFailure(text);
        throw Error(text);
      }
      if (round >= 0) us[which].push_back(one.seconds * 1e6);
    }
    if (round < 0) continue;
    if (o.runs > 0 ? round + 1 >= o.runs
                   : std::all_of(us.begin(), us.end(), known) ||
                         (measure::now() - start > o.budget * double(n) && round >= 2))
      break;
  }
  Document d = new_document("bench", format("{} programs", n));
  const std::size_t best = fastest_of(us);
  d.more["table"] = ordered_json::array();
  for (std::size_t i = 0; i < n; ++i) {
    d.samples.push_back({o.commands[i].label, "us", us[i]});
    std::vector<double> ratios;  // of rounds: what disturbed both is not in them
    for (std::size_t r = 0; r < us[i].size(); ++r) ratios.push_back(us[i][r] / us[best][r]);
    ordered_json row = {{"command", o.commands[i].label},
                        {"median_us", measure::median(us[i])},
                        {"min_us", *std::min_element(us[i].begin(), us[i].end())},
                        {"max_us", *std::max_element(us[i].begin(), us[i].end())},
                        {"runs", us[i].size()},
                        {"ratio", measure::median(ratios)}};
    const auto interval = measure::known_median_interval(ratios);
    row["ratio_low"] = interval ? ordered_json(interval->low) : ordered_json();
    row["ratio_high"] = interval ? ordered_json(interval->high) : ordered_json();
    d.more["table"].push_back(std::move(row));
  }
  return d;
}

std::string time_table_text(const Document& d, int width) {
  auto rows = rows_in(d.more, "table");
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return number_in(a, "median_us") < number_in(b, "median_us");
  });
  Table table({"median", "min", "max", "runs", "<against the fastest", "<command"});
  const std::size_t room = std::size_t(std::max(24, width - 68));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& r = rows[i];
    const double low = number_in(r, "ratio_low"), high = number_in(r, "ratio_high");
    const std::string ratio = i == 0 ? "the fastest"
                              : low != low
                                  ? format("{:.2f} times (too few runs to know)", number_in(r, "ratio"))
                                  : format("{:.2f} times [{:.2f}, {:.2f}]{}", number_in(r, "ratio"), low,
                                           high, low <= 1 ? ", may be equal" : "");
    table.row({time_text(number_in(r, "median_us")), time_text(number_in(r, "min_us")),
               time_text(number_in(r, "max_us")), format("{:.0f}", number_in(r, "runs")), ratio,
               fitted(visible(r.value("command", "")), room)});
  }
  return table.text();
}

}  // namespace cgp::profile
