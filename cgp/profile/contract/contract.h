// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performance contracts: YAML files that say what a kernel or program promises, checked against a profile.
//
//   kind: cgp-contract
//   version: 1
//   name: softmax-rows
//   kernel: softmax                       # or command: [./solver, input.txt]
//   settings: [rows=4096, cols=1024]
//   device: emu
//   hardware: {gpu: H200}                 # elsewhere the checks are skipped, and say so
//   metrics:
//     global_load_efficiency_pct: {min: 95}
//     shared_bank_conflicts: {max: 0}
//   bounds: {max_time_us: 50, min_bandwidth_gbps: 3000}
//   checks:
//     - name: no divergence inside
//       check: divergent_branches == 0 when padding_waste_pct == 0
//
// Each promise is PASS, FAIL or SKIP with a reason. A promise about a metric that is absent is SKIP, never
// PASS.
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct Promise {
  std::string name, check;  ///< `check` is an Expression
  int line = 0;
  std::string size =
      {};  ///< it holds for profiles of this problem alone, "4096" or "512x1024"; empty: for any
};

struct Contract {
  std::string file, name, kernel, device = "auto", description;
  std::vector<std::string> settings, command;
  std::string gpu, cpu, arch;  ///< hardware clause; empty: any
  std::vector<Promise> promises;
  std::vector<std::string> warnings;  ///< keys that mean nothing
};

/// Throws ParseError with line and column: no YAML, wrong types, checks that do not parse or name no metric.
Contract parse_contract(const std::string& yaml, const std::string& file);

enum class Outcome : std::uint8_t { pass, fail, skip };
std::string_view name(Outcome o);

struct Checked {
  Promise promise;
  Outcome outcome = Outcome::skip;
  std::string why;  ///< the values of a failure, the reason of a skip
};
std::vector<Checked> check(const Contract& c, const Document& d);
/// All SKIP with this reason: other hardware, no GPU.
std::vector<Checked> skip_all(const Contract& c, const std::string& why);
/// Why the hardware clause does not fit the profile's machine; empty: it does.
std::string other_hardware(const Contract& c, const Document& d);
/// Why a profile is not of what a contract is about; empty: it is, or nobody can tell.
std::string other_subject(const Contract& c, const Document& d);

/// A contract that this profile keeps, with so much room on each number. Throws Unsupported for a profile
/// without any number that a contract could hold.
std::string generate_contract(const Document& d, const std::string& name, double tolerance);

struct ContractResult {
  Contract contract;
  std::vector<Checked> checks;
  bool broken = false;  ///< it could not be read or measured
};
std::string junit_xml(const std::vector<ContractResult>& all);
/// "::error file=...,line=...::..." lines for GitHub.
std::string github_lines(const std::vector<ContractResult>& all);

}  // namespace cgp::profile
