// SPDX-License-Identifier: Apache-2.0
#pragma once
// ptxas for tests: assembles a kernel and reports what it said. Looked for in $CGP_PTXAS, on PATH and in
// /usr/local/cuda/bin.
#include <optional>
#include <string>
#include <string_view>

namespace cgp::testing {

struct Assembly {
  bool ok = false;
  int registers = 0;
  int spill_bytes = 0;  ///< stores plus loads
  int stack_bytes = 0;
  bool serialised = false;  ///< a wgmma pipeline was broken up, or setmaxnreg ignored: any (C7...) advisory
  std::string log;
};

/// Path of ptxas, or nothing.
std::optional<std::string> find_ptxas();
/// Assembles for `arch` ("sm_90a"); throws Unsupported without ptxas.
Assembly assemble(std::string_view ptx, std::string_view arch);

}  // namespace cgp::testing
