// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/spaces.h"

#include "cgp/base/text.h"
#include "cgp/ptx/verify/verify_impl.h"

namespace cgp::ptx {
namespace {

using Kind = Pointer::Kind;

Pointer meet(Pointer a, Pointer b) {
  if (a.kind == Kind::unvisited || a == b) return b;
  if (b.kind == Kind::unvisited) return a;
  return {Kind::unknown, Space::generic};
}

/// Address plus number is an address; of two addresses nothing is known.
Pointer sum(Pointer a, Pointer b) {
  if (a.kind == Kind::unvisited || b.kind == Kind::unvisited) return {};
  if (a.kind == Kind::number) return b;
  if (b.kind == Kind::number) return a;
  return {Kind::unknown, Space::generic};
}

}  // namespace

Pointers::Pointers(const Module& m, const Function& f, const Cfg& c, const Ssa& s)
    : m_(m), f_(f), s_(s), is_(s.values.size()) {
  for (ValueId v = 0; v < s.values.size(); ++v)
    if (s.values[v].kind == Value::Kind::undefined || s.values[v].kind == Value::Kind::parameter)
      is_[v] = {Kind::unknown, Space::generic};
  for (bool changed = true; changed;) {
    changed = false;
    const auto set = [&](ValueId v, Pointer p) {
      p = meet(is_[v], p);
      changed |= !(is_[v] == p);
      is_[v] = p;
    };
    for (BlockId b : c.order) {
      for (ValueId v : s.phis[b])
        for (ValueId in : s.values[v].inputs)
          if (in != kNone) set(v, is_[in]);
      for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i)
        for (ValueId v : s.writes[i]) {
          set(v, written(i));
          for (ValueId before : s.values[v].inputs) set(v, is_[before]);
        }
    }
  }
}

Pointer Pointers::variable(SymbolId symbol) const {
  for (const auto* vars : {&f_.vars, &m_.vars})
    for (const Var& v : *vars)
      if (v.name == symbol) return {Kind::window, v.space};
  for (const Var& v : f_.params)
    if (v.name == symbol) return {Kind::window, Space::param};
  return {Kind::unknown, Space::generic};
}

Pointer Pointers::operand(std::uint32_t inst, const Operand& o) const {
  switch (o.kind) {
    case OperandKind::reg:
      return s_.read(inst, o.reg) == kNone ? Pointer{Kind::unknown, Space::generic}
                                           : is_[s_.read(inst, o.reg)];
    case OperandKind::address:
      if (o.reg != kNone) return operand(inst, Operand::of(o.reg));
      return o.symbol == kNone ? Pointer{Kind::number, Space::generic} : variable(o.symbol);
    case OperandKind::symbol:
      return variable(o.symbol);
    case OperandKind::imm:
    case OperandKind::sreg:
      return {Kind::number, Space::generic};
    default:
      return {Kind::unknown, Space::generic};
  }
}

Pointer Pointers::written(std::uint32_t i) const {
  const Inst& inst = f_.body[i];
  const auto in = [&](std::size_t k) {
    return k < inst.operands.size() ? operand(i, inst.operands[k]) : Pointer{Kind::number, Space::generic};
  };
  switch (inst.op) {
    case Op::mov:
      if (inst.operands[0].kind == OperandKind::vector || inst.operands[1].kind == OperandKind::vector)
        return {Kind::unknown, Space::generic};
      return in(1);
    case Op::cvt:
      return in(1);
    case Op::cvta: {
      const Pointer from = in(1);
      const Space space = named_space(inst);
      if (from.kind == Kind::unvisited) return from;
      return {inst.has(Mod::to) ? Kind::window : Kind::generic, space};
    }
    case Op::add:
    case Op::sub:
    case Op::or_:
      return sum(in(1), in(2));
    case Op::mad:
      return sum(in(3), Pointer{Kind::number, Space::generic});
    case Op::and_: {  // alignment down, or a part of an address: both are met
      const Pointer a = in(1);
      return a.kind == Kind::number || a.kind == Kind::unvisited ? a : Pointer{Kind::unknown, Space::generic};
    }
    case Op::mul:
    case Op::shl:
    case Op::shr:
    case Op::rem:
    case Op::div:
      return {Kind::number, Space::generic};
    case Op::selp:
      return meet(in(1), in(2));
    case Op::ld:
      // A pointer parameter is a generic address, and at the same time one of global memory.
      return {Kind::unknown, Space::generic};
    default:
      return {Kind::unknown, Space::generic};
  }
}

std::vector<SpaceMismatch> space_mismatches(const Function& f, const Cfg& c, const Pointers& p) {
  std::vector<SpaceMismatch> out;
  for (BlockId b = 0; b < c.blocks.size(); ++b) {
    if (!c.blocks[b].reachable) continue;
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i) {
      const Inst& inst = f.body[i];
      const bool accesses = inst.op == Op::ld || inst.op == Op::st || inst.op == Op::atom ||
                            inst.op == Op::red || inst.op == Op::ldu || inst.op == Op::cvta;
      if (!accesses) continue;
      const Space wants = named_space(inst);
      if (wants == Space::param) continue;
      const bool from_window = inst.op == Op::cvta && !inst.has(Mod::to);
      const bool from_generic = inst.op == Op::cvta && inst.has(Mod::to);
      for (const Operand& o : inst.operands) {
        if (inst.op == Op::cvta ? &o == &inst.operands[0] : o.kind != OperandKind::address) continue;
        const Pointer at = p.operand(i, o);
        if (at.kind != Kind::window && at.kind != Kind::generic) continue;
        const bool generic = at.kind == Kind::generic;
        // Global addresses are the same number in both forms.
        if (at.space == Space::global && (wants == Space::global || wants == Space::generic)) continue;
        bool fits = at.space == wants && !generic;
        if (wants == Space::generic) fits = generic;
        if (from_generic) fits = generic && at.space == wants;
        if (from_window) fits = !generic && at.space == wants;
        if (fits) continue;
        out.push_back(
            {i, text::cat("the address is ", generic ? "a generic address of " : "an offset in ",
                          name(at.space), " memory, the instruction ",
                          from_generic  ? text::cat("takes a generic address of ", name(wants), " memory")
                          : from_window ? text::cat("takes an offset in ", name(wants), " memory")
                          : wants == Space::generic
                              ? "takes a generic address"
                              : text::cat("takes an offset in ", name(wants), " memory"))});
        break;
      }
    }
  }
  return out;
}

}  // namespace cgp::ptx
