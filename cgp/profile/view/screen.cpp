// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/view/screen.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/roofline/peaks.h"
#include "cgp/profile/roofline/roofline_points.h"
#include "cgp/profile/sampling/cpu_profile.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;

constexpr std::string_view kNames[] = {"Roofline", "Timeline", "Kernel", "Compare", "Contract"};

std::vector<std::string> lines_of(const std::string& s) {
  std::vector<std::string> out;
  for (auto l : text::split(s, '\n')) out.emplace_back(l);
  while (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

/// Cut after `most` columns, never inside a character.
std::string cropped(const std::string& s, int most) {
  int n = 0;
  std::size_t i = 0;
  while (i < s.size() && n < most) {
    ++i, ++n;
    while (i < s.size() && (s[i] & 0xC0) == 0x80) ++i;
  }
  return s.substr(0, i);
}

Roofline roofline_of(const ScreenModel& m) {
  Roofline r;
  for (const auto& d : m.documents) {
    const auto section = d.more.value("roofline", nlohmann::ordered_json());
    for (const auto& p : rows_in(section, "points")) {
      const double intensity = number_in(p, "intensity"), gflops = number_in(p, "gflops");
      if (std::isnan(intensity + gflops)) continue;
      r.points.push_back({p.value("name", ""), intensity, gflops});
      for (const auto& l : rows_in(p, "levels"))
        r.points.back().levels.push_back(
            {l.value("level", ""), number_in(l, "bytes"), number_in(l, "intensity")});
    }
    if (r.lines.empty())
      for (const auto& l : rows_in(section, "lines"))
        if (const double value = number_in(l, "value"); !std::isnan(value))
          r.lines.push_back(
              {l.value("name", ""), l.value("bandwidth", false), value, l.value("source", "") == "measured"});
    if (d.machine.contains("device") && r.lines.empty())
      if (const auto* p = device_peaks(d.machine["device"].value("name", "")))
        r.lines = {{"HBM", true, p->memory_gbps, false},
                   {"fp32", false, p->fp32 * 1000, false},
                   {"tf32 tensor", false, p->tf32 * 1000, false},
                   {"bf16 tensor", false, p->bf16 * 1000, false}};
    const auto& x = d.metrics;
    if (x.has(Metric::peak_bandwidth_gbps) && x.has(Metric::peak_compute_tflops) && r.lines.empty())
      r.lines = {{"memory", true, x[Metric::peak_bandwidth_gbps].number(), false},
                 {"compute", false, x[Metric::peak_compute_tflops].number() * 1000, false}};
    for (auto& p : roof_points(d)) r.points.push_back(std::move(p));
  }
  return r;
}

std::vector<std::string> roofline_tab(const ScreenModel& m, int width, int height) {
  const Roofline r = roofline_of(m);
  if (r.lines.empty())
    return {"no ceilings: open a file of `cgp roofline --save FILE`, or a profile of a known GPU"};
  return lines_of(
      roofline_text(r, width, std::max(6, height - 4 - int(r.points.size() + (r.lines.size() + 2) / 3))));
}

std::vector<std::string> timeline_tab(const ScreenModel& m, int width) {
  std::vector<std::string> out;
  for (const auto& d : m.documents) {
    if (d.more.contains("cpu_samples"))
      for (auto& l : lines_of(d.name + "\n" + cpu_text(d.more["cpu_samples"], width)))
        out.push_back(std::move(l));
    if (d.kernels.empty()) continue;
    out.push_back(d.name);
    if (d.more.contains("timeline")) {
      const auto& t = d.more["timeline"];
      const auto time = [&](const char* key) { return time_text(number_in(t, key)); };
      out.push_back(format("  GPU idle {:.0f} % of {}; {} launches, call {}, gap {}{}",
                           t.value("gpu_idle_pct", 0.0), time_text(t.value("span_ms", 0.0) * 1e3),
                           t.value("launches", 0), time("launch_call_us"), time("gap_us"),
                           t.value("launch_bound", false) ? "  LAUNCH-BOUND" : ""));
      if (const double seen = t.value("recorded_pct", 100.0); seen < 100)
        out.push_back(format("  {} % of the time was recorded: launches and times are of that part",
                             number_text(seen)));
    }
    double most = 0;
    for (const auto& k : d.kernels) most = std::max(most, k.total_us());
    for (const auto& k : d.kernels) {
      const int bar = most > 0 ? int(std::lround(k.total_us() / most * (width - 50))) : 0;
      std::string blocks;
      for (int i = 0; i < bar; ++i) blocks += "█";
      out.push_back(format("  {:<32} {:>10} {}", fitted(short_name(k.name), 32),
                           k.us.empty() ? "-" : time_text(k.total_us()), blocks));
    }
  }
  if (out.empty())
    out.emplace_back(
        "nothing to show: open a profile of a program (cgp profile binary --save), or of a kernel");
  return out;
}

std::vector<const KernelUse*> shown_kernels(const ScreenModel& m, const ScreenState& s) {
  std::vector<const KernelUse*> out;
  for (const auto& d : m.documents)
    for (const auto& k : d.kernels)
      if (s.filter.empty() || k.name.find(s.filter) != std::string::npos) out.push_back(&k);
  return out;
}

std::vector<std::string> kernel_tab(const ScreenModel& m, const ScreenState& s) {
  const auto all = shown_kernels(m, s);
  if (all.empty())
    return {s.filter.empty() ? "no kernels" : format("no kernel's name contains \"{}\"", s.filter)};
  const int at = std::clamp(s.selected, 0, int(all.size()) - 1);
  if (!s.detail) {
    Table table({"<", "<kernel", "launches", "median", "total", "registers"});
    for (int i = 0; i < int(all.size()); ++i) {
      const auto& k = *all[std::size_t(i)];
      table.row({i == at ? ">" : " ", fitted(short_name(k.name), 44), std::to_string(k.launches),
                 k.us.empty() ? "-" : time_text(measure::median(k.us)),
                 k.us.empty() ? "-" : time_text(k.total_us()),
                 k.registers ? std::to_string(k.registers) : "-"});
    }
    return lines_of(table.text(0));
  }
  const auto& k = *all[std::size_t(at)];
  std::vector<std::string> out{
      k.name, format("grid {},{},{}  block {},{},{}  shared {} + {} bytes", k.grid[0], k.grid[1], k.grid[2],
                     k.block[0], k.block[1], k.block[2], k.static_shared, k.dynamic_shared)};
  for (const auto& info : measure::metrics())
    if (k.metrics.has(info.id))
      out.push_back(format("  {:<32} {:>12} {}", info.name, value_text(k.metrics[info.id]), info.unit));
  for (const auto& [counter, v] : k.counters)
    out.push_back(format("  {:<72} {:>12}", counter, number_text(v)));
  return out;
}

std::vector<std::string> compare_tab(const ScreenModel& m) {
  if (m.documents.size() < 2) return {"open two profiles to compare them"};
  std::vector<std::string> out;
  for (std::size_t i = 1; i < m.documents.size(); ++i) {
    out.push_back(format("{} -> {}", m.documents[0].name, m.documents[i].name));
    Table table({"<what", "before", "after", "change", "<verdict", "<why"});
    for (const auto& r : diff_documents(m.documents[0], m.documents[i], 0.12, 0.03))
      table.row(
          {r.name, number_text(r.before), number_text(r.after), percent_text(r.change), r.verdict, r.why});
    if (table.empty())
      out.emplace_back("  nothing in common");
    else
      for (auto& l : lines_of(table.text())) out.push_back(std::move(l));
  }
  return out;
}

bool skips_all(const std::vector<Checked>& checks) {
  return std::all_of(checks.begin(), checks.end(),
                     [](const Checked& c) { return c.outcome == Outcome::skip; });
}

std::vector<std::string> contract_tab(const ScreenModel& m) {
  if (m.contracts.empty()) return {"no contract: cgp tui PROFILE... FILE.yaml"};
  std::vector<std::string> out;
  for (const auto& c : m.contracts) {
    out.push_back(c.name);
    // Of the last profile that it is about; if it is about none, the last one says why.
    std::vector<Checked> checks = check(c, m.documents.back());
    for (std::size_t i = m.documents.size(); i-- > 0 && skips_all(checks);)
      if (auto other = check(c, m.documents[i]); !skips_all(other)) checks = std::move(other);
    for (const auto& one : checks)
      out.push_back(format("  {}  {}{}", name(one.outcome), one.promise.name,
                           one.why.empty() ? "" : "  (" + one.why + ")"));
  }
  return out;
}

std::string status(const ScreenModel& m) {
  if (m.documents.empty()) return "no profile is open";
  const auto& x = m.documents.back().metrics;
  const auto cell = [&](Metric id) { return x.has(id) ? number_text(x[id].number()) : std::string("-"); };
  return format("{}  bound {}  ridge/AI {}  occupancy {}{}  {} kinds of waste",
                fitted(m.documents.back().name, 30),
                x.has(Metric::bound) ? std::get<std::string>(*x[Metric::bound].held) : "-",
                cell(Metric::distance_to_ridge), cell(Metric::achieved_occupancy_pct),
                x.has(Metric::achieved_occupancy_pct) ? " %" : "", m.documents.back().waste.size());
}

bool is_list(const ScreenState& s) { return s.tab == Tab::kernel && !s.detail && !s.help; }

std::vector<std::string> body_of(const ScreenModel& m, const ScreenState& s, int width, int room) {
  if (s.help)
    return {"1-5, Tab    the tabs; d shows Compare",
            "up, down    choose a kernel, or scroll; Enter shows it in full, Escape goes back",
            "/           only kernels whose name contains what follows; Enter ends it",
            "r           measure what the last profile is of once more, and add that",
            "e           write the last profile to cgp-export.json, the roofline to cgp-export.svg",
            "q           quit"};
  switch (s.tab) {
    case Tab::roofline:
      return roofline_tab(m, width, room);
    case Tab::timeline:
      return timeline_tab(m, width);
    case Tab::kernel:
      return kernel_tab(m, s);
    case Tab::compare:
      return compare_tab(m);
    case Tab::contract:
      break;
  }
  return contract_tab(m);
}

}  // namespace

std::string roofline_picture(const ScreenModel& m) {
  const Roofline r = roofline_of(m);
  return r.lines.empty() ? "" : roofline_svg(r);
}

std::string_view name(Tab t) { return kNames[std::size_t(t)]; }

std::vector<std::string> render(const ScreenModel& m, const ScreenState& s, int width, int height,
                                bool color) {
  std::string bar;
  const auto label = [&](int i, bool whole) {
    const bool chosen = i == int(s.tab);
    const std::string text = whole || chosen ? format("{} {}", i + 1, kNames[i]) : std::to_string(i + 1);
    return chosen ? "[" + text + "]" : " " + text + " ";
  };
  std::size_t all = 0;
  for (int i = 0; i < kTabs; ++i) all += label(i, true).size();
  int used = 0;
  for (int i = 0; i < kTabs; ++i) {
    const std::string text = cropped(label(i, all <= std::size_t(width)), width - used);
    used += int(text.size());
    bar += color && i == int(s.tab) ? "\x1b[7m" + text + "\x1b[0m" : text;
  }
  const int room = std::max(1, height - 3);
  const auto body = body_of(m, s, width, room);
  // The selected row stays in view.
  const int first =
      std::max(0, std::min(is_list(s) ? s.selected + 2 - room : s.scrolled, int(body.size()) - room));
  std::vector<std::string> out{bar};
  for (int i = 0; i < room; ++i)
    out.push_back(first + i < int(body.size()) ? cropped(body[std::size_t(first + i)], width) : "");
  out.push_back(cropped(status(m), width));
  out.push_back(cropped(s.typing            ? "/" + s.filter + "_"
                        : s.message.empty() ? "q quit  ? help  / filter  d compare  r run again  e export"
                                            : s.message,
                        width));
  out.resize(std::size_t(height));
  return out;
}

bool press(ScreenState& s, const ScreenModel& m, const std::string& key) {
  s.message.clear();
  if (s.typing) {
    if (key == "enter" || key == "escape")
      s.typing = false;
    else if (key == "backspace")
      s.filter.empty() ? void() : s.filter.pop_back();
    else if (key.size() == 1)
      s.filter += key;
    s.selected = 0;
    return true;
  }
  const int last = int(shown_kernels(m, s).size()) - 1;
  if (key == "q") return false;
  const auto show = [&](Tab tab) { s.tab = tab, s.scrolled = 0, s.detail = s.help = false; };
  const int down = key == "down" || key == "j" ? 1 : key == "up" || key == "k" ? -1 : 0;
  if (down && is_list(s))
    s.selected = std::clamp(s.selected + down, 0, std::max(0, last));
  else if (down)
    s.scrolled = std::clamp(s.scrolled + down, 0, std::max(0, int(body_of(m, s, 100, 20).size()) - 1));
  else if (key.size() == 1 && key[0] >= '1' && key[0] <= '5')
    show(Tab(key[0] - '1'));
  else if (key == "tab")
    show(Tab((int(s.tab) + 1) % kTabs));
  else if (key == "enter" && s.tab == Tab::kernel)
    s.detail = true, s.scrolled = 0;
  else if (key == "escape")
    s.detail = s.help = false;
  else if (key == "d")
    show(Tab::compare);
  else if (key == "?")
    s.help = !s.help, s.scrolled = 0;
  else if (key == "/")
    s.tab = Tab::kernel, s.typing = true, s.filter.clear();
  return true;
}

}  // namespace cgp::profile
