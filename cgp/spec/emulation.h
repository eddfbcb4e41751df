// SPDX-License-Identifier: Apache-2.0
#pragma once
// The emulator's options as the command line gives them, and sets of policies to run under.
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/emu/emu.h"

namespace cgp::spec {

/// One way of running: "late" and "adversarial", as emu::parse_async and parse_schedule read them.
struct Policy {
  std::string async = "eager", schedule = "fair";
  void apply(emu::Options& options) const;
  /// "--async late --schedule fair": what repeats it.
  std::string arguments() const;
};

struct Emulation {
  Policy policy;
  std::string policies;                  ///< empty: only `policy`; else parse_policies
  std::string numerics = "exact";        ///< exact or fast
  std::string step_limit, max_findings;  ///< numbers; empty: as emu::Options has them
  std::uint64_t seed = 1;                ///< of policies that are random and name none

  /// Throws ArgumentError for a word or number that means nothing.
  void apply(emu::Options& options) const;
  /// The policies to run under, the plain one first; one if `policies` is empty.
  std::vector<Policy> all() const;
  /// Options that were changed from their defaults, as on a command line.
  std::string changed() const;
};

/// "all", or pairs like "late+fair,random:3+adversarial"; a lone word is either policy. The plain one (eager,
/// fair), with which the others are compared, comes first.
std::vector<Policy> parse_policies(const std::string& text, std::uint64_t seed);

}  // namespace cgp::spec
