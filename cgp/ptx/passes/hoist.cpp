// SPDX-License-Identifier: Apache-2.0
// What a loop computes anew each trip with the same result moves in front of it; multiples of a loop counter
// become sums ("incremental addressing").
#include <algorithm>
#include <optional>

#include "cgp/ptx/loops.h"
#include "cgp/ptx/passes/evaluate.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

/// One loop with a place in front of it.
class Entry {
 public:
  Entry(Unit& u, const Values& v, const Loop& loop) : u_(u), v_(v), loop_(loop) {
    first_ = v.cfg.blocks[loop.header].first;
  }
  /// Is there a place that only who enters the loop runs through?
  bool possible() const {
    for (BlockId p : v_.cfg.blocks[loop_.header].predecessors) {
      const std::uint32_t last = v_.cfg.blocks[p].last - 1;
      const Inst& n = u_.f.body[last];
      const bool falls = v_.cfg.blocks[p].last == first_ && !(is_jump(n.op) && n.guard == kNone);
      if (loop_.contains(p) && falls) return false;
      if (is_jump(n.op) && n.op != Op::bra) return false;
    }
    for (const Table& t : u_.f.tables)
      for (LabelId l : t.labels)
        if (u_.f.labels[l].position == first_) return false;
    return true;
  }
  /// Puts the instruction there; the jumps from outside the loop follow.
  void add(Edit& edit, Inst n) const {
    edit.insert_above(first_, std::move(n));
    for (BlockId p : v_.cfg.blocks[loop_.header].predecessors) {
      if (loop_.contains(p)) continue;
      Inst& jump = u_.f.body[v_.cfg.blocks[p].last - 1];
      if (jump.op != Op::bra) continue;
      Operand& o = jump.operands[0];
      if (u_.f.labels[o.label].position == first_) o.label = edit.label_above(first_);
    }
  }

 private:
  Unit& u_;
  const Values& v_;
  const Loop& loop_;
  std::uint32_t first_;
};

std::vector<std::uint32_t> definitions_inside(const Unit& u, const Values& v, const Loop& loop) {
  std::vector<std::uint32_t> count(u.f.regs.size(), 0);
  std::vector<RegisterUse> uses;
  for (BlockId b : loop.blocks)
    for (std::uint32_t i = v.cfg.blocks[b].first; i < v.cfg.blocks[b].last; ++i) {
      registers_of(u.f.body[i], uses);
      for (const RegisterUse& use : uses)
        if (use.written) ++count[use.reg];
    }
  return count;
}

bool unknown_inside(const Unit& u, const Values& v, const Loop& loop) {
  for (BlockId b : loop.blocks)
    for (std::uint32_t i = v.cfg.blocks[b].first; i < v.cfg.blocks[b].last; ++i) {
      const Op op = u.f.body[i].op;
      if (op == Op::call || op == Op::brx_idx) return true;
    }
  return false;
}

// Whether any loop had something to move; moves out of one loop only, because positions change then.
std::uint64_t hoist_once(Unit& u) {
  const Values v(u);
  const LoopForest forest = find_loops(v.cfg);
  for (std::size_t l = forest.loops.size(); l-- > 0;) {
    const Loop& loop = forest.loops[l];
    const Entry entry(u, v, loop);
    if (!entry.possible() || unknown_inside(u, v, loop)) continue;
    auto inside = definitions_inside(u, v, loop);
    Edit edit(u);
    std::uint64_t n = 0;
    for (BlockId b : v.cfg.order) {
      if (!loop.contains(b)) continue;
      for (std::uint32_t i = v.cfg.blocks[b].first; i < v.cfg.blocks[b].last; ++i) {
        const Inst& x = u.f.body[i];
        const RegId d = only_destination(x);
        if (d == kNone || x.guard != kNone || x.op == Op::mov || !v.single(d) || u.touches_pinned(x))
          continue;
        if (!is_pure(x) && !is_parameter_load(u.m, u.f, x)) continue;
        std::vector<RegisterUse> uses;
        registers_of(x, uses);
        if (!std::all_of(uses.begin(), uses.end(),
                         [&](const auto& use) { return !use.read || inside[use.reg] == 0; }))
          continue;
        entry.add(edit, x);
        edit.erase(i);
        inside[d] = 0;
        ++n;
      }
    }
    if (n == 0) continue;
    edit.apply();
    return n;
  }
  return 0;
}

// ---------------------------------------------------------------- counters
/// `reg` changes once per trip, by `step`.
struct Counter {
  RegId reg = kNone;
  std::uint32_t changed_at = 0;  ///< the instruction that writes it
  std::int64_t step = 0;
  int bits = 0;
};

class Counters {
 public:
  Counters(Unit& u, const Values& v, const LoopForest& forest, std::uint32_t index)
      : u_(u), v_(v), forest_(forest), loop_(forest.loops[index]), index_(index) {
    inside_ = definitions_inside(u, v, loop_);
  }

  std::optional<Counter> counter(RegId r) const {
    if (inside_[r] != 1 || u_.pinned(r)) return std::nullopt;
    Counter c;
    c.reg = r;
    for (BlockId b : loop_.blocks)
      for (std::uint32_t i = v_.cfg.blocks[b].first; i < v_.cfg.blocks[b].last; ++i) {
        const Inst& n = u_.f.body[i];
        if (only_destination(n) != r) continue;
        if (n.guard != kNone || forest_.innermost[b] != index_) return std::nullopt;
        for (BlockId latch : loop_.latches)
          if (!v_.dominates(b, latch)) return std::nullopt;
        c.changed_at = i;
        const Inst* sum = &n;
        if (is_move_of_register(n)) {
          const RegId t = n.operands[1].reg;
          if (!v_.single(t) || !loop_.contains(v_.cfg.block_of[v_.definition(t)])) return std::nullopt;
          sum = &v_.definer(t);
          // t must be made from this trip's value, and in this trip.
          if (forest_.innermost[v_.cfg.block_of[v_.definition(t)]] != index_) return std::nullopt;
        }
        return step(*sum, c);
      }
    return std::nullopt;
  }

  bool invariant(const Operand& o) const {
    return is_literal(o) || (o.kind == OperandKind::reg && o.reg != kNone && o.reg2 == kNone &&
                             inside_[o.reg] == 0 && !u_.pinned(o.reg));
  }
  const Loop& loop() const { return loop_; }

  /// The counter never passes the end of its type: on every trip the test let it through below a bound.
  bool stays_in_range(const Counter& c, bool is_signed_use) const {
    if (c.step < 1) return false;
    const std::uint32_t at = v_.cfg.blocks[loop_.header].last - 1;
    const Inst& leave = u_.f.body[at];
    if (leave.op != Op::bra || leave.guard == kNone || !v_.single(leave.guard)) return false;
    const std::uint32_t to = u_.f.labels[leave.operands[0].label].position;
    if (to < u_.f.body.size() && loop_.contains(v_.cfg.block_of[to])) return false;
    if (v_.cfg.block_of[v_.definition(leave.guard)] != loop_.header) return false;
    const Inst& test = v_.definer(leave.guard);
    if (test.op != Op::setp || test.mods.size() != 2 || test.operands.size() != 3) return false;
    if (type_bits(test.type()) != c.bits || is_signed(test.type()) != is_signed_use || is_float(test.type()))
      return false;
    // The change comes after the test, in a block that the test leads to.
    if (v_.cfg.block_of[c.changed_at] == loop_.header) return false;
    if (test.operands[1].kind != OperandKind::reg || test.operands[1].reg != c.reg) return false;
    const bool below =
        leave.guard_negated ? test.has(Mod::lt) || test.has(Mod::lo) : test.has(Mod::ge) || test.has(Mod::hs);
    if (!below || !invariant(test.operands[2])) return false;
    if (c.step == 1) return true;
    const Operand& bound = test.operands[2];
    if (bound.kind != OperandKind::imm) return false;
    const std::uint64_t top = is_signed_use ? (1ull << (c.bits - 1)) - 1 : low_bits(~0ull, c.bits);
    const std::uint64_t b = low_bits(bound.imm, c.bits);
    return b <= top && top - b >= std::uint64_t(c.step);
  }

 private:
  std::optional<Counter> step(const Inst& sum, Counter c) const {
    if ((sum.op != Op::add && sum.op != Op::sub) || sum.has(Mod::sat) || sum.guard != kNone) return {};
    const Mod type = sum.type();
    if (is_float(type) || sum.type(1) != kNoMod || sum.operands.size() != 3) return {};
    c.bits = type_bits(type);
    if (c.bits != type_bits(u_.f.regs[c.reg].type) || c.bits < 32) return {};
    if (sum.operands[1].kind != OperandKind::reg || sum.operands[1].reg != c.reg ||
        sum.operands[2].kind != OperandKind::imm)
      return {};
    c.step = sign_extend(sum.operands[2].imm, c.bits);
    if (sum.op == Op::sub) c.step = std::int64_t(0 - std::uint64_t(c.step));
    return c;
  }

  Unit& u_;
  const Values& v_;
  const LoopForest& forest_;
  const Loop& loop_;
  std::uint32_t index_;
  std::vector<std::uint32_t> inside_;
};

/// counter * factor (+ something that the loop does not change).
struct Multiple {
  std::uint64_t factor = 0;
  int bits = 0;
  RegId of = kNone;
};

std::optional<Multiple> multiple(const Inst& i) {
  Multiple m;
  if (i.operands.size() < 3 || i.operands[1].kind != OperandKind::reg ||
      i.operands[2].kind != OperandKind::imm || is_float(i.type()) || i.has(Mod::sat) || i.has(Mod::cc))
    return std::nullopt;
  m.of = i.operands[1].reg;
  m.bits = result_bits(i);
  const int w = type_bits(i.type());
  if (i.op == Op::shl) {
    if (low_bits(i.operands[2].imm, 32) >= std::uint64_t(w)) return std::nullopt;
    m.factor = 1ull << low_bits(i.operands[2].imm, 32);
    return m;
  }
  if ((i.op != Op::mul && i.op != Op::mad) || i.has(Mod::hi)) return std::nullopt;
  m.factor =
      is_signed(i.type()) ? std::uint64_t(sign_extend(i.operands[2].imm, w)) : low_bits(i.operands[2].imm, w);
  return m;
}

std::uint64_t addresses_once(Unit& u) {
  const Values v(u);
  const LoopForest forest = find_loops(v.cfg);
  for (std::uint32_t l = std::uint32_t(forest.loops.size()); l-- > 0;) {
    const Loop& loop = forest.loops[l];
    const Entry entry(u, v, loop);
    if (!entry.possible() || unknown_inside(u, v, loop)) continue;
    const Counters counters(u, v, forest, l);
    Edit edit(u);
    std::uint64_t n = 0;
    for (BlockId b : loop.blocks)
      for (std::uint32_t i = v.cfg.blocks[b].first; i < v.cfg.blocks[b].last; ++i) {
        const Inst x = u.f.body[i];
        const RegId d = only_destination(x);
        if (d == kNone || x.guard != kNone || !is_pure(x) || u.touches_pinned(x) || !v.single(d)) continue;
        const auto m = multiple(x);
        if (!m || m->bits < 32 || type_bits(u.f.regs[d].type) != m->bits) continue;
        const auto c = counters.counter(m->of);
        if (!c || (x.operands.size() > 3 && !counters.invariant(x.operands[3]))) continue;
        if (m->bits != c->bits && !counters.stays_in_range(*c, is_signed(x.type()))) continue;
        const RegId running = u.new_register(u.f.regs[d].type);
        Inst start = x;
        start.operands[0] = Operand::of(running);
        Inst next = x;
        next.op = Op::add;
        next.mods = {m->bits == 64 ? Mod::s64 : Mod::s32};
        const std::uint64_t by = m->factor * std::uint64_t(c->step);
        next.operands = {Operand::of(running), Operand::of(running),
                         Operand::integer(sign_extend(by, m->bits))};
        Inst same = u.copy(d, running, x);
        if (!u.legal(start) || !u.legal(next) || !u.legal(same)) continue;
        entry.add(edit, std::move(start));
        edit.insert(c->changed_at, std::move(next));  // with the counter's own change, and nothing between
        u.f.body[i] = std::move(same);
        ++n;
      }
    if (n == 0) continue;
    edit.apply();
    return n;
  }
  return 0;
}

}  // namespace

std::uint64_t hoist(Unit& u) {
  std::uint64_t total = 0;
  while (!u.f.body.empty()) {
    const std::uint64_t n = hoist_once(u);
    if (n == 0) break;
    total += n;
  }
  return total;
}

std::uint64_t incremental_addresses(Unit& u) {
  std::uint64_t total = 0;
  while (!u.f.body.empty()) {
    const std::uint64_t n = addresses_once(u);
    if (n == 0) break;
    total += n;
  }
  return total;
}

}  // namespace cgp::ptx::passes
