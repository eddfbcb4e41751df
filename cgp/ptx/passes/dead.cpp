// SPDX-License-Identifier: Apache-2.0
// Dead code: results that nothing reads, blocks that nothing reaches, branches to what follows anyway. Only
// pure instructions and loads of kernel parameters go: memory, barriers, clocks and all that is not known
// stay.
#include <algorithm>

#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

bool reads_clock(const Inst& i) {
  return std::any_of(i.operands.begin(), i.operands.end(),
                     [](const Operand& o) { return o.kind == OperandKind::sreg && !is_stable(o.sreg); });
}

bool removable(const Unit& u, const Inst& i) {
  return (is_pure(i) && !reads_clock(i)) || is_parameter_load(u.m, u.f, i);
}

std::uint64_t unreachable(Unit& u) {
  const Cfg cfg = build_cfg(u.f);
  Edit edit(u);
  std::uint64_t n = 0;
  for (const Block& b : cfg.blocks)
    if (!b.reachable)
      for (std::uint32_t i = b.first; i < b.last; ++i, ++n) edit.erase(i);
  edit.apply();
  return n;
}

// Not needed by anything that stays, whatever the order: also counters that only count themselves.
void unneeded(Unit& u, std::vector<bool>& gone) {
  const std::size_t n = u.f.body.size();
  std::vector<std::vector<std::uint32_t>> writers(u.f.regs.size());
  std::vector<RegisterUse> uses;
  std::vector<bool> keep(n, false);
  std::vector<std::uint32_t> work;
  for (std::uint32_t i = 0; i < n; ++i) {
    registers_of(u.f.body[i], uses);
    bool pinned = false;
    for (const RegisterUse& use : uses)
      if (use.written) {
        writers[use.reg].push_back(i);
        pinned |= u.pinned(use.reg);
      }
    if (pinned || !removable(u, u.f.body[i])) {
      keep[i] = true;
      work.push_back(i);
    }
  }
  std::vector<bool> needed(u.f.regs.size(), false);
  while (!work.empty()) {
    const std::uint32_t i = work.back();
    work.pop_back();
    registers_of(u.f.body[i], uses);
    for (const RegisterUse& use : uses) {
      if (!use.read || needed[use.reg]) continue;
      needed[use.reg] = true;
      for (std::uint32_t w : writers[use.reg])
        if (!keep[w]) {
          keep[w] = true;
          work.push_back(w);
        }
    }
  }
  for (std::uint32_t i = 0; i < n; ++i)
    if (!keep[i]) gone[i] = true;
}

// Overwritten before anything reads it.
void overwritten(Unit& u, std::vector<bool>& gone) {
  const Cfg cfg = build_cfg(u.f);
  const Liveness live = liveness(u.f, cfg);
  std::vector<RegisterUse> uses;
  for (BlockId b = 0; b < cfg.blocks.size(); ++b) {
    RegisterSet now = live.out[b];
    for (std::uint32_t i = cfg.blocks[b].last; i-- > cfg.blocks[b].first;) {
      const Inst& n = u.f.body[i];
      registers_of(n, uses);
      bool dead = !gone[i] && removable(u, n);
      for (const RegisterUse& use : uses)
        if (use.written && (now.has(use.reg) || u.pinned(use.reg))) dead = false;
      if (dead) gone[i] = true;
      if (gone[i]) continue;
      for (const RegisterUse& use : uses)
        if (use.written && n.guard == kNone) now.remove(use.reg);
      for (const RegisterUse& use : uses)
        if (use.read) now.add(use.reg);
    }
  }
}

bool idle(const Unit& u, const Inst& i) {
  return is_move_of_register(i) && i.operands[0].reg == i.operands[1].reg && !u.pinned(i.operands[0].reg);
}

}  // namespace

std::uint64_t dead_code(Unit& u) {
  std::uint64_t total = unreachable(u);
  for (bool again = true; again;) {
    std::vector<bool> gone(u.f.body.size(), false);
    unneeded(u, gone);
    overwritten(u, gone);
    for (std::uint32_t i = 0; i < gone.size(); ++i)
      if (idle(u, u.f.body[i])) gone[i] = true;
    for (std::uint32_t i = 0; i < gone.size(); ++i) {
      const Inst& n = u.f.body[i];
      if (n.op != Op::bra || gone[i]) continue;
      const std::uint32_t target = u.f.labels[n.operands[0].label].position;
      bool nothing = target > i;
      for (std::uint32_t k = i + 1; nothing && k < target; ++k) nothing = gone[k];
      if (nothing) gone[i] = true;
    }
    Edit edit(u);
    std::uint64_t n = 0;
    for (std::uint32_t i = 0; i < gone.size(); ++i)
      if (gone[i]) {
        edit.erase(i);
        ++n;
      }
    edit.apply();
    total += n;
    again = n != 0;
    if (again) total += unreachable(u);
  }
  return total;
}

}  // namespace cgp::ptx::passes
