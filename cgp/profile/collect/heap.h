// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a program allocates, by valgrind's heap profiler: exact counts of any program, at about thirty times
// its time. Programs with AVX-512 code take their other path there.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::profile {

struct HeapSite {
  std::string where;  ///< the innermost frames that are not the allocator's
  double bytes = 0, blocks = 0, peak_bytes = 0, left_bytes = 0;
};

struct HeapProfile {
  double bytes = 0, blocks = 0;  ///< of all allocations
  double peak_bytes = 0;         ///< live at once, at most
  double left_bytes = 0, left_blocks = 0;
  std::vector<HeapSite> sites;  ///< most bytes first
  void add_to(measure::MetricSet& into) const;
};

/// Of the file that `valgrind --tool=dhat` writes (its version 2). Throws ParseError.
HeapProfile read_dhat(std::string_view json, const std::string& origin);
/// Runs the program under valgrind. Throws Unsupported without valgrind, Error when the program does not end
/// well.
HeapProfile profile_heap(const std::vector<std::string>& command);

nlohmann::ordered_json to_json(const HeapProfile& p);
std::string heap_text(const HeapProfile& p, int width);

}  // namespace cgp::profile
