// SPDX-License-Identifier: Apache-2.0
#pragma once
// What examine_module() found, as text and JSON, for `cgp explain`.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/explain/analysis_view.h"
#include "cgp/explain/examine.h"
#include "cgp/profile/roofline/prediction.h"

namespace cgp::explain {

std::string module_text(const ModuleFacts& module, const AnalysisView& view);
nlohmann::ordered_json module_json(const ModuleFacts& module, const AnalysisView& view);

/// The memory accesses that the profile `d` counted one by one: on the emulator, or by ncu for each machine
/// instruction. Empty: it has none for these modules.
std::vector<profile::AccessCheck> counted_accesses(const std::vector<ModuleFacts>& modules,
                                                   const profile::Document& d);

/// Whether a module breaks a rule of the ISA, or an analysis reports a bug of severity `fail_on` (P0, P1, P2;
/// "none": no bug counts) or worse.
bool fails(const std::vector<ModuleFacts>& modules, const AnalysisView& view, const std::string& fail_on);

}  // namespace cgp::explain
