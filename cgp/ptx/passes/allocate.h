// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear-scan register allocation, for reports: what a thread would need, and what would have to be spilled
// under a limit. ptxas allocates the registers of the real program; this says beforehand how tight it gets.
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

struct Spill {
  RegId reg = kNone;
  std::uint32_t at = 0;       ///< instruction where its register was taken away
  int words = 1;              ///< 32-bit registers it had
  int stores = 0, loads = 0;  ///< instructions that would move it to and from local memory
};

struct Allocation {
  int limit = 255;     ///< 32-bit registers that were there to give
  int used = 0;        ///< of those; 64-bit values take an aligned pair, 128-bit ones four
  int predicates = 0;  ///< predicate registers used, of 7
  std::vector<Spill> spills;
  std::vector<int>
      home;  ///< per register the number of its first 32-bit register; -1: spilled, unused, predicate

  int spill_words() const;  ///< 32-bit words of local memory
  int spill_stores() const;
  int spill_loads() const;
};

/// `limit` 0: what .maxnreg, the block size and the hardware's 255 leave. When the registers run out, the
/// value whose next use is furthest away in the text is spilled.
Allocation allocate(const Function& f, int limit = 0);
/// Two or three lines: registers, and for spills what they cost and what helps.
std::string describe(const Module& m, const Function& f, const Allocation& a);

}  // namespace cgp::ptx
