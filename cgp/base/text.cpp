// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/text.h"

#include <algorithm>
#include <numeric>

namespace cgp::text {

std::string hex(std::uint64_t v) {
  char buf[20] = "0x";
  auto r = std::to_chars(buf + 2, buf + sizeof buf, v, 16);
  return {buf, r.ptr};
}

std::string grouped(std::uint64_t v) {
  std::string digits = std::to_string(v), out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

std::string bytes(std::uint64_t v) {
  if (v < 1024) return cat(v, " B");
  const char* unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double d = double(v) / 1024;
  int u = 0;
  while (d >= 1024 && u < 5) d /= 1024, ++u;
  char buf[32];
  auto r = std::to_chars(buf, buf + sizeof buf, d, std::chars_format::fixed,
                         d == double(std::uint64_t(d)) ? 0 : 1);
  return cat(std::string_view(buf, std::size_t(r.ptr - buf)), " ", unit[u]);
}

std::string_view trim(std::string_view s) {
  auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!s.empty() && space(s.front())) s.remove_prefix(1);
  while (!s.empty() && space(s.back())) s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> split(std::string_view s, char sep) {
  std::vector<std::string_view> out;
  for (;;) {
    auto at = s.find(sep);
    out.push_back(s.substr(0, at));
    if (at == std::string_view::npos) return out;
    s.remove_prefix(at + 1);
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view sep) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i) out.append(sep);
    out.append(parts[i]);
  }
  return out;
}

std::vector<std::string> closest(std::string_view word, const std::vector<std::string>& all,
                                 std::size_t count) {
  std::vector<std::pair<std::size_t, const std::string*>> ranked;
  std::vector<std::size_t> row;
  for (const auto& name : all) {
    row.resize(name.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t(0));
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0]++;
      for (std::size_t j = 0; j < name.size(); ++j) {
        std::size_t replace = diagonal + (word[i] != name[j]);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replace, diagonal + 1, row[j] + 1});
      }
    }
    if (row.back() <= std::max<std::size_t>(2, word.size() / 2)) ranked.emplace_back(row.back(), &name);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (auto& [distance, name] : ranked)
    if (out.size() < count) out.push_back(*name);
  return out;
}

}  // namespace cgp::text
