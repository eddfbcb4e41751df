// SPDX-License-Identifier: Apache-2.0
#include "cgp/testing/merge_ptx.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "cgp/base/text.h"

namespace cgp::testing {
namespace {

constexpr std::string_view kEntry = ".entry ";

// The number after `directive` at the start of a line (after tabs): ".loc 3 48 0" is 3; what follows in
// `rest`.
std::optional<int> number_after(std::string_view line, std::string_view directive, std::string_view& rest) {
  while (!line.empty() && (line[0] == '\t' || line[0] == ' ')) line.remove_prefix(1);
  if (!line.starts_with(directive)) return std::nullopt;
  line.remove_prefix(directive.size());
  int n = 0;
  const auto r = std::from_chars(line.data(), line.data() + line.size(), n);
  if (r.ec != std::errc()) return std::nullopt;
  rest = line.substr(static_cast<std::size_t>(r.ptr - line.data()));
  return n;
}

struct Merger {
  std::string head;
  std::map<std::string, int, std::less<>> files;
  std::string body;
  std::vector<std::string> entries;

  bool add(std::string_view module) {
    std::map<int, int> numbers;
    int kernels = 0;
    const auto own = ptx_head(module);
    if (own.empty() || (!head.empty() && own != head)) return false;
    head = own;
    for (auto line : text::split(module.substr(own.size()), '\n')) {
      std::string_view rest;
      if (const auto file = number_after(line, ".file ", rest)) {
        numbers[*file] =
            files.try_emplace(std::string(rest), static_cast<int>(files.size()) + 1).first->second;
      } else if (const auto loc = number_after(line, ".loc ", rest)) {
        if (rest.find("inlined_at") != rest.npos) return false;
        text::append(body, text::cat("\t.loc ", numbers[*loc], rest, "\n"));
      } else {
        if (const auto at = line.find(kEntry); at != line.npos) {
          const auto name = line.substr(at + kEntry.size());
          entries.emplace_back(name.substr(0, name.find_first_of("( \t")));
          ++kernels;
        }
        text::append(body, line);
        body += '\n';
      }
    }
    return kernels == 1;
  }
};

}  // namespace

std::string_view ptx_head(std::string_view module) {
  constexpr std::string_view kLast = ".address_size 64\n";
  const auto at = module.find(kLast);
  return at == module.npos ? std::string_view() : module.substr(0, at + kLast.size());
}

std::optional<MergedPtx> merge_ptx(std::span<const std::string_view> modules) {
  Merger m;
  for (auto module : modules)
    if (!m.add(module)) return std::nullopt;
  auto names = m.entries;
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) return std::nullopt;
  MergedPtx out{std::move(m.head), std::move(m.entries)};
  for (const auto& [name, number] : m.files) text::append(out.ptx, text::cat(".file ", number, name, "\n"));
  text::append(out.ptx, m.body);
  return out;
}

}  // namespace cgp::testing
