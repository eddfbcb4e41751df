// SPDX-License-Identifier: Apache-2.0
#pragma once
// Findings as SARIF 2.1.0, the format that code hosts and editors show in place.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/spec/report/findings.h"

namespace cgp::spec {

struct SarifRun {
  std::string version;                    ///< of cgp
  std::vector<std::string> command_line;  ///< words
  int exit_code = 0;
  std::vector<std::string> failures;  ///< wrong results and faults: notifications, they have no class
};

/// One run with a rule for each class of the table, a result for each finding: the C++ line as its location
/// where the PTX names one, else the PTX line; the other of the two and the other party as related ones.
nlohmann::ordered_json sarif(const std::vector<LocatedFinding>& findings, Sources& sources,
                             const SarifRun& run);

}  // namespace cgp::spec
