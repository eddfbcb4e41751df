// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/report/heatmap.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/markup.h"
#include "cgp/base/text.h"

namespace cgp::spec {
namespace {

using fmt::format;
using nlohmann::ordered_json;
using Cell = emu::AccessMap::Cell;

struct Totals {
  std::uint64_t reads = 0, writes = 0, atomics = 0, sectors = 0, touched = 0, most = 0;
};

std::uint64_t stores(const Cell& c) { return c.writes + c.atomics; }

Totals totals(const emu::AccessMap& m) {
  Totals t;
  for (const Cell& c : m.cells) {
    t.reads += c.reads;
    t.writes += c.writes;
    t.atomics += c.atomics;
    t.sectors += c.sectors;
    t.touched += (c.reads | c.writes | c.atomics | c.sectors) != 0;
    t.most = std::max(t.most, c.reads + stores(c));
  }
  return t;
}

/// 0 for nothing, else between 0.15 and 1 on a logarithmic scale.
double intensity(std::uint64_t n, std::uint64_t most) {
  if (!n) return 0;
  return 0.15 + 0.85 * (most > 1 ? std::log(double(n)) / std::log(double(most)) : 1.0);
}

std::string strip(const emu::AccessMap& m, std::uint64_t most, int width, const Paint& paint) {
  static const char* const levels[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  const std::size_t n = m.cells.size();
  const std::size_t columns = std::min<std::size_t>(std::size_t(width), n);
  for (std::size_t x = 0; x < columns; ++x) {
    const std::size_t first = x * n / columns, last = std::max((x + 1) * n / columns, first + 1);
    std::uint64_t reads = 0, writes = 0;
    for (std::size_t i = first; i < last; ++i) {  // the busiest cell of the stretch
      reads = std::max(reads, m.cells[i].reads);
      writes = std::max(writes, stores(m.cells[i]));
    }
    const double v = intensity(reads + writes, most);
    const std::string mark = levels[std::clamp(int(v * 8 + 0.5), v > 0 ? 1 : 0, 8)];
    out += reads && writes ? paint.warn(mark)
           : writes        ? paint.bad(mark)
           : reads         ? paint.second(mark)
                           : paint.dim(mark);
  }
  return out;
}

constexpr int kColumns = 64, kSize = 9, kMargin = 24;

std::string color(double v, bool writing) {
  // From a light grey to a full blue (reads) or red (writes).
  const double from[3] = {236, 239, 243};
  const double to[2][3] = {{21, 82, 168}, {190, 28, 36}};
  int rgb[3];
  for (int i = 0; i < 3; ++i) rgb[i] = int(from[i] + (to[writing][i] - from[i]) * v + 0.5);
  return format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

/// Cells in rows of kColumns; cells in a row that count the same are one rectangle.
std::string grid(const emu::AccessMap& m, bool writing, int x0, int y0, std::uint64_t most) {
  std::string out;
  const auto value = [&](std::size_t i) { return writing ? stores(m.cells[i]) : m.cells[i].reads; };
  for (std::size_t i = 0; i < m.cells.size();) {
    std::size_t end = i + 1;
    while (end < m.cells.size() && end % kColumns != 0 && value(end) == value(i)) ++end;
    const int x = x0 + int(i % kColumns) * kSize, y = y0 + int(i / kColumns) * kSize;
    out += format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\">", x, y,
                  int(end - i) * kSize - 1, kSize - 1, color(intensity(value(i), most), writing));
    out += format("<title>bytes {} to {}: {} {}{}</title></rect>\n", i * m.cell_bytes,
                  std::min<std::uint64_t>(end * m.cell_bytes, m.bytes) - 1, value(i),
                  writing ? "writes" : "reads", end - i > 1 ? " each cell" : "");
    i = end;
  }
  return out;
}

}  // namespace

std::vector<emu::AccessMap> access_maps(const std::vector<LaunchView>& launches) {
  std::vector<emu::AccessMap> out;
  for (const LaunchView& l : launches) {
    if (!l.result) continue;
    for (const emu::AccessMap& m : l.result->accesses) {
      const auto same = std::find_if(out.begin(), out.end(), [&](const emu::AccessMap& x) {
        return x.buffer == m.buffer && x.address == m.address && x.bytes == m.bytes && x.shared == m.shared;
      });
      if (same == out.end()) {
        out.push_back(m);
        continue;
      }
      for (std::size_t i = 0; i < m.cells.size(); ++i) {
        same->cells[i].reads += m.cells[i].reads;
        same->cells[i].writes += m.cells[i].writes;
        same->cells[i].atomics += m.cells[i].atomics;
        same->cells[i].sectors += m.cells[i].sectors;
      }
    }
  }
  return out;
}

std::string heatmap_text(const std::vector<emu::AccessMap>& maps, const Style& style) {
  const Paint paint(style.color);
  std::size_t widest = 6;
  for (const auto& m : maps) widest = std::max(widest, std::min<std::size_t>(m.buffer.size(), 24));
  std::string out = "\nmemory" + std::string(widest - 6 + 2, ' ') +
                    paint.dim(format("{:>10} {:>8} {:>11} {:>11} {:>9} {:>10}  {}", "size", "touched",
                                     "reads", "writes", "atomics", "sectors", "where (most per cell)")) +
                    '\n';
  for (const auto& m : maps) {
    const Totals t = totals(m);
    const int room = std::clamp(style.width - int(widest) - 80, 16, 48);
    out += format(
        "{:<{}}  {:>10} {:>7.1f}% {:>11} {:>11} {:>9} {:>10}  {} {}\n", m.buffer.substr(0, 24), widest,
        text::bytes(m.bytes), 100.0 * double(t.touched) / double(std::max<std::size_t>(m.cells.size(), 1)),
        text::grouped(t.reads), text::grouped(t.writes), text::grouped(t.atomics),
        m.shared ? "" : text::grouped(t.sectors), strip(m, t.most, room, paint), text::grouped(t.most));
  }
  if (maps.empty()) out += "  nothing was accessed\n";
  return out;
}

std::string heatmap_svg(const std::vector<emu::AccessMap>& maps, const std::string& title) {
  const int panel = kColumns * kSize, width = 3 * kMargin + 2 * panel;
  std::string body;
  int y = kMargin + 30;
  for (const auto& m : maps) {
    const Totals t = totals(m);
    body += format("<text x=\"{}\" y=\"{}\" class=\"name\">{}</text>\n", kMargin, y,
                   text::escape_markup(m.buffer));
    body += format(
        "<text x=\"{}\" y=\"{}\">{}, {} bytes a cell, {:.1f}% touched, {} reads, {} writes, {} "
        "atomics{}</text>\n",
        kMargin, y + 15, text::bytes(m.bytes), m.cell_bytes,
        100.0 * double(t.touched) / double(std::max<std::size_t>(m.cells.size(), 1)), text::grouped(t.reads),
        text::grouped(t.writes), text::grouped(t.atomics),
        m.shared ? ", of all blocks" : format(", {} sectors", text::grouped(t.sectors)));
    std::uint64_t reads = 0, writes = 0;
    for (const Cell& c : m.cells) reads = std::max(reads, c.reads), writes = std::max(writes, stores(c));
    body += format("<text x=\"{}\" y=\"{}\">reads, at most {} a cell</text>\n", kMargin, y + 32,
                   text::grouped(reads));
    body += format("<text x=\"{}\" y=\"{}\">writes and atomics, at most {} a cell</text>\n",
                   2 * kMargin + panel, y + 32, text::grouped(writes));
    body += grid(m, false, kMargin, y + 40, reads);
    body += grid(m, true, 2 * kMargin + panel, y + 40, writes);
    y += 40 + int((m.cells.size() + kColumns - 1) / kColumns) * kSize + 36;
  }
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
             "{1}\">\n",
             width, y) +
         "<style>text{font:12px sans-serif;fill:#333}.name{font-weight:bold;font-size:14px}</style>\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
         format("<text x=\"{}\" y=\"{}\" class=\"name\">{}</text>\n", kMargin, kMargin,
                text::escape_markup(title)) +
         body + "</svg>\n";
}

ordered_json to_json(const std::vector<emu::AccessMap>& maps) {
  ordered_json out = ordered_json::array();
  for (const auto& m : maps) {
    ordered_json j = {
        {"buffer", m.buffer}, {"bytes", m.bytes}, {"shared", m.shared}, {"cell_bytes", m.cell_bytes}};
    for (const auto& [key, member] :
         {std::pair{"reads", &Cell::reads}, std::pair{"writes", &Cell::writes},
          std::pair{"atomics", &Cell::atomics}, std::pair{"sectors", &Cell::sectors}}) {
      ordered_json values = ordered_json::array();
      for (const Cell& c : m.cells) values.push_back(c.*member);
      j[key] = std::move(values);
    }
    out.push_back(std::move(j));
  }
  return out;
}

}  // namespace cgp::spec
