// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/import/csv.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::profile {

std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& origin) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string field;
  bool quoted = false, any = false;
  int line = 1, opened = 0;
  const auto end_row = [&] {
    if (any || !row.empty()) row.push_back(std::move(field)), rows.push_back(std::move(row));
    row.clear(), field.clear(), any = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    line += c == '\n';
    if (quoted) {
      if (c != '"')
        field += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        field += '"', ++i;
      else
        quoted = false;
    } else if (c == '"') {
      quoted = any = true, opened = line;
    } else if (c == ',') {
      row.push_back(std::move(field));
      field.clear(), any = true;
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      field += c, any = true;
    }
  }
  if (quoted)
    throw ParseError(ErrorText{"a quote is closed", text::cat(origin, ":", opened), "the file ends within it",
                               "is it complete?"});
  end_row();
  return rows;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::optional<double> parse_number(std::string_view text) {
  std::string digits;
  for (char c : text::trim(text))
    if (c != ',') digits += c;
  if (digits.empty() || std::isspace(static_cast<unsigned char>(digits[0]))) return std::nullopt;
  char* end = nullptr;
  const double v = std::strtod(digits.c_str(), &end);
  return *end == 0 && std::isfinite(v) ? std::optional(v) : std::nullopt;
}

double unit_scale(std::string_view unit) {
  static const std::map<std::string, double, std::less<>> scales{
      {"Kbyte", 1e3}, {"Mbyte", 1e6}, {"Gbyte", 1e9},   {"Tbyte", 1e12},  {"us", 1e3},
      {"ms", 1e6},    {"s", 1e9},     {"usecond", 1e3}, {"msecond", 1e6}, {"second", 1e9},
      {"Khz", 1e3},   {"Mhz", 1e6},   {"Ghz", 1e9},     {"KB", 1e3},      {"MB", 1e6},
      {"GB", 1e9},    {"TB", 1e12},   {"KHz", 1e3},     {"MHz", 1e6},     {"GHz", 1e9}};
  const auto slash = unit.find('/');
  const auto at = scales.find(unit.substr(0, slash));
  return at == scales.end() ? 1 : at->second;
}

}  // namespace cgp::profile
