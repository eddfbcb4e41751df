// SPDX-License-Identifier: Apache-2.0
#pragma once
// ptxas for tests: assembles kernels and reports what it said. What ptxas said of a text is kept in the
// folder $CGP_ASSEMBLIES (CTest: one for the build tree) and not asked again of the same ptxas; empty or
// unset: nothing is kept.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/program.h"

namespace cgp::testing {

struct Assembly {
  bool ok = false;
  int registers = 0;
  int spill_bytes = 0;  ///< stores plus loads
  int stack_bytes = 0;
  bool serialised = false;  ///< a wgmma pipeline was broken up, or setmaxnreg ignored: any (C7...) advisory
  std::string log;
};

/// Assembles for `arch` ("sm_90a"); throws Unsupported without ptxas.
Assembly assemble(std::string_view ptx, std::string_view arch);

struct AssemblyJob {
  std::string_view ptx, arch;
};
/// The same for many, in the order of the jobs: on all cores, equal jobs once, small kernels of one
/// architecture several to a call of ptxas, whose start takes longer than they do. Whatever such a call has
/// to say beyond registers is asked again of each kernel alone.
std::vector<Assembly> assemble_all(std::span<const AssemblyJob> jobs);

}  // namespace cgp::testing
