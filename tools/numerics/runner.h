// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cases to PTX modules, and their results on a device of the runtime.
#include <map>
#include <span>

#include "cgp/runtime/device.h"
#include "corpus.h"

namespace cgp::numerics {

/// Cases of one module: at most so many, of one number of threads and one family.
std::vector<std::vector<const Case*>> groups(const Corpus& c, std::size_t scalar_cases_per_module);

/// The kernel `k` of a group, and where its cases' cells are.
struct Module {
  std::string ptx;
  std::vector<std::uint32_t> input;                   ///< cells of all inputs
  std::vector<std::vector<std::uint64_t>> output_at;  ///< [case][output]: byte offsets
  std::uint64_t output_bytes = 0, scratch_bytes = 0;
  std::uint32_t cases = 0;
};
Module build_module(std::span<const Case* const> group);

/// Outputs of one case: per output the cells of all threads; or why there are none.
struct Answer {
  std::vector<std::vector<std::uint32_t>> outputs;
  std::string error;
};
/// Runs a group. When it cannot be run, its cases are run one by one, so that one bad form fails alone.
std::vector<Answer> run(const runtime::Device& device, std::span<const Case* const> group);

}  // namespace cgp::numerics
