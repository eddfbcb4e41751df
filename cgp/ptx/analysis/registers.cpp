// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/registers.h"

#include <algorithm>

namespace cgp::ptx {
namespace {

enum class Missing : std::uint8_t { unvisited, never, sometimes, always };

Missing meet(Missing a, Missing b) {
  if (a == Missing::unvisited) return b;
  if (b == Missing::unvisited || a == b) return a;
  return Missing::sometimes;
}

/// The instruction passes the register on as it is: what becomes of it is the reader's matter.
bool copied(const Inst& i, RegId reg) {
  if (i.op == Op::mov) return true;
  return i.op == Op::selp && ((i.operands[1].kind == OperandKind::reg && i.operands[1].reg == reg) ||
                              (i.operands[2].kind == OperandKind::reg && i.operands[2].reg == reg));
}

class Tracker {
 public:
  Tracker(const Function& f, const Cfg& c, const Ssa& s) : f_(f), s_(s), is_(s.values.size()) {
    for (ValueId v = 0; v < s.values.size(); ++v) {
      if (s.values[v].kind == Value::Kind::undefined) is_[v] = Missing::always;
      if (s.values[v].kind == Value::Kind::parameter) is_[v] = Missing::never;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (BlockId b : c.order) {
        for (ValueId v : s.phis[b]) changed |= set(v, of_phi(v));
        for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i)
          for (ValueId v : s.writes[i]) changed |= set(v, of_write(i, v));
      }
    }
  }

  Missing at_read(std::uint32_t i, const Ssa::Read& r) const {
    const Value& v = s_.values[r.value];
    // Written and read under one guard: threads without it do neither.
    if (v.kind == Value::Kind::inst && is_[r.value] != Missing::never && same_guard(i, v.inst))
      return Missing::never;
    return is_[r.value];
  }

 private:
  bool same_guard(std::uint32_t i, std::uint32_t j) const {
    const Inst &a = f_.body[i], &b = f_.body[j];
    return a.guard != kNone && a.guard == b.guard && a.guard_negated == b.guard_negated &&
           s_.read(i, a.guard) == s_.read(j, b.guard);
  }
  bool set(ValueId v, Missing m) {
    if (is_[v] == m) return false;
    is_[v] = m;
    return true;
  }
  Missing of_phi(ValueId v) const {
    Missing m = Missing::unvisited;
    for (ValueId in : s_.values[v].inputs)
      if (in != kNone) m = meet(m, is_[in]);
    return m;
  }
  Missing of_write(std::uint32_t i, ValueId v) const {
    Missing m = Missing::never;
    const Inst& inst = f_.body[i];
    if (inst.op == Op::mov)
      for (const Ssa::Read& r : s_.reads[i])
        if (r.reg != inst.guard) m = at_read(i, r);
    if (inst.op == Op::selp) {
      m = Missing::unvisited;
      for (const Ssa::Read& r : s_.reads[i])
        if (copied(inst, r.reg)) m = meet(m, at_read(i, r));
      for (std::size_t o : {1u, 2u})
        if (inst.operands[o].kind != OperandKind::reg) m = meet(m, Missing::never);
    }
    const Value& value = s_.values[v];
    return value.inputs.empty() ? m : meet(m, is_[value.inputs[0]]);
  }

  const Function& f_;
  const Ssa& s_;
  std::vector<Missing> is_;
};

bool has_effect(const Inst& i) {
  switch (family(i.op)) {
    case Family::integer:
    case Family::floating:
    case Family::half_precision:
    case Family::logic:
    case Family::compare:
    case Family::move:
    case Family::video:
      break;
    case Family::memory:
      if ((i.op == Op::ld || i.op == Op::ldu) && !i.has(Mod::volatile_) && !i.has(Mod::acquire) &&
          !i.has(Mod::relaxed) && !i.has(Mod::mmio))
        break;
      return true;
    default:
      return true;
  }
  for (const Operand& o : i.operands)  // carries live in a register without a name
    if (o.kind == OperandKind::sreg && (o.sreg == Sreg::clock || o.sreg == Sreg::clock64)) return true;
  return i.has(Mod::cc) || i.op == Op::addc || i.op == Op::subc || i.op == Op::madc;
}

}  // namespace

std::vector<UninitialisedRead> uninitialised_reads(const Function& f, const Cfg& c, const Ssa& s) {
  const Tracker tracker(f, c, s);
  std::vector<UninitialisedRead> out;
  std::vector<std::uint8_t> told(f.regs.size());
  for (BlockId b = 0; b < c.blocks.size(); ++b)
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i) {
      for (const Ssa::Read& r : s.reads[i]) {
        if (copied(f.body[i], r.reg)) continue;
        const Missing m = tracker.at_read(i, r);
        if ((m != Missing::sometimes && m != Missing::always) || told[r.reg]) continue;
        told[r.reg] = 1;
        out.push_back({i, r.reg, m == Missing::always});
      }
    }
  return out;
}

std::vector<std::uint32_t> dead_instructions(const Function& f, const Cfg& c, const Ssa& s) {
  std::vector<std::uint8_t> live(f.body.size()), wanted(s.values.size());
  std::vector<ValueId> open;
  const auto want = [&](ValueId v) {
    if (v == kNone || wanted[v]) return;
    wanted[v] = 1;
    open.push_back(v);
  };
  const auto keep = [&](std::uint32_t i) {
    if (live[i]) return;
    live[i] = 1;
    for (const Ssa::Read& r : s.reads[i]) want(r.value);
  };
  for (BlockId b : c.order)
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i)
      if (has_effect(f.body[i])) keep(i);
  while (!open.empty()) {
    const Value& v = s.values[open.back()];
    open.pop_back();
    for (ValueId in : v.inputs) want(in);
    if (v.kind == Value::Kind::inst) keep(v.inst);
  }
  std::vector<std::uint32_t> out;
  for (BlockId b = 0; b < c.blocks.size(); ++b)
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last && c.blocks[b].reachable; ++i)
      if (!live[i]) out.push_back(i);
  return out;
}

}  // namespace cgp::ptx
