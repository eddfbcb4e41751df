// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a program allocates, by whom, and how long it lives: counted by libcgp_heap.so in place of the program's malloc
// (heap_preload.cpp), at some microseconds an allocation; where that cannot be loaded (programs that are linked statically or bring
// an allocator of their own) by valgrind's heap profiler, at about thirty times the program's time.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::profile {

struct HeapSite {
  std::string where;  ///< the innermost frames that are not the allocator's
  double bytes = 0, blocks = 0, peak_bytes = 0, left_bytes = 0;
  double lifetime_us = -1;  ///< mean of what was freed; below 0: nothing was, or nobody knows
};

struct HeapProfile {
  double bytes = 0, blocks = 0;  ///< of all allocations
  double peak_bytes = 0;         ///< live at once, at most
  double left_bytes = 0, left_blocks = 0;
  std::vector<HeapSite> sites;  ///< most bytes first
  std::string counted_by = "valgrind's heap profiler";
  void add_to(measure::MetricSet& into) const;
};

/// Of the file that `valgrind --tool=dhat` writes (its version 2). Throws ParseError.
HeapProfile read_dhat(std::string_view json, const std::string& origin);
/// Of the files that libcgp_heap.so wrote, one a process. Throws ParseError for other text.
HeapProfile read_heap_records(const std::vector<std::string>& files);
/// $CGP_HEAP_LIBRARY, or beside the library that records GPUs. Empty: not found.
std::string heap_library();
/// Runs the program with libcgp_heap.so, else under valgrind. Throws Unsupported where neither counts it, Error when the
/// program does not end well.
HeapProfile profile_heap(const std::vector<std::string>& command);

nlohmann::ordered_json to_json(const HeapProfile& p);
std::string heap_text(const HeapProfile& p, int width);

}  // namespace cgp::profile
