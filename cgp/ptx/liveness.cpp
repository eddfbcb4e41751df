// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/liveness.h"

#include <algorithm>
#include <array>

#include "cgp/ptx/forms.h"

namespace cgp::ptx {

// Sets of the dataflow equations, on whole words.
struct Dataflow {
  // in = use | (out & ~kill); true when it changed
  static bool step(RegisterSet& in, const RegisterSet& use, const RegisterSet& out, const RegisterSet& kill) {
    bool changed = false;
    for (std::size_t i = 0; i < in.words_.size(); ++i) {
      const std::uint64_t w = use.words_[i] | (out.words_[i] & ~kill.words_[i]);
      changed |= w != in.words_[i];
      in.words_[i] = w;
    }
    return changed;
  }
  static void unite(RegisterSet& to, const RegisterSet& from) {
    for (std::size_t i = 0; i < to.words_.size(); ++i) to.words_[i] |= from.words_[i];
  }
};

namespace {

// Bit k: operand k is a destination. All forms of one opcode agree on the places of their destinations.
std::uint32_t destinations(Op op) {
  static const auto table = [] {
    std::array<std::uint32_t, std::size_t(Op::kCount)> t{};
    for (std::size_t o = 0; o < t.size(); ++o)
      for (const Form& f : forms(Op(o)))
        for (std::size_t k = 0; k < f.operands.size() && k < 32; ++k) {
          using Kind = OperandPattern::Kind;
          const Kind kind = f.operands[k].kind;
          if (kind == Kind::dest || kind == Kind::pred_dest || kind == Kind::unpack) t[o] |= 1u << k;
        }
    for (Op op : {Op::tex, Op::tld4, Op::txq, Op::suld, Op::suq}) t[std::size_t(op)] = 1;
    return t;
  }();
  return table[std::size_t(op)];
}

void visit(const Operand& o, bool written, bool read, std::vector<RegisterUse>& out) {
  switch (o.kind) {
    case OperandKind::reg:
      if (o.reg != kNone) out.push_back({o.reg, read, written});
      if (o.reg2 != kNone) out.push_back({o.reg2, read, written});
      return;
    case OperandKind::address:
      if (o.reg != kNone) out.push_back({o.reg, true, false});
      for (const Operand& e : o.elems) visit(e, false, true, out);
      return;
    case OperandKind::vector:
    case OperandKind::list:
      for (const Operand& e : o.elems) visit(e, written, read, out);
      return;
    default:
      return;
  }
}

// scale-d, the first predicate or flag after the descriptors, says whether the accumulator is read.
bool accumulates(const Inst& i) {
  if (i.op != Op::wgmma_mma_async && i.op != Op::wgmma_mma_async_sp) return false;
  const std::size_t at = i.op == Op::wgmma_mma_async ? 3 : 5;
  return !(i.operands.size() > at && i.operands[at].kind == OperandKind::imm && i.operands[at].imm == 0);
}

}  // namespace

std::vector<RegId> RegisterSet::list() const {
  std::vector<RegId> out;
  for (std::size_t w = 0; w < words_.size(); ++w)
    for (std::uint64_t bits = words_[w]; bits; bits &= bits - 1)
      out.push_back(RegId(w * 64 + std::size_t(__builtin_ctzll(bits))));
  return out;
}

bool writes_operand(const Inst& i, std::size_t k) {
  if (i.op == Op::call) return k == 0 && i.operands.size() > 1 && i.operands[0].kind == OperandKind::list;
  return k < 32 && (destinations(i.op) >> k & 1);
}

void registers_of(const Inst& i, std::vector<RegisterUse>& out) {
  out.clear();
  if (i.guard != kNone) out.push_back({i.guard, true, false});
  if (i.op == Op::call) {  // (results), function, (arguments)
    const bool results = i.operands.size() > 1 && i.operands[0].kind == OperandKind::list;
    for (std::size_t k = 0; k < i.operands.size(); ++k)
      visit(i.operands[k], results && k == 0, !(results && k == 0), out);
    return;
  }
  const std::uint32_t mask = destinations(i.op);
  for (std::size_t k = 0; k < i.operands.size(); ++k) {
    const bool written = k < 32 && (mask >> k & 1);
    visit(i.operands[k], written, !written || accumulates(i), out);
  }
}

void for_each_register(const Inst& i, const std::function<void(RegisterUse)>& visit_use) {
  std::vector<RegisterUse> uses;
  registers_of(i, uses);
  for (const RegisterUse& u : uses) visit_use(u);
}

Liveness liveness(const Function& f, const Cfg& c) {
  const std::size_t n = c.blocks.size(), regs = f.regs.size();
  Liveness l{std::vector<RegisterSet>(n, RegisterSet(regs)), std::vector<RegisterSet>(n, RegisterSet(regs))};
  std::vector<RegisterSet> use(n, RegisterSet(regs)), kill(n, RegisterSet(regs));
  std::vector<RegisterUse> uses;
  for (BlockId b = 0; b < n; ++b)
    for (std::uint32_t i = c.blocks[b].last; i-- > c.blocks[b].first;) {
      registers_of(f.body[i], uses);
      for (const RegisterUse& u : uses)
        if (u.written && f.body[i].guard == kNone) {
          kill[b].add(u.reg);
          use[b].remove(u.reg);
        }
      for (const RegisterUse& u : uses)
        if (u.read) use[b].add(u.reg);
    }
  // Blocks in program order from the end: back edges need a second round, loops in loops a third.
  for (bool changed = true; changed;) {
    changed = false;
    for (BlockId b = BlockId(n); b-- > 0;) {
      for (BlockId s : c.blocks[b].successors) Dataflow::unite(l.out[b], l.in[s]);
      changed |= Dataflow::step(l.in[b], use[b], l.out[b], kill[b]);
    }
  }
  return l;
}

std::vector<std::vector<LiveRange>> live_ranges(const Function& f, const Cfg& c, const Liveness& l) {
  std::vector<std::vector<LiveRange>> out(f.regs.size());
  // end[r]: last position before which r is live in the range being walked backwards; kNone when it is not
  // live
  std::vector<std::uint32_t> end(f.regs.size(), kNone);
  std::vector<RegisterUse> uses;
  for (BlockId b = BlockId(c.blocks.size()); b-- > 0;) {
    const Block& block = c.blocks[b];
    std::vector<RegId> open;
    for (RegId r : l.out[b].list()) {
      end[r] = block.last;
      open.push_back(r);
    }
    auto close = [&](RegId r, std::uint32_t first) {
      out[r].push_back({first, std::min(end[r], block.last - 1)});
      end[r] = kNone;
    };
    for (std::uint32_t i = block.last; i-- > block.first;) {
      registers_of(f.body[i], uses);
      for (const RegisterUse& u : uses)
        if (u.written && f.body[i].guard == kNone && end[u.reg] != kNone) {
          if (end[u.reg] > i && i + 1 < block.last) close(u.reg, i + 1);
          end[u.reg] = kNone;
        }
      for (const RegisterUse& u : uses)
        if (u.read && end[u.reg] == kNone) {
          end[u.reg] = i;
          open.push_back(u.reg);
        }
    }
    for (RegId r : open)
      if (end[r] != kNone) close(r, block.first);
  }
  // Found backwards, block by block: sort, and join what touches.
  for (auto& ranges : out) {
    std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::vector<LiveRange> joined;
    for (const LiveRange& r : ranges) {
      if (!joined.empty() && joined.back().last + 1 >= r.first)
        joined.back().last = std::max(joined.back().last, r.last);
      else
        joined.push_back(r);
    }
    ranges = std::move(joined);
  }
  return out;
}

}  // namespace cgp::ptx
