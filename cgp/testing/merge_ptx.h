// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several modules of PTX as one, for tests that ask ptxas about many kernels at once.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::testing {

struct MergedPtx {
  std::string ptx;
  std::vector<std::string> entries;  ///< the kernel of each module, in their order
};

/// .version, .target and .address_size as the DSL prints them; empty where they are not such.
std::string_view ptx_head(std::string_view module);

/// Modules that the DSL printed, with .file and .loc renumbered. Nothing where that cannot be done: heads
/// that differ (a kernel must be right for the version it names), not exactly one kernel in each, two of one
/// name.
std::optional<MergedPtx> merge_ptx(std::span<const std::string_view> modules);

}  // namespace cgp::testing
