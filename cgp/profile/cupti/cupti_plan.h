// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a set of hardware counters costs on a chip, before anything runs, on any machine that has libcupti: no
// GPU and no driver are needed. Each pass runs every kernel once more.
#include <string>
#include <vector>

namespace cgp::measure {

struct CounterInfo {
  std::string name, unit, description;
  bool exists = false;
};

struct CounterPlan {
  std::string chip;
  int passes = 0;
  std::vector<std::string> metrics;  ///< those that the chip has
  std::vector<std::string> missing;  ///< those that it does not have
};

/// Chips that libcupti knows ("GH100", "AD102", ...). Throws Unsupported when there is no libcupti.
std::vector<std::string> counter_chips();
/// Throws Unsupported (no libcupti, unknown chip: says which there are).
CounterPlan plan_counters(const std::string& chip, const std::vector<std::string>& metrics);
CounterInfo counter_info(const std::string& chip, const std::string& metric);
/// "libcupti 13.0 (26 chips)", or why there is none; never throws.
std::string describe_cupti(bool& there);

/// CUPTI metrics of the sets that `cgp profile` collects.
enum class CounterSet {
  basic,     ///< time, cycles, instructions, bytes at each level, tensor pipe: one pass on GH100
  roofline,  ///< and floating-point operations by type
  memory,    ///< coalescing, bank conflicts, hit rates, local memory
  stalls,    ///< what warps wait for
};
std::vector<std::string> counters_of(CounterSet set);
/// "GH100" for sm_90a; empty when unknown.
std::string chip_of(const std::string& arch);

}  // namespace cgp::measure
