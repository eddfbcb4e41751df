// SPDX-License-Identifier: Apache-2.0
#pragma once
// A class of findings of the emulator, or of bugs of the static analyses, explained.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cgp/spec/report/style.h"

namespace cgp::explain {

struct FindingView {
  std::string text;
  nlohmann::ordered_json json;  ///< cgp.explain/1
};
/// Absent if `name` looks like a kernel or a file. Throws ArgumentError, with the nearest names, if it looks
/// like a class ("race.sharde") that there is not.
std::optional<FindingView> explain_finding(const std::string& name, const spec::Style& style);

}  // namespace cgp::explain
