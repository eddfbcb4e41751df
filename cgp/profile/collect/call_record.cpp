// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/call_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using nlohmann::ordered_json;
constexpr const char* kRecordSchema = "cgp.syscalls/1";

/// File names with the parts taken out that say nothing about the program.
class Masks {
 public:
  explicit Masks(const CallRules& rules) : folder_(rules.folder) {
    for (const auto& m : rules.masks) try {
        masks_.emplace_back(m);
      } catch (const std::regex_error& e) {
        throw ArgumentError(
            ErrorText{"a mask is a regular expression", {}, text::cat("\"", m, "\": ", e.what()), {}});
      }
  }
  std::string apply(std::string s) const {
    for (const auto& m : masks_) s = std::regex_replace(s, m, "*");
    if (folder_.size() > 1)  // "/" is in every name
      for (std::size_t at = 0; (at = s.find(folder_, at)) != std::string::npos;) {
        const std::size_t end = at + folder_.size();
        if (end == s.size() || s[end] == '/' || s[end] == '"') s.replace(at, folder_.size(), "$PWD");
        ++at;
      }
    return s;
  }

 private:
  std::vector<std::regex> masks_;
  std::string folder_;
};

std::string call_text(const measure::SystemCall& c) {
  std::string out = measure::system_call_name(c.number);
  for (const auto& f : c.files) out += text::cat(" \"", f, "\"");
  if (c.returned && c.result < 0) out += " = " + measure::error_name(int(-c.result));
  return out;
}

std::string name_in(const std::string& line) { return line.substr(0, line.find(' ')); }

/// The lines that rules leave, equal neighbours joined.
std::vector<CallLine> filtered(const std::vector<CallLine>& lines, const std::set<std::string>& ignored,
                               const Masks& masks) {
  std::vector<CallLine> out;
  for (const auto& l : lines) {
    if (ignored.count(name_in(l.text))) continue;
    std::string text = masks.apply(l.text);
    if (!out.empty() && out.back().text == text)
      out.back().times += l.times;
    else
      out.push_back({std::move(text), l.times});
  }
  return out;
}

std::string line_text(const CallLine& l) {
  return l.times > 1 ? format("{} ({} times)", l.text, l.times) : l.text;
}

/// The shortest way from `a` to `b` by taking out and putting in (Myers, "An O(ND) Difference Algorithm and
/// Its Variations", 1986): pairs of how far both are after each step. Empty when it takes more than `most`
/// steps.
std::vector<std::pair<int, int>> shortest_edit(const std::vector<CallLine>& a, const std::vector<CallLine>& b,
                                               int most) {
  const int n = int(a.size()), m = int(b.size());
  std::vector<std::vector<int>> history;
  std::vector<int> reach(std::size_t(2 * most + 3), 0);
  const auto at = [&](std::vector<int>& v, int k) -> int& { return v[std::size_t(k + most + 1)]; };
  for (int d = 0; d <= most; ++d) {
    history.push_back(reach);
    for (int k = -d; k <= d; k += 2) {
      int x = k == -d || (k != d && at(reach, k - 1) < at(reach, k + 1)) ? at(reach, k + 1)
                                                                         : at(reach, k - 1) + 1;
      while (x < n && x - k < m && a[std::size_t(x)] == b[std::size_t(x - k)]) ++x;
      at(reach, k) = x;
      if (x < n || x - k < m) continue;
      std::vector<std::pair<int, int>> path{{n, m}};
      for (int y = m; d > 0; --d) {  // back along the ways that were kept
        auto& before = history[std::size_t(d)];
        const int here = x - y;
        const int from =
            here == -d || (here != d && at(before, here - 1) < at(before, here + 1)) ? here + 1 : here - 1;
        x = at(before, from), y = x - from;
        path.push_back({x, y});
      }
      std::reverse(path.begin(), path.end());
      return path;
    }
  }
  return {};
}

constexpr int kMostEdits = 400;

/// Both ends where they are equal taken away, then the differences with two lines around each.
void compare_lines(const std::string& task, const std::vector<CallLine>& a, const std::vector<CallLine>& b,
                   std::vector<CallDifference>& out) {
  std::size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  if (head == a.size() && head == b.size()) return;
  std::uint64_t calls = 0;
  for (std::size_t i = 0; i < head; ++i) calls += a[i].times;
  CallDifference d{format("task {}, after {} call{}", task, calls, calls == 1 ? "" : "s"), {}};
  for (std::size_t i = head - std::min<std::size_t>(head, 2); i < head; ++i)
    d.lines.push_back("  " + line_text(a[i]));
  const std::vector<CallLine> rest_a(a.begin() + std::ptrdiff_t(head), a.end()),
      rest_b(b.begin() + std::ptrdiff_t(head), b.end());
  const auto path = shortest_edit(rest_a, rest_b, kMostEdits);
  if (path.empty()) {
    if (!rest_a.empty()) d.lines.push_back("- " + line_text(rest_a[0]));
    if (!rest_b.empty()) d.lines.push_back("+ " + line_text(rest_b[0]));
    d.lines.push_back(format("  and more than {} differences behind it", kMostEdits));
    out.push_back(std::move(d));
    return;
  }
  std::size_t x = 0, y = 0, equal = 0;
  const auto same = [&](std::size_t to_x) {  // equal lines up to there, the middle of many left out
    for (; x < to_x; ++x, ++y, ++equal) {
      const std::size_t left = to_x - x;
      if (equal < 2 || (left <= 2 && x + left < rest_a.size()))
        d.lines.push_back("  " + line_text(rest_a[x]));
      else if (equal == 2)
        d.lines.push_back("  ...");
    }
  };
  for (const auto& [to_x, to_y] : path) {
    // A step is one line out of `a` or into `b`, then equal lines; which of both, the distances say.
    const std::size_t tx = std::size_t(to_x), ty = std::size_t(to_y);
    if (tx - x > ty - y)
      d.lines.push_back("- " + line_text(rest_a[x])), ++x, equal = 0;
    else if (ty - y > tx - x)
      d.lines.push_back("+ " + line_text(rest_b[y])), ++y, equal = 0;
    same(tx);
  }
  out.push_back(std::move(d));
}

std::map<std::string, std::uint64_t> counts_of(const CallRecord& r, const std::set<std::string>& ignored,
                                               const Masks& masks) {
  std::map<std::string, std::uint64_t> out;
  for (const auto& t : r.tasks)
    for (const auto& l : filtered(t.lines, ignored, masks)) out[l.text] += l.times;
  return out;
}

struct CallTotal {
  std::uint64_t calls = 0, failed = 0, read = 0, written = 0;
  std::map<std::string, std::uint64_t> errors;
};

std::vector<std::pair<std::string, CallTotal>> totals_of(const measure::SystemCallTrace& trace) {
  std::map<std::string, CallTotal> by_name;
  for (const auto& t : trace.tasks)
    for (const auto& c : t.calls) {
      CallTotal& total = by_name[measure::system_call_name(c.number)];
      ++total.calls;
      if (c.result < 0) {
        ++total.failed, ++total.errors[measure::error_name(int(-c.result))];
      } else if (const auto moves = measure::system_call_moves(c.number); moves != measure::Moves::nothing) {
        (moves == measure::Moves::reads ? total.read : total.written) += std::uint64_t(c.result);
      }
    }
  std::vector<std::pair<std::string, CallTotal>> out(by_name.begin(), by_name.end());
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.second.calls > b.second.calls; });
  return out;
}

}  // namespace

CallRecord make_record(const measure::SystemCallTrace& trace, const std::vector<std::string>& command,
                       const CallRules& rules) {
  const Masks masks(rules);
  CallRecord r{command, rules, {}};
  for (const auto& t : trace.tasks) {
    std::vector<CallLine> lines;
    for (const auto& c : t.calls) lines.push_back({call_text(c)});
    r.tasks.push_back({t.id, filtered(lines, rules.ignored, masks)});
  }
  std::sort(r.tasks.begin(), r.tasks.end(), [](const CallTask& a, const CallTask& b) { return a.id < b.id; });
  r.rules.folder.clear();  // it is "$PWD" in the record
  return r;
}

std::vector<CallDifference> compare_records(const CallRecord& golden, const CallRecord& now, CallOrder by) {
  CallRules rules = golden.rules;
  rules.ignored.insert(now.rules.ignored.begin(), now.rules.ignored.end());
  for (const auto& m : now.rules.masks)
    if (std::find(rules.masks.begin(), rules.masks.end(), m) == rules.masks.end()) rules.masks.push_back(m);
  const Masks masks(rules);
  std::vector<CallDifference> out;
  if (by == CallOrder::order) {
    std::map<std::string, std::pair<std::vector<CallLine>, std::vector<CallLine>>> tasks;
    for (const auto& t : golden.tasks) tasks[t.id].first = filtered(t.lines, rules.ignored, masks);
    for (const auto& t : now.tasks) tasks[t.id].second = filtered(t.lines, rules.ignored, masks);
    for (const auto& [id, both] : tasks) compare_lines(id, both.first, both.second, out);
    return out;
  }
  auto before = counts_of(golden, rules.ignored, masks), after = counts_of(now, rules.ignored, masks);
  CallDifference d{"all tasks", {}};
  for (const auto& [text, times] : before)
    if (const auto at = after.find(text); at == after.end())
      d.lines.push_back("- " + line_text({text, times}));
    else if (by == CallOrder::counts && at->second != times)
      d.lines.push_back(format("! {}: {} times, now {}", text, times, at->second));
  for (const auto& [text, times] : after)
    if (!before.count(text)) d.lines.push_back("+ " + line_text({text, times}));
  if (!d.lines.empty()) out.push_back(std::move(d));
  return out;
}

ordered_json to_json(const CallRecord& r) {
  ordered_json j = {{"schema", kRecordSchema},
                    {"command", r.command},
                    {"ignored", r.rules.ignored},
                    {"masks", r.rules.masks},
                    {"tasks", ordered_json::array()}};
  for (const auto& t : r.tasks) {
    ordered_json lines = ordered_json::array();
    for (const auto& l : t.lines) l.times == 1 ? lines.push_back(l.text) : lines.push_back({l.text, l.times});
    j["tasks"].push_back({{"id", t.id}, {"calls", lines}});
  }
  return j;
}

CallRecord read_record(const std::string& content, const std::string& origin) {
  try {
    const ordered_json j = ordered_json::parse(content);
    if (j.value("schema", "") != kRecordSchema)
      throw ParseError({text::cat("a record of system calls has the schema ", kRecordSchema), origin,
                        text::cat("\"", j.value("schema", ""), "\""), "cgp syscalls --save FILE -- PROGRAM"});
    CallRecord r;
    r.command = j.at("command").get<std::vector<std::string>>();
    r.rules.ignored = j.at("ignored").get<std::set<std::string>>();
    r.rules.masks = j.at("masks").get<std::vector<std::string>>();
    for (const auto& t : j.at("tasks")) {
      CallTask task{t.at("id"), {}};
      for (const auto& l : t.at("calls"))
        task.lines.push_back(l.is_string() ? CallLine{l, 1} : CallLine{l.at(0), l.at(1)});
      r.tasks.push_back(std::move(task));
    }
    return r;
  } catch (const nlohmann::ordered_json::exception& e) {
    throw ParseError(
        {"a record of system calls must be read", origin, e.what(), "cgp syscalls --save FILE -- PROGRAM"});
  }
}

std::string call_table(const measure::SystemCallTrace& trace) {
  Table table({"<system call", "calls", "failed", "<errors", "read", "written"});
  const auto bytes = [](std::uint64_t n) { return n ? text::bytes(n) : std::string("-"); };
  std::uint64_t all = 0;
  for (const auto& [name, total] : totals_of(trace)) {
    std::vector<std::string> errors;
    for (const auto& [error, times] : total.errors)
      errors.push_back(times > 1 ? format("{} {}", times, error) : error);
    table.row({name, text::grouped(total.calls), total.failed ? text::grouped(total.failed) : "-",
               text::join(errors, ", "), bytes(total.read), bytes(total.written)});
    all += total.calls;
  }
  const auto threads =
      std::count_if(trace.tasks.begin(), trace.tasks.end(), [](const measure::TracedTask& t) {
        return t.id.find_last_of(".:") != std::string::npos && t.id[t.id.find_last_of(".:")] == ':';
      });
  const auto processes = std::ptrdiff_t(trace.tasks.size()) - threads;
  return format("{} system calls of {} process{} and {} more thread{}\n", text::grouped(all), processes,
                processes == 1 ? "" : "es", threads, threads == 1 ? "" : "s") +
         table.text();
}

ordered_json totals_json(const measure::SystemCallTrace& trace) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, total] : totals_of(trace))
    out[name] = {{"calls", total.calls},
                 {"errors", total.errors},
                 {"read_bytes", total.read},
                 {"written_bytes", total.written}};
  return out;
}

}  // namespace cgp::profile
