// SPDX-License-Identifier: Apache-2.0
// The section "cpu_samples" of a profile: written, as text, and as a flame graph.
#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/markup.h"
#include "cgp/base/text.h"
#include "cgp/profile/sampling/annotate.h"
#include "cgp/profile/sampling/cpu_profile.h"
#include "cgp/profile/sampling/flame_graph.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using nlohmann::ordered_json;

constexpr std::size_t kFunctions = 200, kStacks = 4000;  // in the file

double share(std::uint64_t part, std::uint64_t all) { return all ? 100 * double(part) / double(all) : 0; }

double number(const ordered_json& j, const char* key) {
  const double v = number_in(j, key);
  return v > 0 ? v : 0;
}
std::string word(const ordered_json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

ordered_json waits_json(const CpuProfile& p) {
  std::vector<std::pair<std::uint64_t, const std::string*>> stacks;
  std::uint64_t all = 0;
  for (const auto& [stack, ns] : p.waits) stacks.emplace_back(ns, &stack), all += ns;
  std::stable_sort(stacks.begin(), stacks.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (stacks.size() > kStacks) stacks.resize(kStacks);
  ordered_json j = {{"unit", "ms"},
                    {"title", "waiting"},
                    {"seconds", double(all) * 1e-9},
                    {"displaced_s", double(p.displaced_ns) * 1e-9}};
  j["folded"] = ordered_json::array();
  for (const auto& [ns, stack] : stacks)
    j["folded"].push_back({{"stack", *stack}, {"samples", double(ns) * 1e-6}});
  return j;
}

/// Behind a margin of 11 columns, in which `label` stands; words stay whole.
std::string wrapped(const char* label, const std::string& sentence, int width) {
  const std::size_t room = std::size_t(std::max(40, width - 11));
  std::string out, line;
  for (const auto part : text::split(sentence, ' ')) {
    if (!line.empty() && line.size() + 1 + part.size() > room) {
      out += format("{:<11}{}\n", out.empty() ? label : "", line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(part);
  }
  return out + format("{:<11}{}\n", out.empty() ? label : "", line);
}

/// Where threads waited, by the functions of the program: those of the operating system are left out.
std::string waits_text(const ordered_json& waits, int width) {
  if (const auto absent = word(waits, "absent"); !absent.empty())
    return format("waiting    not seen: {}\n", absent);
  std::string out =
      format("waiting    {} in all threads together; displaced by others {}\n",
             time_text(number(waits, "seconds") * 1e6), time_text(number(waits, "displaced_s") * 1e6));
  Table table({"time", "<function and its callers"});
  const auto rows = rows_in(waits, "folded");
  for (std::size_t i = 0; i < std::min<std::size_t>(6, rows.size()); ++i) {
    const std::string stack = word(rows[i], "stack");
    auto names = text::split(stack, ';');
    const auto system = std::find(names.begin(), names.end(), "entry_SYSCALL_64_after_hwframe");
    if (names.begin() != system) names.erase(system, names.end());
    std::string shown;
    for (std::size_t k = names.size(); k > 1 && names.size() - k < 4; --k)
      shown += (shown.empty() ? "" : " < ") + std::string(names[k - 1]);
    table.row({time_text(number(rows[i], "samples") * 1e3),
               fitted(visible(shown), std::size_t(std::max(40, width - 14)))});
  }
  return out + (table.empty() ? "" : table.text());
}

/// Which functions of the program launched what takes most of the GPU's time.
std::string launched_text(const ordered_json& launched, int width) {
  const double all = number(launched, "seconds") * 1e3;
  std::string out =
      format("launched   {} of kernels, {:.0f} launches, the stacks of {:.0f} seen\n", time_text(all * 1e3),
             number(launched, "launches"), number(launched, "stacks_seen"));
  Table table({"time", "share", "<kernel < the functions that launched it"});
  const auto rows = rows_in(launched, "folded");
  for (std::size_t i = 0; i < std::min<std::size_t>(8, rows.size()); ++i) {
    const std::string stack = word(rows[i], "stack");
    const auto names = text::split(stack, ';');
    std::string shown;
    for (std::size_t k = names.size(); k > 1 && names.size() - k < 5; --k)
      shown += (shown.empty() ? "" : " < ") + std::string(names[k - 1]);
    const double ms = number(rows[i], "samples");
    table.row({time_text(ms * 1e3), format("{:.1f} %", all > 0 ? 100 * ms / all : 0),
               fitted(visible(shown), std::size_t(std::max(40, width - 24)))});
  }
  return out + (table.empty() ? "" : table.text());
}

}  // namespace

ordered_json to_json(const CpuProfile& p) {
  if (!p.absent.empty()) return {{"absent", p.absent}};
  ordered_json j = {
      {"clock", p.timer.empty() ? "cpu-clock (perf_event_open)" : "timer (libcgp_sample.so): " + p.timer},
      {"rate_hz", p.rate},
      {"samples", p.samples},
      {"lost", p.lost},
      {"seconds", p.seconds()},
      {"kernel", p.kernel},
      {"callers", "unwind tables, else frame pointers"},
      {"stacks_cut", p.cut}};
  j["threads"] = ordered_json::array();
  for (const auto& t : p.threads)
    j["threads"].push_back(
        {{"process", t.process}, {"thread", t.thread}, {"name", t.name}, {"samples", t.samples}});
  j["functions"] = ordered_json::array();
  for (std::size_t i = 0; i < std::min(kFunctions, p.functions.size()); ++i) {
    const auto& f = p.functions[i];
    ordered_json one = {{"name", f.name},   {"module", f.module},
                        {"self", f.self},   {"self_pct", share(f.self, p.samples)},
                        {"total", f.total}, {"total_pct", share(f.total, p.samples)}};
    one["lines"] = ordered_json::array();
    for (const auto& l : f.lines)
      one["lines"].push_back({{"file", l.at.file}, {"line", l.at.line}, {"samples", l.samples}});
    if (!f.source.is_null()) one["source"] = f.source;
    if (!f.assembly.is_null()) one["assembly"] = f.assembly;
    j["functions"].push_back(std::move(one));
  }
  if (!p.python.empty()) j["python"] = ordered_json::array();
  for (std::size_t i = 0; i < std::min(kFunctions, p.python.size()); ++i) {
    const auto& f = p.python[i];
    j["python"].push_back({{"name", f.name},
                           {"file", f.file},
                           {"self", f.self},
                           {"self_pct", share(f.self, p.samples)},
                           {"total", f.total},
                           {"total_pct", share(f.total, p.samples)}});
  }
  j["folded"] = ordered_json::array();
  std::vector<std::pair<std::uint64_t, const std::string*>> stacks;
  for (const auto& [stack, samples] : p.folded) stacks.emplace_back(samples, &stack);
  std::stable_sort(stacks.begin(), stacks.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::uint64_t left_out = 0;
  for (std::size_t i = 0; i < stacks.size(); ++i)
    if (i < kStacks)
      j["folded"].push_back({{"stack", *stacks[i].second}, {"samples", stacks[i].first}});
    else
      left_out += stacks[i].first;
  j["folded_left_out"] = left_out;
  if (!p.waits_absent.empty()) j["waits"] = {{"absent", p.waits_absent}};
  if (p.waits_watched) j["waits"] = waits_json(p);
  return j;
}

std::string cpu_text(const ordered_json& section, int width) {
  if (const auto absent = word(section, "absent"); !absent.empty())
    return format("cpu        no samples: {}\n", absent);
  const double samples = number(section, "samples");
  if (samples <= 0)
    return "cpu        no samples: the program used less processor time than one takes\n" +
           (section.contains("waits") ? waits_text(section["waits"], width) : "") +
           (section.contains("launched") ? launched_text(section["launched"], width) : "");
  const auto threads = rows_in(section, "threads");
  const std::string clock = word(section, "clock");
  const bool timer = clock.rfind("timer", 0) == 0;
  std::string out = format(
      "cpu        {:.0f} samples at {:.0f} Hz: {} in {} thread{}{}\n", samples, number(section, "rate_hz"),
      time_text(number(section, "seconds") * 1e6), threads.size(), threads.size() == 1 ? "" : "s",
      timer || section.value("kernel", ordered_json()) == true ? "" : "; without the kernel's time");
  if (timer)
    out +=
        wrapped("", clock + "; time in the operating system counts for the function that called it", width);
  if (const double lost = number(section, "lost"); lost > 0)
    out += format("           {:.0f} samples were lost: shares may be off\n", lost);
  if (const double cut = number(section, "stacks_cut"); cut > 0.01 * samples)
    out += format("           {:.0f} stacks are deeper than 8 KiB: their outermost callers are not known\n",
                  cut);
  const auto headline = headline_of(section, number(section, "wall_s"));
  if (!headline.bound_by.empty()) out += wrapped("", headline.bound_by, width);
  if (const auto python = rows_in(section, "python"); !python.empty()) {
    Table table({"self", "total", "<functions of Python, with the machine code for them", "<in"});
    for (std::size_t i = 0; i < std::min<std::size_t>(10, python.size()); ++i)
      table.row({format("{:.1f} %", number(python[i], "self_pct")),
                 format("{:.1f} %", number(python[i], "total_pct")),
                 fitted(visible(word(python[i], "name")), std::size_t(std::max(52, width - 50))),
                 fitted(visible(word(python[i], "file")), 26)});
    out += table.text();
  }
  Table functions({"self", "total", "<function", "<in", "<hottest line"});
  Table lines({"self", "<line", "<function"});
  const std::size_t room = std::size_t(std::max(30, width - 62));
  struct Line {
    double samples;
    std::string at, function;
  };
  std::vector<Line> hot;
  int shown = 0;
  const auto all = rows_in(section, "functions");
  for (const auto& f : all) {
    const auto at = [&](const ordered_json& l) {
      const std::string file = word(l, "file");
      return format("{}:{:.0f}", file.substr(file.rfind('/') + 1), number(l, "line"));
    };
    const auto of = rows_in(f, "lines");
    for (const auto& l : of) hot.push_back({number(l, "samples"), at(l), word(f, "name")});
    if (shown >= 12 || number(f, "self") <= 0) continue;
    ++shown;
    functions.row({format("{:.1f} %", number(f, "self_pct")), format("{:.1f} %", number(f, "total_pct")),
                   fitted(visible(word(f, "name")), room), fitted(visible(word(f, "module")), 24),
                   of.empty() ? "" : at(of[0])});
  }
  out += functions.text();
  std::stable_sort(hot.begin(), hot.end(),
                   [](const Line& a, const Line& b) { return a.samples > b.samples; });
  for (std::size_t i = 0; i < std::min<std::size_t>(5, hot.size()); ++i)
    lines.row({format("{:.1f} %", 100 * hot[i].samples / samples), hot[i].at,
               fitted(visible(hot[i].function), room)});
  if (!lines.empty()) out += "           hot lines\n" + lines.text();
  if (!all.empty()) out += annotated_text(all[0], width);
  if (threads.size() > 1) {
    Table by_thread({"share", "<thread", "id"});
    for (std::size_t i = 0; i < std::min<std::size_t>(8, threads.size()); ++i)
      by_thread.row({format("{:.1f} %", 100 * number(threads[i], "samples") / samples),
                     visible(word(threads[i], "name")), format("{:.0f}", number(threads[i], "thread"))});
    out += "           threads\n" + by_thread.text();
  }
  if (section.contains("waits")) out += waits_text(section["waits"], width);
  if (section.contains("launched")) out += launched_text(section["launched"], width);
  for (std::size_t i = 0; i < headline.next.size(); ++i)
    out += wrapped(i == 0 ? "next" : "", headline.next[i], width);
  return out;
}

std::string cpu_flamegraph_svg(const ordered_json& section, const std::string& title) {
  const std::string unit = word(section, "unit"), what = word(section, "title");
  FlameStyle style;
  style.title = fitted(title, 90) + ": " + (what.empty() ? "processor time" : what);
  if (!unit.empty()) style.unit = text::escape_markup(unit);
  return flame_svg(flame_tree(section), style);
}

}  // namespace cgp::profile
