// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads of registers that may not have been written, and results that nothing reads.
#include <vector>

#include "cgp/ptx/analysis/ssa.h"

namespace cgp::ptx {

struct UninitialisedRead {
  std::uint32_t inst = 0;
  RegId reg = kNone;
  bool on_every_path = false;
};
/// In program order, each register once. A read under the guard of the write is no finding. `mov` hands
/// the emptiness on: compilers copy registers whose content does not matter.
std::vector<UninitialisedRead> uninitialised_reads(const Function& f, const Cfg& c, const Ssa& s);

/// Instructions without effect whose results reach no instruction that has one.
std::vector<std::uint32_t> dead_instructions(const Function& f, const Cfg& c, const Ssa& s);

}  // namespace cgp::ptx
