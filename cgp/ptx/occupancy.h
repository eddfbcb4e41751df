// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many blocks of a kernel fit on one SM, and what limits them.
#include <cstdint>
#include <string>

#include "cgp/ptx/target.h"

namespace cgp::ptx {

struct LaunchShape {
  int threads = 0;           ///< per block
  int registers = 0;         ///< per thread, as the driver reports them
  std::uint64_t shared = 0;  ///< static + dynamic bytes per block
};

struct Occupancy {
  int blocks = 0;       ///< per SM; 0 = the launch is impossible
  int warps = 0;        ///< per SM
  double fraction = 0;  ///< of the warps that the SM can hold
  std::string limit;    ///< "registers", "shared memory", "warps" or "blocks"
  std::string reason;   ///< why a launch is impossible, or what limits it, with the numbers
  int by_warps = 0, by_blocks = 0, by_registers = 0, by_shared = 0;  ///< blocks that each resource allows
};

/// Throws Unsupported for a chip that is not in the table of target.h.
Occupancy occupancy(int sm, const LaunchShape& shape);

}  // namespace cgp::ptx
