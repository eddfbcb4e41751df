// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/loops.h"

#include <algorithm>

namespace cgp::ptx {

bool Loop::contains(BlockId b) const { return std::binary_search(blocks.begin(), blocks.end(), b); }

LoopForest find_loops(const Cfg& c) {
  LoopForest forest;
  forest.innermost.assign(c.blocks.size(), kNone);
  for (BlockId header : c.order) {
    Loop loop;
    loop.header = header;
    for (BlockId p : c.blocks[header].predecessors)
      if (c.blocks[p].reachable && c.dominates(header, p)) loop.latches.push_back(p);
    if (loop.latches.empty()) continue;
    // All blocks that reach a latch without passing the header.
    std::vector<std::uint8_t> inside(c.blocks.size());
    inside[header] = 1;
    std::vector<BlockId> work = loop.latches;
    while (!work.empty()) {
      const BlockId b = work.back();
      work.pop_back();
      if (inside[b] || !c.blocks[b].reachable) continue;
      inside[b] = 1;
      for (BlockId p : c.blocks[b].predecessors) work.push_back(p);
    }
    for (BlockId b = 0; b < inside.size(); ++b)
      if (inside[b]) loop.blocks.push_back(b);
    for (BlockId b : loop.blocks)
      for (BlockId s : c.blocks[b].successors)
        if (!inside[s]) {
          loop.exits.push_back(b);
          break;
        }
    forest.loops.push_back(std::move(loop));
  }
  // Reverse postorder visits an outer header first, so that the last loop written is the innermost.
  for (std::uint32_t l = 0; l < forest.loops.size(); ++l) {
    Loop& loop = forest.loops[l];
    loop.parent = forest.innermost[loop.header];
    if (loop.parent != kNone) loop.depth = forest.loops[loop.parent].depth + 1;
    for (BlockId b : loop.blocks) forest.innermost[b] = l;
  }
  return forest;
}

}  // namespace cgp::ptx
