// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/cpu_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "cgp/base/markup.h"
#include "cgp/profile/sampling/flame_graph.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using nlohmann::ordered_json;

constexpr double kErrors = 3;

double rate_of(const ordered_json& section) {
  const double rate = number_in(section, "rate_hz");
  return rate > 0 && number_in(section, "samples") > 0 ? rate : 0;
}

/// Samples are drawn: the variance of a count is the count, of none at most one.
double error_of(double before, double before_rate, double after, double after_rate) {
  return kErrors * std::sqrt(std::max(before, 1.0) / (before_rate * before_rate) +
                             std::max(after, 1.0) / (after_rate * after_rate));
}

std::string word(const ordered_json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

/// The thread that works most has the program's name, which may be another one.
void match_busiest(FlameNode& old, const FlameNode& now) {
  const auto busiest = [](const FlameNode& root) {
    return std::max_element(root.called.begin(), root.called.end(),
                            [](const auto& a, const auto& b) { return a.second.samples < b.second.samples; });
  };
  const auto before = busiest(old);
  const auto after = busiest(now);
  if (before == old.called.end() || after == now.called.end() || old.called.count(after->first) ||
      now.called.count(before->first))
    return;
  auto node = old.called.extract(before->first);
  node.key() = after->first;
  old.called.insert(std::move(node));
}

std::string signed_time(double seconds) {
  return (seconds < 0 ? "-" : "+") + time_text(std::abs(seconds) * 1e6);
}

}  // namespace

std::vector<FunctionChange> function_changes(const ordered_json& before, const ordered_json& after) {
  const double rates[] = {rate_of(before), rate_of(after)};
  if (rates[0] <= 0 || rates[1] <= 0) return {};
  const bool python = !rows_in(before, "python").empty() && !rows_in(after, "python").empty();
  const char* list = python ? "python" : "functions";
  // A program that was built again may have another name: functions are known by theirs.
  struct Both {
    std::string name, module;
    std::array<double, 2> samples{};
  };
  std::map<std::string, Both> all;
  for (int side = 0; side < 2; ++side)
    for (const auto& f : rows_in(side ? after : before, list)) {
      const double self = number_in(f, "self");
      const std::string name = word(f, "name"), module = word(f, python ? "file" : "module");
      if (!(self > 0)) continue;
      Both& one = all[name[0] == '[' ? name + module : name];
      one.name = name, one.module = module, one.samples[std::size_t(side)] += self;
    }
  std::vector<FunctionChange> out;
  for (const auto& [key, f] : all)
    out.push_back({f.name, f.module, f.samples[0] / rates[0], f.samples[1] / rates[1],
                   error_of(f.samples[0], rates[0], f.samples[1], rates[1])});
  std::stable_sort(out.begin(), out.end(), [](const FunctionChange& a, const FunctionChange& b) {
    if (a.certain() != b.certain()) return a.certain();
    return std::abs(a.change_s()) > std::abs(b.change_s());
  });
  return out;
}

ordered_json to_json(const std::vector<FunctionChange>& changes) {
  ordered_json j = ordered_json::array();
  for (const auto& c : changes)
    j.push_back({{"name", c.name},
                 {"module", c.module},
                 {"before_s", c.before_s},
                 {"after_s", c.after_s},
                 {"error_s", c.error_s},
                 {"certain", c.certain()}});
  return j;
}

std::string changes_text(const std::vector<FunctionChange>& changes, int width) {
  Table table({"before", "after", "change", "<", "<function", "<in"});
  for (std::size_t i = 0; i < std::min<std::size_t>(12, changes.size()); ++i) {
    const auto& c = changes[i];
    table.row({time_text(c.before_s * 1e6), time_text(c.after_s * 1e6), signed_time(c.change_s()),
               c.certain() ? "" : "within 3 standard errors",
               fitted(visible(c.name), std::size_t(std::max(24, width - 86))),
               fitted(visible(c.module), 24)});
  }
  return changes.empty()
             ? ""
             : "processor time by function; one run each, and errors are those of sampling alone\n" +
                   table.text();
}

std::string changes_html(const ordered_json& before, const ordered_json& after,
                         const std::string& before_name, const std::string& after_name) {
  const auto changes = function_changes(before, after);
  if (changes.empty()) return {};
  std::string rows;
  for (std::size_t i = 0; i < std::min<std::size_t>(60, changes.size()); ++i) {
    const auto& c = changes[i];
    rows += format(
        "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td class='l'>{}</td><td "
        "class='l'>{}</td></tr>",
        text::escape_markup(fitted(c.name, 70)), time_text(c.before_s * 1e6), time_text(c.after_s * 1e6),
        signed_time(c.change_s()),
        c.certain() ? (c.change_s() > 0 ? "more" : "less") : "within 3 standard errors",
        text::escape_markup(c.module));
  }
  const double rates[] = {rate_of(before), rate_of(after)};
  const FlameNode now = flame_tree(after);
  FlameNode old = flame_tree(before);
  match_busiest(old, now);
  FlameStyle style;
  style.title = fitted(after_name, 60) + ", by the change since " + fitted(before_name, 60);
  style.before = &old;
  style.box = [&](const std::string&, const FlameNode& node, const FlameNode* other) {
    const double was = other ? other->samples : 0;
    const double change = node.samples / rates[1] - was / rates[0];
    const std::string more = format("; {}", signed_time(change));
    if (std::abs(change) <= error_of(was, rates[0], node.samples, rates[1]))
      return std::pair{std::string("#d4d4d4"), more + ", within 3 standard errors"};
    // As strong as the change is beside what is there.
    const double strong = std::min(1.0, std::abs(change) / (node.samples / rates[1]));
    const int light = int(86 - 26 * strong);
    return std::pair{format("hsl({},75%,{}%)", change > 0 ? 8 : 212, light), more};
  };
  return format(
             "<h2>{} and {}</h2><p class='s'>Processor time by function, and the second one's flame graph: "
             "red takes more time "
             "than in the first, blue less; grey is within three standard errors. What is gone is in the "
             "table alone.</p>",
             text::escape_markup(fitted(before_name, 60)), text::escape_markup(fitted(after_name, 60))) +
         flame_svg(now, style) +
         "<input class='f' "
         "placeholder='filter'><table><thead><tr><th>function</th><th>before</th><th>after</th><th>change</"
         "th>"
         "<th class='l'></th><th class='l'>in</th></tr></thead><tbody>" +
         rows + "</tbody></table>";
}

}  // namespace cgp::profile
