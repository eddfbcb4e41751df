// SPDX-License-Identifier: Apache-2.0
#include "cgp/tune/gemm_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cgp::tune {
namespace {

using nlohmann::ordered_json;

double tflops(const GemmRow& r, std::size_t which) { return r.flops / r.timings[which].summary.median / 1e9; }

ordered_json optional_json(const std::optional<double>& v) { return v ? ordered_json(*v) : ordered_json(); }

ordered_json row_json(const GemmRow& r) {
  ordered_json j = {
      {"name", "gemm/" + r.key}, {"variant", r.variant}, {"flops", r.flops}, {"bytes", r.bytes}};
  if (!r.peer.empty()) j["peer"] = {{"algorithm", r.peer}, {"candidates", r.peer_candidates}};
  if (r.timings.size() > 1) j["ratio"] = r.ratio();
  if (r.error) j["error_over_bound"] = *r.error;
  if (r.peer_error) j["peer_error_over_bound"] = *r.peer_error;
  j["sm_mhz"] = optional_json(r.state.sm_mhz);
  j["watts"] = optional_json(r.state.watts);
  j["celsius"] = optional_json(r.state.celsius);
  j["slowed"] = r.state.slowed ? ordered_json(measure::slowed_text(*r.state.slowed)) : ordered_json();
  j["timings"] = ordered_json::array();
  for (const auto& t : r.timings) j["timings"].push_back({{"name", t.name}, {"ms", t.milliseconds}});
  return j;
}

}  // namespace

GemmSummary summarise(const std::vector<GemmRow>& rows) {
  GemmSummary s;
  double logs = 0;
  for (const auto& r : rows) {
    if (r.timings.size() < 2) continue;
    logs += std::log(r.ratio());
    if (s.rows == 0 || r.ratio() < s.min) s.min = r.ratio(), s.worst = r.key;
    ++s.rows;
  }
  if (s.rows) s.geomean = std::exp(logs / s.rows);
  return s;
}

std::string table_head(bool peer) {
  return fmt::format("{:<38} {:>9} {:>9} {:>6}{}  {:>5} {:>5}  variant\n", "problem", "ms", "TFLOP/s", "±",
                     peer ? fmt::format(" {:>9} {:>6} {:>7}", "cuBLASLt", "±", "ratio") : "", "MHz", "W");
}

std::string table_line(const GemmRow& r) {
  const auto number = [](const std::optional<double>& v) { return v ? fmt::format("{:.0f}", *v) : "-"; };
  std::string peer;
  if (r.timings.size() < 2 && !r.peer.empty()) peer = fmt::format(" {:>9} {:>6} {:>7}", "-", "-", "-");
  if (r.timings.size() > 1)
    peer = fmt::format(" {:>9.1f} {:>5.1f}% {:>7.3f}", tflops(r, 1), 100 * r.timings[1].summary.spread(),
                       r.ratio());
  return fmt::format("{:<38} {:>9.4f} {:>9.1f} {:>5.1f}%{}  {:>5} {:>5}  {}\n", r.key,
                     r.timings[0].summary.median, tflops(r, 0), 100 * r.timings[0].summary.spread(), peer,
                     number(r.state.sm_mhz), number(r.state.watts), r.variant);
}

std::string summary_line(const GemmSummary& s) {
  if (!s.rows) return {};
  return fmt::format("{} problems: geometric mean {:.3f}, least {:.3f} ({})\n", s.rows, s.geomean, s.min,
                     s.worst);
}

ordered_json bench_json(const std::vector<GemmRow>& rows, const kernels::Provenance& from) {
  ordered_json j = {{"schema", "cgp.bench/1"}, {"gpu", from.gpu},       {"driver", from.driver},
                    {"date", from.date},       {"commit", from.commit}, {"how", from.how}};
  j["rows"] = ordered_json::array();
  for (const auto& r : rows) j["rows"].push_back(row_json(r));
  if (const auto s = summarise(rows); s.rows)
    j["summary"] = {{"rows", s.rows}, {"geomean", s.geomean}, {"min", s.min}, {"worst", s.worst}};
  return j;
}

std::string bench_svg(const std::vector<GemmRow>& rows, const std::string& title) {
  constexpr double width = 960, height = 460, left = 64, right = 24, top = 56, bottom = 150;
  constexpr const char *ink = "#24292f", *grid = "#d0d7de";
  constexpr const char* colours[] = {"#0969da", "#bc4c00"};
  double most = 1;
  for (const auto& r : rows)
    for (std::size_t t = 0; t < r.timings.size(); ++t) most = std::max(most, tflops(r, t));
  const double step = std::pow(10, std::floor(std::log10(most))) /
                      (most / std::pow(10, std::floor(std::log10(most))) < 3 ? 5 : 1);
  const double ceiling = std::ceil(most / step) * step;
  const auto x = [&](std::size_t i) {
    return rows.size() < 2 ? (left + width - right) / 2
                           : left + 12 + double(i) / double(rows.size() - 1) * (width - left - right - 24);
  };
  const auto y = [&](double rate) { return height - bottom - rate / ceiling * (height - top - bottom); };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\" fill=\"{2}\">\n<title>{3}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n<text x=\"{4}\" y=\"22\" "
      "font-size=\"15\">{3}</text>\n",
      width, height, ink, title, left);
  for (double rate = 0; rate <= ceiling * 1.001; rate += step)
    out += fmt::format(
        "<line x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n"
        "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\">{6:g}</text>\n",
        left, width - right, y(rate), grid, left - 8, y(rate) + 4, rate);
  for (std::size_t i = 0; i < rows.size(); ++i)
    out += fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate(-50)\" text-anchor=\"end\" "
        "font-size=\"11\">{}</text>\n",
        x(i) + 4, height - bottom + 14, rows[i].key);
  for (std::size_t t = 0; t < 2; ++t) {
    std::string line, dots, name;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].timings.size() <= t) continue;
      name = rows[i].timings[t].name;
      const double rate = tflops(rows[i], t);
      line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", x(i), y(rate));
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}, {}: {:.0f} "
          "TFLOP/s</title></circle>\n",
          x(i), y(rate), colours[t], name, rows[i].key, rate);
    }
    if (line.empty()) continue;
    out += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n{}",
                       colours[t], line, dots);
    out += fmt::format("<circle cx=\"{}\" cy=\"40\" r=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"44\">{}</text>\n",
                       left + 5 + 130 * double(t), colours[t], left + 15 + 130 * double(t), name);
  }
  return out + "</svg>\n";
}

}  // namespace cgp::tune
