// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/sampling/stop_strings.h"

#include <algorithm>
#include <utility>

#include "cgp/base/error.h"

namespace cgp::model {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& s : stops_)
    if (s.empty()) throw ArgumentError("a stop string must have a character");
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string StopStrings::push(std::string_view text) {
  if (!found_.empty()) return {};
  held_ += text;
  const std::string_view all(held_);
  for (std::size_t at = 0; at < all.size(); ++at) {
    bool waits = false;
    for (const std::string& s : stops_) {
      std::string_view here = all.substr(at, s.size());
      if (here == s) {
        if (waits) break;  // a longer one may still come
        found_ = s;
        std::string out(all.substr(0, at));
        held_.clear();
        return out;
      }
      waits |= std::string_view(s).starts_with(here);
    }
    if (waits) {
      std::string out(all.substr(0, at));
      held_.erase(0, at);
      return out;
    }
  }
  return std::exchange(held_, {});
}

std::string StopStrings::finish() {
  if (!found_.empty()) return {};
  std::string out;
  // A shorter stop may have waited for a longer one.
  const std::string_view all(held_);
  std::size_t first = all.size();
  for (const std::string& s : stops_)
    if (std::size_t at = all.find(s); at < first) {
      first = at;
      found_ = s;
    }
  out = all.substr(0, first);
  held_.clear();
  return out;
}

}  // namespace cgp::model
