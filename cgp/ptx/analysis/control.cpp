// SPDX-License-Identifier: Apache-2.0
// Which threads run a block of instructions, and over which scope all of them do or none.
#include <algorithm>

#include "cgp/ptx/analysis/values.h"

namespace cgp::ptx {
namespace {

/// Blocks from which `seeds` can be reached along `edges`.
std::vector<std::uint8_t> reaching(const Cfg& c, std::vector<BlockId> seeds) {
  std::vector<std::uint8_t> out(c.blocks.size());
  for (BlockId b : seeds) out[b] = 1;
  while (!seeds.empty()) {
    const BlockId b = seeds.back();
    seeds.pop_back();
    for (BlockId p : c.blocks[b].predecessors)
      if (!out[p]) {
        out[p] = 1;
        seeds.push_back(p);
      }
  }
  return out;
}

/// Per block the blocks whose jump decides whether it runs (Ferrante, Ottenstein, Warren).
std::vector<std::vector<BlockId>> control_dependences(const Cfg& c) {
  std::vector<std::vector<BlockId>> out(c.blocks.size());
  const auto depend = [&](BlockId x, BlockId on) {
    if (std::find(out[x].begin(), out[x].end(), on) == out[x].end()) out[x].push_back(on);
  };
  std::vector<BlockId> ends;
  for (BlockId b : c.order) {
    if (c.blocks[b].exits) ends.push_back(b);
    for (BlockId s : c.blocks[b].successors)
      for (BlockId x = s; x != kNone && x != c.post_dominator[b]; x = c.post_dominator[x]) depend(x, b);
  }
  // Blocks that never reach an end have no post-dominators: every jump on the way to them counts.
  const auto can_end = reaching(c, ends);
  for (BlockId x : c.order) {
    if (can_end[x]) continue;
    const auto before = reaching(c, {x});
    for (BlockId b : c.order)
      if (before[b] && (c.blocks[b].successors.size() > 1 || c.blocks[b].exits)) depend(x, b);
  }
  return out;
}

/// The sides of this branch meet no more, or only where the function ends.
bool leaves_function(const Function& f, const Cfg& c, BlockId b) {
  const BlockId meet = c.post_dominator[b];
  if (meet == kNone) return true;
  const Block& block = c.blocks[meet];
  const Op op = f.body[block.first].op;
  return block.first + 1 == block.last && (op == Op::ret || op == Op::exit);
}

}  // namespace

std::size_t Control::count() const { return std::size_t(std::count(may.begin(), may.end(), 1)); }

void ThreadValues::find_control() {
  control_.resize(c_.blocks.size());
  for (Control& x : control_) x.scope = x.together = a_.entry;
  const auto depends = control_dependences(c_);
  for (bool changed = true; changed;) {
    changed = false;
    for (BlockId x : c_.order)
      for (BlockId b : depends[x]) {
        const std::uint32_t jump = c_.blocks[b].last - 1;
        const Control before = control_[x];
        if (control_[b].scope < control_[x].scope) {
          control_[x].scope = control_[b].scope;
          control_[x].branch = control_[b].branch;
          control_[x].after_exit = control_[b].after_exit;
        }
        if (branch_scope_[b] < control_[x].scope) {
          control_[x].scope = branch_scope_[b];
          control_[x].branch = jump;
          control_[x].after_exit = leaves_function(f_, c_, b);
        }
        const auto known = condition(jump);
        const Scope unknown = known && known->known() ? Scope::grid : branch_scope_[b];
        control_[x].together = min_of(control_[x].together, min_of(unknown, control_[b].together));
        changed |= control_[x].scope != before.scope || control_[x].together != before.together;
      }
  }
  spread_masks();
  find_parted();
}

void ThreadValues::find_parted() {
  const auto waits = [&](const Inst& i) {
    return family(i.op) == Family::atomic || i.has(Mod::volatile_) || i.has(Mod::acquire) ||
           i.has(Mod::relaxed);
  };
  // Lanes that wait for one phase together leave together; some of them may stay behind.
  const auto waits_for_phase = [&](const Inst& i) {
    return i.op == Op::mbarrier_try_wait || i.op == Op::mbarrier_test_wait;
  };
  for (BlockId b : divergent_loops_) {
    if (branch_scope_[b] != Scope::thread) continue;
    const bool some = control_[b].scope < Scope::warp;
    bool spins = false;
    for (std::uint32_t i = 0; i < f_.body.size() && !spins; ++i)
      spins = reach(b).cycle[c_.block_of[i]] && (waits(f_.body[i]) || (some && waits_for_phase(f_.body[i])));
    if (!spins) continue;
    std::vector<BlockId> open{b};
    control_[b].may_part = true;
    while (!open.empty()) {
      const BlockId x = open.back();
      open.pop_back();
      for (BlockId s : c_.blocks[x].successors)
        if (!control_[s].may_part) {
          control_[s].may_part = true;
          open.push_back(s);
        }
    }
  }
}

// The threads that may go from one block to another by the jump between them; absent: all that are there.
std::optional<Lanes> ThreadValues::edge(BlockId from, BlockId to) const {
  const std::uint32_t jump = c_.blocks[from].last - 1;
  const Inst& i = f_.body[jump];
  if (i.guard == kNone || i.op == Op::brx_idx) return std::nullopt;
  const auto taken = condition(jump);
  if (!taken || !taken->known()) return std::nullopt;
  const bool falls = c_.blocks[from].last < f_.body.size() && c_.block_of[c_.blocks[from].last] == to;
  bool jumps = false;
  for (const Operand& o : i.operands)
    if (i.op == Op::bra && o.kind == OperandKind::label) {
      const std::uint32_t at = f_.labels[o.label].position;
      jumps = at < f_.body.size() && c_.block_of[at] == to;
    }
  if (falls == jumps) return std::nullopt;
  return jumps ? taken->constant : Lanes::map(taken->constant, [](std::int64_t v) { return 1 - v; });
}

void ThreadValues::spread_masks() {
  if (c_.blocks.empty()) return;
  for (Control& x : control_) x.may.assign(threads_, 0);
  control_[0].may.assign(threads_, 1);
  std::vector<BlockId> open{0};
  while (!open.empty()) {
    const BlockId b = open.back();
    open.pop_back();
    for (BlockId to : c_.blocks[b].successors) {
      const auto allowed = edge(b, to);
      bool grew = false;
      for (std::size_t t = 0; t < threads_; ++t)
        if (control_[b].may[t] && !control_[to].may[t] && (!allowed || (*allowed)[t])) {
          control_[to].may[t] = 1;
          grew = true;
        }
      if (grew) open.push_back(to);
    }
  }
}

}  // namespace cgp::ptx
