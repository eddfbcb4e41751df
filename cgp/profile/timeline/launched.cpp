// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/timeline/launched.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

nlohmann::ordered_json launched_json(const Timeline& t, const CpuProfile& p) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, const std::string*> from;
  for (const auto& l : p.launches) from[{l.process, l.correlation}] = &l.folded;
  struct Kernel {
    double ms = 0, seen_ms = 0;
    std::map<std::string, double> by_stack;
  };
  std::map<std::string, Kernel> kernels;
  std::size_t launches = 0, seen = 0;
  for (const auto& a : t.activities) {
    if (a.kind != Activity::Kind::kernel) continue;
    ++launches;
    Kernel& k = kernels[a.name];
    const double ms = a.us() * 1e-3;
    k.ms += ms;
    const auto at = from.find({a.process, a.correlation});
    if (at == from.end()) continue;
    ++seen;
    k.seen_ms += ms, k.by_stack[*at->second] += ms;
  }
  std::vector<std::pair<double, std::string>> rows;
  double all = 0;
  for (const auto& [name, k] : kernels) {
    std::string shown = short_name(name);
    std::replace(shown.begin(), shown.end(), ';', ':');
    all += k.ms;
    for (const auto& [stack, ms] : k.by_stack)
      if (k.seen_ms > 0) rows.emplace_back(ms * k.ms / k.seen_ms, text::cat(stack, ";", shown));
    if (k.seen_ms <= 0) rows.emplace_back(k.ms, text::cat("[stack not seen];", shown));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  nlohmann::ordered_json j = {{"unit", "ms"},
                              {"title", "GPU time by what launched it"},
                              {"seconds", all * 1e-3},
                              {"launches", launches},
                              {"stacks_seen", seen}};
  j["folded"] = nlohmann::ordered_json::array();
  constexpr std::size_t kMost = 4000;
  for (std::size_t i = 0; i < std::min(kMost, rows.size()); ++i)
    j["folded"].push_back({{"stack", rows[i].second}, {"samples", rows[i].first}});
  return j;
}

}  // namespace cgp::profile
