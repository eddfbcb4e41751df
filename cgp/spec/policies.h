// SPDX-License-Identifier: Apache-2.0
#pragma once
// One program under several policies of scheduling and asynchronous completion: what was found under any of
// them, and whether the results agree.
#include <functional>
#include <string>
#include <vector>

#include "cgp/spec/compare.h"
#include "cgp/spec/emulation.h"
#include "cgp/spec/report/findings.h"

namespace cgp::spec {

/// A result to be compared between policies.
struct PolicyBuffer {
  std::string name;
  Compare how;  ///< differences that this rule accepts are a note, not an error
  HostArray data;
};

struct PolicyOutcome {
  std::string policy;    ///< Policy::arguments
  std::string findings;  ///< count_text
  std::string fault;     ///< empty: ran to its end
  bool agrees = true;    ///< bit for bit with the first policy
};

/// Collects the runs; the first is the one that the others are compared with.
class PolicyRuns {
 public:
  /// `buffers` are ignored when there is a fault.
  void add(const Policy& policy, const std::vector<LocatedFinding>& findings,
           std::vector<PolicyBuffer> buffers, const std::string& fault);
  /// Everything found, merged, policy.result included.
  std::vector<LocatedFinding> findings;
  std::vector<PolicyOutcome> outcomes;

 private:
  std::vector<PolicyBuffer> first_;
};

/// "under 8 policies: all agree", or a line for each that does not.
std::string policies_text(const std::vector<PolicyOutcome>& outcomes, const Style& style);

}  // namespace cgp::spec
