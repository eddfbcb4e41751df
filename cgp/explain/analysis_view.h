// SPDX-License-Identifier: Apache-2.0
#pragma once
// The static analyses of one kernel as text and JSON, for `cgp explain`.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/ptx/analysis/analyse.h"

namespace cgp::explain {

struct AnalysisView {
  bool assumed_block = false;     ///< nothing said the block shape
  bool all_rows = false;          ///< every access, instead of groups and the first few
  std::vector<ptx::Bug> allowed;  ///< not reported
};

std::string analysis_text(const ptx::Module& m, const ptx::Analysis& a, const AnalysisView& view);
nlohmann::ordered_json analysis_json(const ptx::Module& m, const ptx::Analysis& a, const AnalysisView& view);
/// The bugs that are reported: without the allowed classes.
std::vector<const ptx::BugReport*> reported(const ptx::Analysis& a, const AnalysisView& view);

}  // namespace cgp::explain
