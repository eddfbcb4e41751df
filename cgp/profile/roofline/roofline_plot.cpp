// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/roofline/roofline_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/markup.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;

/// 10^e GFLOP/s as an axis says it: "10 G", "1 T", "10 P".
std::string rate_text(double e) {
  const char* const units[] = {"G", "T", "P"};
  const int step = std::clamp(int(std::floor(e / 3 + 1e-9)), 0, 2);
  return format("{:g} {}", std::pow(10, e - 3 * step), units[step]);
}

std::size_t columns_of_last_line(const std::string& s) {
  const auto at = s.rfind('\n');
  return columns(at == std::string::npos ? s : s.substr(at + 1));
}

/// What bounds a point: memory, not a cache, and measured lines before those of a data sheet.
double best(const Roofline& r, bool bandwidth) {
  double most[2][2] = {};  // [measured][of main memory or compute]
  for (const auto& l : r.lines) {
    if (l.bandwidth != bandwidth) continue;
    const bool outer = !bandwidth || l.name.rfind("HBM", 0) == 0 || l.name.rfind("memory", 0) == 0;
    most[l.measured][outer] = std::max(most[l.measured][outer], l.value);
  }
  for (int outer : {1, 0})
    for (int measured : {1, 0})
      if (most[measured][outer] > 0) return most[measured][outer];
  return 0;
}

/// Bounds of both axes as powers of two and ten that hold everything.
struct Axes {
  double x0, x1, y0, y1;  ///< log2 of intensity, log10 of GFLOP/s
};
Axes axes_of(const Roofline& r) {
  Axes a{-4, 10, 9, 0};
  for (const auto& l : r.lines)
    if (!l.bandwidth && l.value > 0)
      a.y1 = std::max(a.y1, std::ceil(std::log10(l.value) + 0.1)),
      a.y0 = std::min(a.y0, std::floor(std::log10(l.value)) - 2);
  for (const auto& p : r.points) {
    if (!(p.gflops > 0 && p.intensity > 0)) continue;
    a.y0 = std::min(a.y0, std::floor(std::log10(p.gflops)));
    const auto hold = [&](double intensity) {
      a.x0 = std::min(a.x0, std::floor(std::log2(intensity)));
      a.x1 = std::max(a.x1, std::ceil(std::log2(intensity)));
    };
    hold(p.intensity);
    for (const auto& l : p.levels) hold(l.intensity);
  }
  if (a.y0 >= a.y1) a.y0 = 0, a.y1 = std::max(1.0, a.y1);
  return a;
}

/// "L2 30.5 MB: 8.8 FLOP/B, 4100 GB/s, 43 % of L2 read"
std::string level_text(const Roofline& r, const RoofPoint& p, const RoofLevel& l) {
  const double rate = p.gflops / l.intensity;
  const RoofLine* roof = r.ceiling_of(l);
  return format("{:<6} {:>7} MB: {} FLOP/B, {} GB/s{}", l.name, number_text(l.bytes * 1e-6),
                number_text(l.intensity), number_text(rate),
                roof ? format(", {:.0f} % of {}", 100 * rate / roof->value, roof->name) : "");
}

}  // namespace

double Roofline::ceiling(double intensity) const {
  if (!(intensity > 0) || !std::isfinite(intensity))
    throw ArgumentError(ErrorText{"an arithmetic intensity is positive", {}, format("{}", intensity), {}});
  return std::min(best(*this, false), intensity * best(*this, true));
}

std::string Roofline::above(const RoofPoint& point) const {
  if (lines.empty() || !(point.intensity > 0)) return {};
  const double share = point.gflops / ceiling(point.intensity);
  if (share <= 1.05) return {};
  return fmt::format(
      "{} reaches {:.0f} % of the roof: its bytes came from a nearer level of memory than the roof's, its "
      "work is "
      "declared too high, or these ceilings are another machine's",
      point.name, 100 * share);
}

double Roofline::ridge() const {
  const double width = best(*this, true);
  if (!(width > 0)) throw ArgumentError("a roofline needs a bandwidth");
  return best(*this, false) / width;
}

const RoofLine* Roofline::ceiling_of(const RoofLevel& level) const {
  const RoofLine* found = nullptr;
  for (const auto& l : lines)
    if (l.bandwidth && l.value > 0 && l.name.rfind(level.name, 0) == 0 &&
        (!found || std::pair(l.measured, l.value) > std::pair(found->measured, found->value)))
      found = &l;
  return found;
}

std::string roofline_svg(const Roofline& r, int width, int height) {
  const Axes a = axes_of(r);
  // Labels of the lines stand in a column at the right.
  std::vector<const RoofLine*> sorted;
  for (const auto& l : r.lines) sorted.push_back(&l);
  std::stable_sort(sorted.begin(), sorted.end(), [](const RoofLine* p, const RoofLine* q) {
    return p->bandwidth != q->bandwidth ? !p->bandwidth : p->value > q->value;
  });
  const auto label = [](const RoofLine& l) {
    const bool tera = !l.bandwidth && l.value >= 1000;
    return format("{} {} {}", l.name, number_text(tera ? l.value / 1000 : l.value),
                  l.bandwidth ? "GB/s"
                  : tera      ? "TF"
                              : "GF");
  };
  constexpr double kCharacter = 6.3;  // of the font, at most
  double column = 110;
  for (const RoofLine* l : sorted) column = std::max(column, 14 + kCharacter * double(label(*l).size()));
  const double left = 70, right = width - std::min(column, width / 2.0), top = 40, bottom = height - 50.0;
  const auto x = [&](double intensity) {
    return left + (std::log2(intensity) - a.x0) / (a.x1 - a.x0) * (right - left);
  };
  const auto y = [&](double gflops) {
    return bottom - (std::log10(gflops) - a.y0) / (a.y1 - a.y0) * (bottom - top);
  };
  std::string s = format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' font-family='system-ui,sans-serif' "
      "font-size='11'>"
      "<text x='{}' y='20' font-size='14'>{}</text>",
      width, height, left, text::escape_markup(r.title));
  for (double e = std::ceil(a.x0); e <= a.x1; e += 2)
    s += format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#ddd'/><text x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4}</text>",
        x(std::exp2(e)), top, bottom, bottom + 16, format("{:g}", std::exp2(e)));
  for (double e = a.y0; e <= a.y1; ++e)
    s += format(
        "<line x1='{1}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}' stroke='#ddd'/><text x='{3}' y='{0:.1f}' "
        "text-anchor='end'>{4}</text>",
        y(std::pow(10, e)), left, right, left - 6, rate_text(e));
  s += format(
      "<text x='{}' y='{}' text-anchor='middle'>FLOP per byte</text><text x='14' y='{}' "
      "transform='rotate(-90 14 {})' text-anchor='middle'>FLOP/s</text>",
      (left + right) / 2, height - 12, (top + bottom) / 2, (top + bottom) / 2);
  s += format(
      "<clipPath id='plot'><rect x='{}' y='{}' width='{}' height='{}'/></clipPath><g clip-path='url(#plot)' "
      "fill='none' stroke-width='1.6'>",
      left, top, right - left, bottom - top);
  const double peak = best(r, false);
  for (const auto& l : r.lines) {
    if (!(l.value > 0)) continue;
    const char* dash = l.measured ? "" : " stroke-dasharray='5 4'";
    if (l.bandwidth) {
      const double knee = peak / l.value, from = std::exp2(a.x0);
      s += format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#1a6fb5'{}/>", x(from),
                  y(std::max(1e-12, from * l.value)), x(knee), y(peak), dash);
    } else {
      s += format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#b5411a'{}/>",
                  x(std::max(std::exp2(a.x0), l.value / std::max(best(r, true), 1e-12))), y(l.value), right,
                  y(l.value), dash);
    }
  }
  s += "</g>";
  if (std::any_of(r.lines.begin(), r.lines.end(), [](const RoofLine& l) { return !l.measured; }))
    s += format("<text x='{}' y='20' text-anchor='end' fill='#666'>dashed: data sheet</text>", width - 4);
  double last = 0;
  for (const RoofLine* l : sorted) {
    const double wanted = l->bandwidth ? last + 15 : y(std::max(l->value, 1e-9)) + 4;
    last = std::max(wanted, last + 13);
    s += format("<text x='{}' y='{:.1f}' fill='{}'>{}</text>", right + 6, last,
                l->bandwidth ? "#1a6fb5" : "#b5411a", text::escape_markup(label(*l)));
  }
  struct Box {
    double x0, x1, y;
  };
  std::vector<Box> names;
  for (const auto& p : r.points) {
    if (!(p.gflops > 0 && p.intensity > 0)) continue;
    Box box{x(p.intensity) + 8, x(p.intensity) + 8 + kCharacter * double(p.name.size()), y(p.gflops) + 4};
    for (bool moved = true; moved;) {  // below what is there already
      moved = false;
      for (const Box& o : names)
        if (box.x0 < o.x1 && o.x0 < box.x1 && std::fabs(box.y - o.y) < 12) box.y = o.y + 12, moved = true;
    }
    names.push_back(box);
    for (const auto& l : p.levels)
      s += format(
          "<line x1='{0:.1f}' x2='{1:.1f}' y1='{2:.1f}' y2='{2:.1f}' stroke='#2c8a3d' stroke-opacity='.4'/>"
          "<circle cx='{1:.1f}' cy='{2:.1f}' r='4' fill='#fff' stroke='#2c8a3d'><title>{3}, {4}</title>"
          "</circle><text x='{1:.1f}' y='{5:.1f}' text-anchor='middle' fill='#2c8a3d' "
          "font-size='9'>{6}</text>",
          x(p.intensity), x(l.intensity), y(p.gflops), text::escape_markup(p.name), level_text(r, p, l),
          y(p.gflops) - 7, l.name);
    s += format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='5' fill='#2c8a3d' fill-opacity='.8'><title>{}: {} GFLOP/s at {} "
        "FLOP/B, {:.0f} % of the ceiling</title></circle>"
        "<text x='{:.1f}' y='{:.1f}'>{}</text>",
        x(p.intensity), y(p.gflops), text::escape_markup(p.name), number_text(p.gflops),
        number_text(p.intensity), 100 * p.gflops / r.ceiling(p.intensity), box.x0, box.y,
        text::escape_markup(p.name));
  }
  return s + "</svg>\n";
}

std::string roofline_text(const Roofline& r, int width, int height) {
  const Axes a = axes_of(r);
  const int left = 9, columns = std::max(20, width - left - 1);
  std::vector<std::string> rows(std::size_t(height), std::string(std::size_t(columns), ' '));
  const auto row_of = [&](double gflops) {
    return int(std::lround((1 - (std::log10(gflops) - a.y0) / (a.y1 - a.y0)) * (height - 1)));
  };
  const auto put = [&](int column, double gflops, char c) {
    const int row = row_of(gflops);
    if (row >= 0 && row < height && column >= 0 && column < columns)
      rows[std::size_t(row)][std::size_t(column)] = c;
  };
  for (int c = 0; c < columns; ++c) {
    const double intensity = std::exp2(a.x0 + (a.x1 - a.x0) * c / (columns - 1));
    const double roof = r.ceiling(intensity);
    put(c, roof, roof < best(r, false) * 0.999 ? '/' : '-');
  }
  for (std::size_t i = 0; i < r.points.size(); ++i) {
    const auto& p = r.points[i];
    if (!(p.gflops > 0 && p.intensity > 0)) continue;
    put(int(std::lround((std::log2(p.intensity) - a.x0) / (a.x1 - a.x0) * (columns - 1))), p.gflops,
        char('A' + int(i % 26)));
  }
  std::string out;
  for (int row = 0; row < height; ++row) {
    const double e = a.y1 - (a.y1 - a.y0) * row / (height - 1);
    const bool tick = row_of(std::pow(10, std::round(e))) == row;
    out += format("{:>8}|{}\n", tick ? rate_text(std::round(e)) : "", rows[std::size_t(row)]);
  }
  out += format("{:>9}{}\n{:>9}{} FLOP/B{:>{}} FLOP/B\n", "+", std::string(std::size_t(columns), '-'), "",
                number_text(std::exp2(a.x0)), number_text(std::exp2(a.x1)), std::max(1, columns - 20));
  std::string ceilings;
  for (const auto& l : r.lines) {
    if (!(l.value > 0)) continue;
    const std::string one = l.bandwidth       ? format("{} {} GB/s", l.name, number_text(l.value))
                            : l.value >= 1000 ? format("{} {} TFLOP/s", l.name, number_text(l.value / 1000))
                                              : format("{} {} GFLOP/s", l.name, number_text(l.value));
    if (!ceilings.empty() && columns_of_last_line(ceilings) + one.size() + 2 > std::size_t(width))
      ceilings += '\n';
    else if (!ceilings.empty())
      ceilings += "  ";
    ceilings += one;
  }
  out += ceilings + "\n";
  for (std::size_t i = 0; i < r.points.size(); ++i) {
    if (!(r.points[i].gflops > 0 && r.points[i].intensity > 0)) continue;
    out += format("{}  {}: {} GFLOP/s at {} FLOP/B, {:.0f} % of the ceiling\n", char('A' + int(i % 26)),
                  r.points[i].name, number_text(r.points[i].gflops), number_text(r.points[i].intensity),
                  100 * r.points[i].gflops / r.ceiling(r.points[i].intensity));
    for (const auto& l : r.points[i].levels) out += "     " + level_text(r, r.points[i], l) + "\n";
  }
  return out;
}

}  // namespace cgp::profile
