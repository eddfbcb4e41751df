// SPDX-License-Identifier: Apache-2.0
#pragma once
// Natural loops of one function: a back edge goes to a block that dominates its source. Cycles with two
// entries (nothing that nvcc, clang or the DSL emit) are no loops here.
#include <vector>

#include "cgp/ptx/cfg.h"

namespace cgp::ptx {

struct Loop {
  BlockId header = kNone;
  std::vector<BlockId> blocks;   ///< in program order, the header and inner loops included
  std::vector<BlockId> latches;  ///< sources of the back edges
  std::vector<BlockId> exits;    ///< blocks of the loop with a successor outside of it
  std::uint32_t parent = kNone;  ///< index of the next outer loop
  int depth = 1;                 ///< 1: not inside another
  bool contains(BlockId b) const;
};

struct LoopForest {
  std::vector<Loop> loops;               ///< outer ones before the ones in them
  std::vector<std::uint32_t> innermost;  ///< per block: index of the innermost loop around it, or kNone
};

LoopForest find_loops(const Cfg& c);

}  // namespace cgp::ptx
