// SPDX-License-Identifier: Apache-2.0
#pragma once
// A smell, not a proof: two accesses of shared memory by different threads, one of them a write, with a path
// between them that no barrier interrupts. Reported only where the addresses are known well enough to say
// that they meet. The emulator finds races for certain.
#include <string>
#include <vector>

#include "cgp/ptx/analysis/memory.h"

namespace cgp::ptx {

struct RaceHint {
  std::uint32_t first = 0, second = 0;  ///< instructions; there is a path from first to second
  std::string why;
};
std::vector<RaceHint> race_hints(const ThreadValues& v, const std::vector<MemoryAccess>& accesses);

}  // namespace cgp::ptx
