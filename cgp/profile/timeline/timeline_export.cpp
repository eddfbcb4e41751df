// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/timeline/timeline_export.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cgp/base/markup.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::profile {
namespace {

using fmt::format;
using nlohmann::ordered_json;

std::uint64_t origin(const Timeline& t) {
  std::uint64_t first = ~0ull;
  for (const auto& a : t.activities) first = std::min(first, a.start);
  return first == ~0ull ? 0 : first;
}

std::string shown(const Activity& a) {
  return a.kind == Activity::Kind::kernel ? short_name(a.name) : a.name;
}

/// A stable colour from the name, light enough for dark text.
std::string colour(const std::string& name, bool gpu) {
  unsigned h = 2166136261u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return format("hsl({},{}%,{}%)", gpu ? 10 + h % 50 : 190 + h % 60, 60 + h / 64 % 20, 62 + h / 4096 % 14);
}

}  // namespace

std::string perfetto_json(const Timeline& t, const std::string& title) {
  const std::uint64_t zero = origin(t);
  std::string out =
      "{\"displayTimeUnit\":\"ns\",\"otherData\":" + spec::dumped(ordered_json({{"title", title}})) +
      ",\"traceEvents\":[\n";
  std::map<std::pair<int, std::uint64_t>, std::string> tracks;
  std::map<std::uint32_t, const Activity*> calls;
  for (const auto& a : t.activities)
    if (a.kind == Activity::Kind::api && a.name.find("Launch") != std::string::npos)
      calls.emplace(a.correlation, &a);
  const auto us = [&](std::uint64_t ns) { return double(ns - zero) * 1e-3; };
  bool first = true;
  const auto event = [&](const ordered_json& j) {
    out += (first ? "" : ",\n") + spec::dumped(j);
    first = false;
  };
  for (const auto& a : t.activities) {
    const bool gpu = a.on_gpu();
    const int pid = gpu ? int(a.device) + 1 : 0;
    const std::uint64_t tid = gpu ? a.stream : a.kind == Activity::Kind::sync ? 0 : a.thread;
    tracks[{pid, tid}] = gpu   ? format("stream {}", a.stream)
                         : tid ? format("host thread {}", a.thread)
                               : "waits";
    ordered_json j = {{"ph", "X"},  {"name", shown(a)},  {"pid", pid},
                      {"tid", tid}, {"ts", us(a.start)}, {"dur", a.us()}};
    if (a.kind == Activity::Kind::kernel)
      j["args"] = {{"name", a.name},
                   {"grid", a.grid},
                   {"block", a.block},
                   {"registers", a.registers},
                   {"shared_bytes", a.static_shared + a.dynamic_shared},
                   {"correlation", a.correlation},
                   {"graph", a.graph}};
    else if (a.bytes)
      j["args"] = {{"bytes", a.bytes},
                   {"GB/s", a.end > a.start ? double(a.bytes) / double(a.end - a.start) : 0.0}};
    event(j);
    const auto call = calls.find(a.correlation);
    if (a.kind != Activity::Kind::kernel || call == calls.end() || a.graph) continue;
    event({{"ph", "s"},
           {"id", a.correlation},
           {"name", "launch"},
           {"cat", "launch"},
           {"pid", 0},
           {"tid", call->second->thread},
           {"ts", us(call->second->start)}});
    event({{"ph", "f"},
           {"bp", "e"},
           {"id", a.correlation},
           {"name", "launch"},
           {"cat", "launch"},
           {"pid", pid},
           {"tid", tid},
           {"ts", us(a.start)}});
  }
  for (const auto& [track, name] : tracks) {
    event({{"ph", "M"},
           {"name", "process_name"},
           {"pid", track.first},
           {"args", {{"name", track.first ? format("GPU {}", track.first - 1) : "host"}}}});
    event({{"ph", "M"},
           {"name", "thread_name"},
           {"pid", track.first},
           {"tid", track.second},
           {"args", {{"name", name}}}});
  }
  return out + "\n]}\n";
}

std::string speedscope_json(const Timeline& t, const std::string& title) {
  const std::uint64_t zero = origin(t);
  std::map<std::string, std::size_t> frames;
  std::map<std::string, std::vector<const Activity*>> tracks;
  for (const auto& a : t.activities) {
    frames.emplace(shown(a), frames.size());
    tracks[a.on_gpu()                       ? format("GPU {} stream {}", a.device, a.stream)
           : a.kind == Activity::Kind::sync ? "waits"
                                            : format("host thread {}", a.thread)]
        .push_back(&a);
  }
  std::vector<std::string> names(frames.size());
  for (const auto& [name, index] : frames) names[index] = name;
  ordered_json j = {{"$schema", "https://www.speedscope.app/file-format-schema.json"}, {"name", title}};
  j["shared"]["frames"] = ordered_json::array();
  for (const auto& n : names) j["shared"]["frames"].push_back({{"name", n}});
  j["profiles"] = ordered_json::array();
  for (const auto& [name, all] : tracks) {
    ordered_json p = {{"type", "evented"}, {"name", name}, {"unit", "nanoseconds"}};
    std::uint64_t last = 0;
    p["events"] = ordered_json::array();
    for (const Activity* a : all) {
      // The format wants proper nesting; kernels of a stream that overlap (rare) are cut at the next one's
      // start.
      const std::uint64_t open = std::max(a->start - zero, last), close = std::max(a->end - zero, open);
      const auto frame = frames.at(shown(*a));
      p["events"].push_back({{"type", "O"}, {"frame", frame}, {"at", open}});
      p["events"].push_back({{"type", "C"}, {"frame", frame}, {"at", close}});
      last = close;
    }
    p["startValue"] = 0, p["endValue"] = last;
    j["profiles"].push_back(std::move(p));
  }
  j["exporter"] = "cgp";
  return spec::dumped(j) + "\n";
}

std::string flamegraph_svg(const Timeline& t, const std::string& title) {
  std::map<std::uint32_t, const Activity*> calls;
  for (const auto& a : t.activities)
    if (a.kind == Activity::Kind::api) calls[a.correlation] = &a;
  // Three levels: everything, the host call that caused it, what ran.
  std::map<std::string, std::map<std::string, double>> tree;
  double total = 0;
  for (const auto& a : t.activities) {
    if (!a.on_gpu()) continue;
    const auto call = calls.find(a.correlation);
    tree[call == calls.end() ? "(no host call recorded)" : call->second->name][shown(a)] += a.us();
    total += a.us();
  }
  constexpr double kWidth = 1180;
  constexpr int kRow = 20;
  std::string boxes;
  const auto box = [&](double x, int depth, double us, const std::string& name, bool gpu) {
    const double w = total > 0 ? us / total * kWidth : 0;
    const std::string text = fitted(name, std::size_t(std::max(0.0, (w - 6) / 6.6)));
    boxes += format(
        "<g><title>{}: {} ({:.1f} %)</title><rect x='{:.1f}' y='{}' width='{:.1f}' height='{}' fill='{}' "
        "rx='2'/>",
        text::escape_markup(name), time_text(us), total > 0 ? 100 * us / total : 0, 10 + x, 40 + depth * kRow,
        std::max(0.3, w - 0.5), kRow - 1, colour(name, gpu));
    if (w > 60)
      boxes +=
          format("<text x='{:.1f}' y='{}'>{}</text>", 13 + x, 54 + depth * kRow, text::escape_markup(text));
    boxes += "</g>\n";
  };
  box(0, 0, total, "GPU time of " + title, false);
  double x = 0;
  for (const auto& [call, leaves] : tree) {
    double sum = 0;
    for (const auto& [name, us] : leaves) sum += us;
    box(x, 1, sum, call, false);
    double inner = x;
    std::vector<std::pair<std::string, double>> sorted(leaves.begin(), leaves.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const auto& [name, us] : sorted) {
      box(inner, 2, us, name, true);
      inner += total > 0 ? us / total * kWidth : 0;
    }
    x += total > 0 ? sum / total * kWidth : 0;
  }
  return format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1200 110' font-family='ui-monospace,monospace' "
      "font-size='11'>\n<text x='10' y='20' font-size='14'>{}: {} of GPU time</text>\n{}</svg>\n",
      text::escape_markup(fitted(title, 90)), time_text(total), boxes);
}

std::string timeline_svg(const Timeline& t, int width) {
  std::map<std::string, int> rows;
  std::uint64_t first = ~0ull, last = 0;
  const auto row_of = [](const Activity& a) {
    return a.on_gpu() ? format("GPU {} stream {}", a.device, a.stream) : std::string("host calls");
  };
  for (const auto& a : t.activities) {
    if (a.kind == Activity::Kind::sync) continue;
    rows.emplace(row_of(a), 0);
    first = std::min(first, a.start), last = std::max(last, a.end);
  }
  if (rows.empty() || last <= first) return "<p>no activity was recorded</p>";
  int n = 0;
  for (auto& [name, index] : rows) index = n++;
  const double scale = double(width - 150) / double(last - first);
  std::string out = format(
      "<svg class='timeline' tabindex='0' viewBox='0 0 {} {}' font-size='11' "
      "font-family='ui-monospace,monospace' role='img'>",
      width, 30 + n * 26);
  for (const auto& [name, index] : rows) out += format("<text x='4' y='{}'>{}</text>", 34 + index * 26, name);
  // Boxes on top of each other are drawn once: thinner than a pixel where there are many, else than what zooming shows.
  const double least = t.activities.size() > 20000 ? 0.5 : 0.01;
  std::map<int, double> drawn;
  for (const auto& a : t.activities) {
    if (a.kind == Activity::Kind::sync) continue;
    const int row = rows[row_of(a)];
    const double x = 145 + double(a.start - first) * scale, w = double(a.end - a.start) * scale;
    if (x + w < drawn[row] + least) continue;
    drawn[row] = x + w;
    out += format("<rect x='{:.2f}' y='{}' width='{:.2f}' height='20' fill='{}'><title>{} {}</title></rect>",
                  x, 20 + row * 26, std::max(0.05, w), colour(shown(a), a.on_gpu()),
                  text::escape_markup(shown(a)), time_text(a.us()));
  }
  out += format("<text x='145' y='12'>0</text><text x='{}' y='12' text-anchor='end'>{}</text></svg>",
                width - 4, time_text(double(last - first) * 1e-3));
  return out;
}

}  // namespace cgp::profile
