// SPDX-License-Identifier: Apache-2.0
#pragma once
// Control flow of one function: basic blocks, edges, dominators and post-dominators.
#include <cstdint>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

using BlockId = std::uint32_t;

/// Instructions [first, last) that run one after the other.
struct Block {
  std::uint32_t first = 0, last = 0;
  std::vector<BlockId> successors, predecessors;  ///< without duplicates; the fall-through edge comes first
  bool exits = false;      ///< may leave the function here (ret, exit, trap, end of body)
  bool reachable = false;  ///< from the entry
};

struct Cfg {
  std::vector<Block> blocks;       ///< in program order; blocks[0] is the entry; empty for an empty body
  std::vector<BlockId> block_of;   ///< per instruction
  std::vector<BlockId> order;      ///< reachable blocks in reverse postorder
  std::vector<BlockId> dominator;  ///< immediate dominator; kNone for the entry and unreachable blocks
  std::vector<BlockId>
      post_dominator;  ///< immediate post-dominator; kNone when only the function's end is one

  bool dominates(BlockId a, BlockId b) const;
  bool post_dominates(BlockId a, BlockId b) const;
};

/// Branch targets must be resolved (parse() and verify() see to it).
Cfg build_cfg(const Function& f);

/// Ends a block: bra, brx.idx, ret, exit, trap.
bool is_jump(Op op);

}  // namespace cgp::ptx
