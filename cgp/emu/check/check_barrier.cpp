// SPDX-License-Identifier: Apache-2.0
// Lanes that go past an aligned barrier, or a .sync instruction whose mask names them, at which other lanes
// of their warp wait. Lanes that have exited are excused, so "they never came" cannot wait for their exit: an
// early return is correct, and code behind the branch that holds the barrier is not. The difference is in the
// control flow: a block that post-dominates the barrier and cannot reach it is passed only by lanes that have
// executed the barrier or never will.
#include <algorithm>
#include <unordered_map>

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/ptx/cfg.h"

namespace cgp::emu {

using text::cat;

namespace {
bool waits_for_lanes(const ptx::Inst& i) {
  switch (i.op) {
    case ptx::Op::bar_warp_sync:
    case ptx::Op::shfl_sync:
    case ptx::Op::vote_sync:
    case ptx::Op::match_any_sync:
    case ptx::Op::match_all_sync:
    case ptx::Op::redux_sync:
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

// Which blocks can reach `to`.
std::vector<bool> reaching(const std::vector<std::vector<ptx::BlockId>>& predecessors, ptx::BlockId to) {
  std::vector<bool> seen(predecessors.size());
  std::vector<ptx::BlockId> todo{to};
  while (!todo.empty()) {
    const ptx::BlockId b = todo.back();
    todo.pop_back();
    if (seen[b]) continue;
    seen[b] = true;
    todo.insert(todo.end(), predecessors[b].begin(), predecessors[b].end());
  }
  return seen;
}

// A block that only leaves the function is the exit of early returns too.
bool does_something(const ptx::Function& f, const ptx::Block& b) {
  for (std::uint32_t i = b.first; i < b.last; ++i)
    if (!ptx::is_jump(f.body[i].op) && f.body[i].op != ptx::Op::mov) return true;
  return false;
}
}  // namespace

void find_skip_points(Function& f, const std::vector<std::uint32_t>& op_at) {
  using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  ptx::Cfg cfg;
  std::vector<std::vector<ptx::BlockId>> predecessors;
  std::unordered_map<ptx::BlockId, Ranges> known;
  for (std::uint32_t i = 0; i < f.ptx->body.size(); ++i) {
    if (!waits_for_lanes(f.ptx->body[i])) continue;
    if (cfg.blocks.empty()) {
      cfg = ptx::build_cfg(*f.ptx);
      predecessors.resize(cfg.blocks.size());
      for (ptx::BlockId b = 0; b < cfg.blocks.size(); ++b)
        for (ptx::BlockId next : cfg.blocks[b].successors) predecessors[next].push_back(b);
    }
    const ptx::BlockId home = cfg.block_of[i];
    const auto [it, fresh] = known.try_emplace(home);
    if (fresh) {
      const std::vector<bool> before = reaching(predecessors, home);
      for (ptx::BlockId b = cfg.post_dominator[home]; b != ptx::kNone; b = cfg.post_dominator[b])
        if (does_something(*f.ptx, cfg.blocks[b]) && !before[b])
          it->second.emplace_back(op_at[cfg.blocks[b].first] - f.first_op,
                                  op_at[cfg.blocks[b].last] - f.first_op);
    }
    if (it->second.empty()) continue;
    for (std::uint32_t at = op_at[i]; at < op_at[i + 1]; ++at) f.skip_points[at - f.first_op] = it->second;
  }
}

const Op* next_skip_point(Warp& w, const Fragment& waiting) {
  const Function& f = *w.frame->function;
  const Op* nearest = nullptr;
  const auto it = f.skip_points.find(std::uint32_t(waiting.pc - f.begin));
  if (it == f.skip_points.end()) return nullptr;
  if (waiting.state == State::meet && !(w.lanes & waiting.meet_mask)) return nullptr;
  for (const auto& [first, last] : it->second) {
    const Op *begin = f.begin + first, *end = f.begin + last;
    if (w.pc >= begin && w.pc < end && waiting.state == State::meet)
      w.fail(Check::sync_mask, "sync.mask", *waiting.pc, waiting.lanes,
             cat("the mask ", text::hex(waiting.meet_mask), " names lanes ",
                 text::hex(w.lanes & waiting.meet_mask),
                 ", which have gone past this instruction without executing it, to ",
                 line_text(*w.worker->launch->program, w.pc->inst)),
             "compute the mask where all lanes are together (a vote before the branch), or move the "
             "instruction out "
             "of the branch");
    if (w.pc >= begin && w.pc < end)
      w.fail(Check::barrier, "barrier.divergence", *waiting.pc, waiting.lanes,
             cat("lanes ", text::hex(waiting.lanes), " of warp ", w.index,
                 " wait at this .aligned barrier; lanes ", text::hex(w.lanes),
                 " have gone past it without executing it, to ",
                 line_text(*w.worker->launch->program, w.pc->inst)),
             "move the barrier out of the divergent branch");
    if (begin > w.pc && (!nearest || begin < nearest)) nearest = begin;
  }
  return nearest;
}

}  // namespace cgp::emu
