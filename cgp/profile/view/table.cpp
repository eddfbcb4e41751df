// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/view/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace cgp::profile {

std::size_t columns(const std::string& s) {
  return std::size_t(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {
  for (auto& h : header_) {
    left_.push_back(!h.empty() && h[0] == '<');
    if (left_.back()) h.erase(0, 1);
  }
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(int indent) const {
  std::vector<std::size_t> width;
  for (const auto& h : header_) width.push_back(columns(h));
  for (const auto& r : rows_)
    for (std::size_t i = 0; i < r.size(); ++i) width[i] = std::max(width[i], columns(r[i]));
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string one(std::size_t(indent), ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string gap(width[i] - columns(cells[i]), ' ');
      one += (i ? "  " : "") + (left_[i] ? cells[i] + gap : gap + cells[i]);
    }
    one.erase(one.find_last_not_of(' ') + 1);
    out += one + '\n';
  };
  line(header_);
  for (const auto& r : rows_) line(r);
  return out;
}

std::string Table::markdown() const {
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (const auto& c : cells) out += "| " + c + " ";
    out += "|\n";
  };
  line(header_);
  for (bool left : left_) out += left ? "|---" : "|---:";
  out += "|\n";
  for (const auto& r : rows_) line(r);
  return out;
}

std::string number_text(double v) {
  if (!std::isfinite(v)) return v > 0 ? "inf" : v < 0 ? "-inf" : "-";
  const double a = std::fabs(v);
  if (a == 0) return "0";
  if (a >= 1e9 || a < 1e-3) return fmt::format("{:.2e}", v);
  const int digits = std::clamp(2 - int(std::floor(std::log10(a))), 0, 5);
  return fmt::format("{:.{}f}", v, digits);
}

std::string time_text(double us) {
  if (std::isnan(us)) return "-";
  if (us >= 1e6) return number_text(us * 1e-6) + " s";
  if (us >= 1e3) return number_text(us * 1e-3) + " ms";
  if (us >= 1 || us == 0) return number_text(us) + " µs";
  return number_text(us * 1e3) + " ns";
}

std::string percent_text(double share) {
  if (!std::isfinite(share)) return share > 0 ? "+inf" : "-inf";
  return fmt::format("{:+.1f} %", 100 * share);
}

std::string visible(const std::string& s) {
  std::string out;
  for (const char c : s) {
    const auto code = static_cast<unsigned char>(c);
    if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7f)
      out += fmt::format("\\x{:02x}", code);
    else
      out += c;
  }
  return out;
}

std::string fitted(const std::string& s, std::size_t most) {
  if (s.size() <= most || most < 8) return s;
  const std::size_t head = (most - 2) * 2 / 3, tail = most - 2 - head;
  return s.substr(0, head) + ".." + s.substr(s.size() - tail);
}

}  // namespace cgp::profile
