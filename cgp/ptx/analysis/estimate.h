// SPDX-License-Identifier: Apache-2.0
#pragma once
// An estimate of the registers that ptxas gives a thread. Liveness of the PTX as it is written says what a
// program needs at least; ptxas then reorders instructions so that loads are under way early, unrolls short
// loops, and keeps constants, parameters and copies out of registers. The estimate does a small version of
// the same, and gives out registers where few are needed. docs/analyses.md has its error.
#include <cstdint>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

struct RegisterEstimate {
  int registers = 0;   ///< 32-bit registers of a thread, as `ptxas -v` reports them
  int as_written = 0;  ///< live at once in the order of the text
  int scheduled = 0;   ///< live at once in a schedule that hides latencies
  int limit = 255;     ///< what the directives leave: 255, .maxnreg, or the share of the block size
  int spilled = 0;     ///< live as written beyond the limit
};

/// `sm`: of the target (80 for sm_80).
RegisterEstimate estimate_registers(const Function& f, int sm = 80);

}  // namespace cgp::ptx
