// SPDX-License-Identifier: Apache-2.0
// Full unrolling. The number of trips is found by running the few instructions that the loop's test depends
// on, exactly as the machine would; a loop whose test depends on anything else stays.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "cgp/ptx/loops.h"
#include "cgp/ptx/passes/evaluate.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

/// A loop whose instructions stand together: [first, last), entered at first, the only way back at last - 1.
struct Counted {
  std::uint32_t first = 0, last = 0;
  std::uint32_t test = 0;     ///< the branch that decides; last - 1 or in the header
  bool at_bottom = false;     ///< the test is the way back, else it leaves from the header
  std::uint32_t exit_to = 0;  ///< where the test at the top goes
  int trips = 0;              ///< times the test is passed and the loop goes on (top), or bodies run (bottom)
};

class Unroller {
 public:
  explicit Unroller(Unit& u) : u_(u), v_(u), forest_(find_loops(v_.cfg)) {}

  bool one() {
    for (std::size_t l = forest_.loops.size(); l-- > 0;) {  // inner ones first
      Counted c;
      if (!shape(forest_.loops[l], c) || !trips(forest_.loops[l], std::uint32_t(l), c)) continue;
      const std::uint64_t size = std::uint64_t(c.last - c.first) * std::uint64_t(c.trips + !c.at_bottom);
      if (c.trips > u_.options.unroll_trips || size > std::uint64_t(u_.options.unroll_instructions)) continue;
      replicate(c);
      return true;
    }
    return false;
  }

 private:
  const Inst& at(std::uint32_t i) const { return u_.f.body[i]; }
  std::uint32_t target(const Inst& bra) const { return u_.f.labels[bra.operands[0].label].position; }

  bool shape(const Loop& loop, Counted& c) const {
    const auto& blocks = v_.cfg.blocks;
    if (loop.latches.size() != 1) return false;
    c.first = blocks[loop.header].first;
    c.last = blocks[loop.blocks.back()].last;
    if (loop.blocks.front() != loop.header || loop.latches[0] != loop.blocks.back()) return false;
    for (std::size_t k = 1; k < loop.blocks.size(); ++k)
      if (blocks[loop.blocks[k]].first != blocks[loop.blocks[k - 1]].last) return false;
    for (std::uint32_t i = c.first; i < c.last; ++i) {
      const Op op = at(i).op;
      if (op == Op::brx_idx || op == Op::call || op == Op::alloca || op == Op::stacksave ||
          op == Op::stackrestore)
        return false;
      const Family family = ptx::family(op);
      if (family == Family::wgmma || family == Family::tcgen05) return false;
    }
    for (const Table& t : u_.f.tables)
      for (LabelId l : t.labels)
        if (u_.f.labels[l].position >= c.first && u_.f.labels[l].position < c.last) return false;
    for (const Pragma& p : u_.f.body_pragmas)  // "nounroll" among them
      if (p.position >= c.first && p.position <= c.last) return false;
    // Nobody jumps into the middle (natural loops have one entry), and the way back is a plain branch.
    const Inst& back = at(c.last - 1);
    if (back.op != Op::bra || target(back) != c.first) return false;
    if (back.guard != kNone) {
      c.at_bottom = true;
      c.test = c.last - 1;
      return true;
    }
    const std::uint32_t top = blocks[loop.header].last - 1;
    const Inst& leave = at(top);
    if (leave.op != Op::bra || leave.guard == kNone || top == c.last - 1) return false;
    c.exit_to = target(leave);
    if (c.exit_to >= c.first && c.exit_to < c.last) return false;
    c.test = top;
    return true;
  }

  // ------------------------------------------------------------ number of trips
  // The instructions in the loop that the register depends on, each of which runs once per trip.
  bool slice(const Loop& loop, std::uint32_t index, RegId r, std::vector<std::uint32_t>& out) const {
    if (std::find(visited_.begin(), visited_.end(), r) != visited_.end()) return true;
    visited_.push_back(r);
    std::vector<RegisterUse> uses;
    for (BlockId b : loop.blocks)
      for (std::uint32_t i = v_.cfg.blocks[b].first; i < v_.cfg.blocks[b].last; ++i) {
        registers_of(at(i), uses);
        const bool writes =
            std::any_of(uses.begin(), uses.end(), [&](const auto& u) { return u.written && u.reg == r; });
        if (!writes) continue;
        if (only_destination(at(i)) != r || at(i).guard != kNone || !is_pure(at(i)) || u_.pinned(r) ||
            forest_.innermost[b] != index || !v_.dominates(b, loop.latches[0]) ||
            result_bits(at(i)) != type_bits(u_.f.regs[r].type))
          return false;
        if (std::find(out.begin(), out.end(), i) == out.end()) out.push_back(i);
        if (out.size() > 16) return false;
        for (const RegisterUse& u : uses)
          if (u.read && !slice(loop, index, u.reg, out)) return false;
      }
    return true;
  }

  // The constant that the register holds whenever the loop is entered: found on the only way there.
  std::optional<std::uint64_t> on_entry(const Loop& loop, RegId r) const {
    if (u_.pinned(r)) return std::nullopt;
    if (v_.single(r) && !loop.contains(v_.cfg.block_of[v_.definition(r)])) return constant(v_.definer(r), r);
    BlockId b = kNone;
    for (BlockId p : v_.cfg.blocks[loop.header].predecessors)
      if (!loop.contains(p)) {
        if (b != kNone) return std::nullopt;
        b = p;
      }
    std::vector<RegisterUse> uses;
    for (int steps = 0; b != kNone && steps < 64; ++steps) {
      for (std::uint32_t i = v_.cfg.blocks[b].last; i-- > v_.cfg.blocks[b].first;) {
        registers_of(at(i), uses);
        for (const RegisterUse& u : uses)
          if (u.written && u.reg == r) return constant(at(i), r);
      }
      const auto& before = v_.cfg.blocks[b].predecessors;
      b = before.size() == 1 ? before[0] : kNone;
    }
    return std::nullopt;
  }

  std::optional<std::uint64_t> constant(const Inst& i, RegId r) const {
    const int w = type_bits(u_.f.regs[r].type);
    if (i.op != Op::mov || i.guard != kNone || only_destination(i) != r || !is_literal(i.operands[1]) ||
        type_bits(i.type()) != w)
      return std::nullopt;
    return low_bits(i.operands[1].imm, w);
  }

  bool trips(const Loop& loop, std::uint32_t index, Counted& c) const {
    const RegId p = at(c.test).guard;
    const bool negated = at(c.test).guard_negated;
    std::vector<std::uint32_t> run;
    visited_.clear();
    if (!slice(loop, index, p, run) || run.empty()) return false;
    std::sort(run.begin(), run.end());
    // Their order in the text must be the order in which they run: blocks that all dominate the way back.
    for (std::size_t k = 1; k < run.size(); ++k)
      if (!v_.precedes(run[k - 1], run[k])) return false;
    std::unordered_map<RegId, std::uint64_t> now;
    for (RegId r : visited_)
      if (const auto v = on_entry(loop, r)) now[r] = *v;
    const auto value = [&](const Operand& o) -> std::optional<std::uint64_t> {
      if (o.kind == OperandKind::imm) return o.imm;
      if (o.kind != OperandKind::reg || o.reg2 != kNone) return std::nullopt;
      const auto it = now.find(o.reg);
      if (it == now.end()) return std::nullopt;
      return it->second;
    };
    for (c.trips = c.at_bottom ? 1 : 0; c.trips <= u_.options.unroll_trips; ++c.trips) {
      std::optional<bool> taken;
      for (std::uint32_t i : run) {
        if (i > c.test && !taken) {
          const auto it = now.find(p);
          if (it == now.end()) return false;
          taken = (it->second != 0) != negated;
          if (*taken) break;  // at the top: leaves
        }
        const auto v = evaluate(at(i), value);
        if (!v) return false;
        now[only_destination(at(i))] = *v;
      }
      if (!taken) {
        const auto it = now.find(p);
        if (it == now.end()) return false;
        taken = (it->second != 0) != negated;
      }
      if (*taken != c.at_bottom) return true;
    }
    return false;
  }

  // ------------------------------------------------------------ copies
  void replicate(const Counted& c) {
    Edit edit(u_);
    std::vector<std::pair<LabelId, std::uint32_t>> inside;  // labels of the loop, offset from its first
    for (LabelId l = 0; l < u_.f.labels.size(); ++l) {
      const std::uint32_t p = u_.f.labels[l].position;
      if (p > c.first && p < c.last) inside.emplace_back(l, p - c.first);
    }
    const std::vector<Inst> original(u_.f.body.begin() + c.first, u_.f.body.begin() + c.last);
    const std::size_t labels_before = u_.f.labels.size();
    std::vector<Inst> text;
    std::vector<std::pair<LabelId, std::uint32_t>> placed;  // new labels, offset in `text`
    const auto append = [&](std::uint32_t last) {           // one copy of [c.first, last), without the test
      std::unordered_map<LabelId, LabelId> renamed;
      for (const auto& [label, offset] : inside)
        if (offset < last - c.first) renamed[label] = u_.new_label();
      for (std::uint32_t k = 0; k < last - c.first; ++k) {
        for (const auto& [label, offset] : inside)
          if (offset == k && renamed.count(label))
            placed.emplace_back(renamed[label], std::uint32_t(text.size()));
        if (c.first + k == c.test || c.first + k == c.last - 1) continue;
        text.push_back(original[k]);
        for (Operand& o : text.back().operands)
          if (o.kind == OperandKind::label)
            if (const auto it = renamed.find(o.label); it != renamed.end()) o.label = it->second;
      }
    };
    for (int t = 0; t < c.trips; ++t) append(c.last);
    if (!c.at_bottom) {
      append(c.test);
      Inst leave = original[c.test - c.first];
      leave.guard = kNone;
      leave.guard_negated = false;
      text.push_back(std::move(leave));
    }
    for (std::uint32_t i = c.first; i < c.last; ++i) edit.erase(i);
    for (Inst& n : text) edit.insert(c.first, std::move(n));
    for (std::size_t l = labels_before; l < u_.f.labels.size(); ++l) u_.f.labels[l].position = kNone;
    edit.apply();
    for (const auto& [label, offset] : placed) u_.f.labels[label].position = c.first + offset;
  }

  Unit& u_;
  Values v_;
  LoopForest forest_;
  mutable std::vector<RegId> visited_;
};

}  // namespace

std::uint64_t unroll(Unit& u) {
  std::uint64_t n = 0;
  while (!u.f.body.empty() && Unroller(u).one()) ++n;
  return n;
}

}  // namespace cgp::ptx::passes
