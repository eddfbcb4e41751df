// SPDX-License-Identifier: Apache-2.0
// Lanes that go past an aligned barrier at which other lanes of their warp wait. Lanes that have exited are
// excused, so "they never came" cannot wait for their exit: an early return is correct, and code behind the
// branch that holds the barrier is not. The difference is in the control flow: a block that post-dominates
// the barrier and cannot reach it is passed only by lanes that have executed the barrier or never will.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/machine_impl.h"
#include "cgp/ptx/cfg.h"

namespace cgp::emu {

using text::cat;

namespace {
bool is_aligned_barrier(const ptx::Inst& i) {
  switch (i.op) {
    case ptx::Op::bar_sync:
    case ptx::Op::bar_arrive:
    case ptx::Op::bar_red:
      return true;
    case ptx::Op::barrier_sync:
    case ptx::Op::barrier_arrive:
    case ptx::Op::barrier_red:
    case ptx::Op::barrier_cluster_arrive:
    case ptx::Op::barrier_cluster_wait:
      return i.has(ptx::Mod::aligned);
    default:
      return false;
  }
}

bool reaches(const ptx::Cfg& cfg, ptx::BlockId from, ptx::BlockId to) {
  std::vector<bool> seen(cfg.blocks.size());
  std::vector<ptx::BlockId> todo{from};
  while (!todo.empty()) {
    const ptx::BlockId b = todo.back();
    todo.pop_back();
    if (b == to) return true;
    if (seen[b]) continue;
    seen[b] = true;
    todo.insert(todo.end(), cfg.blocks[b].successors.begin(), cfg.blocks[b].successors.end());
  }
  return false;
}

// A block that only leaves the function is the exit of early returns too.
bool does_something(const ptx::Function& f, const ptx::Block& b) {
  for (std::uint32_t i = b.first; i < b.last; ++i)
    if (!ptx::is_jump(f.body[i].op) && f.body[i].op != ptx::Op::mov) return true;
  return false;
}
}  // namespace

void find_skip_points(Function& f, const std::vector<std::uint32_t>& op_at) {
  ptx::Cfg cfg;
  for (std::uint32_t i = 0; i < f.ptx->body.size(); ++i) {
    if (!is_aligned_barrier(f.ptx->body[i])) continue;
    if (cfg.blocks.empty()) cfg = ptx::build_cfg(*f.ptx);
    const ptx::BlockId home = cfg.block_of[i];
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
    for (ptx::BlockId b = cfg.post_dominator[home]; b != ptx::kNone; b = cfg.post_dominator[b])
      if (does_something(*f.ptx, cfg.blocks[b]) && !reaches(cfg, b, home))
        ranges.emplace_back(op_at[cfg.blocks[b].first] - f.first_op, op_at[cfg.blocks[b].last] - f.first_op);
    if (ranges.empty()) continue;
    for (std::uint32_t at = op_at[i]; at < op_at[i + 1]; ++at) f.skip_points[at - f.first_op] = ranges;
  }
}

const Op* next_skip_point(Warp& w, const Fragment& waiting) {
  const Function& f = *w.frame->function;
  const Op* nearest = nullptr;
  const auto it = f.skip_points.find(std::uint32_t(waiting.pc - f.begin));
  if (it == f.skip_points.end()) return nullptr;
  for (const auto& [first, last] : it->second) {
    const Op *begin = f.begin + first, *end = f.begin + last;
    if (w.pc >= begin && w.pc < end)
      w.fail(Check::barrier, "barrier.divergence", *waiting.pc, waiting.lanes,
             cat("lanes ", text::hex(waiting.lanes), " of warp ", w.index,
                 " wait at this .aligned barrier; lanes ", text::hex(w.lanes),
                 " have gone past it without executing it, to PTX line ",
                 w.worker->launch->program->inst(w.pc->inst).ptx_line),
             "move the barrier out of the divergent branch");
    if (begin > w.pc && (!nearest || begin < nearest)) nearest = begin;
  }
  return nearest;
}

}  // namespace cgp::emu
