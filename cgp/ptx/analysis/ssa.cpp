// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/ssa.h"

#include <algorithm>

namespace cgp::ptx {
namespace {

// Blocks where the definitions of one block meet others (Cytron et al.).
std::vector<std::vector<BlockId>> dominance_frontiers(const Cfg& c) {
  std::vector<std::vector<BlockId>> out(c.blocks.size());
  for (BlockId b : c.order) {
    const auto& before = c.blocks[b].predecessors;
    if (before.size() < 2 && b != 0) continue;
    for (BlockId p : before) {
      if (!c.blocks[p].reachable) continue;
      for (BlockId r = p; r != kNone && r != c.dominator[b]; r = c.dominator[r])
        if (std::find(out[r].begin(), out[r].end(), b) == out[r].end()) out[r].push_back(b);
    }
  }
  return out;
}

class Builder {
 public:
  Builder(const Function& f, const Cfg& c, const Liveness& l) : f_(f), c_(c), l_(l) {
    s_.reads.resize(f.body.size());
    s_.writes.resize(f.body.size());
    s_.phis.resize(c.blocks.size());
    current_.assign(f.regs.size(), kNone);
  }

  Ssa run() {
    // Parameters in .reg space (old ABI) stand first in regs, after the results.
    std::size_t parameters = 0;
    s_.values.reserve(f_.regs.size() + f_.body.size());
    for (const auto* list : {&f_.returns, &f_.params})
      for (const Var& v : *list) parameters += v.space == Space::reg;
    for (std::size_t r = 0; r < f_.regs.size(); ++r)
      current_[r] =
          add({r < parameters ? Value::Kind::parameter : Value::Kind::undefined, RegId(r), 0, kNone, {}});
    entry_ = current_;
    if (c_.blocks.empty()) return std::move(s_);
    place_phis();
    rename_all();
    return std::move(s_);
  }

 private:
  ValueId add(Value v) {
    s_.values.push_back(std::move(v));
    return ValueId(s_.values.size() - 1);
  }

  void place_phis() {
    const auto frontier = dominance_frontiers(c_);
    std::vector<std::vector<BlockId>> defined(f_.regs.size());
    std::vector<RegisterUse> uses;
    for (BlockId b : c_.order)
      for (std::uint32_t i = c_.blocks[b].first; i < c_.blocks[b].last && !frontier[b].empty(); ++i) {
        registers_of(f_.body[i], uses);
        for (const RegisterUse& u : uses)
          if (u.written && (defined[u.reg].empty() || defined[u.reg].back() != b))
            defined[u.reg].push_back(b);
      }
    std::vector<std::uint32_t> has(c_.blocks.size(), kNone);
    for (RegId r = 0; r < f_.regs.size(); ++r) {
      std::vector<BlockId> open = defined[r];
      while (!open.empty()) {
        const BlockId b = open.back();
        open.pop_back();
        for (BlockId j : frontier[b]) {
          if (has[j] == r || !l_.in[j].has(r)) continue;
          has[j] = r;
          Value phi{Value::Kind::phi, r, j, kNone, {}};
          phi.inputs.assign(c_.blocks[j].predecessors.size(), kNone);
          if (j == 0) phi.inputs.push_back(entry_[r]);  // a loop to the first instruction
          s_.phis[j].push_back(add(std::move(phi)));
          open.push_back(j);
        }
      }
    }
  }

  void set(RegId r, ValueId v) {
    undo_.push_back({r, current_[r]});
    current_[r] = v;
  }

  void enter(BlockId b) {
    for (ValueId v : s_.phis[b]) set(s_.values[v].reg, v);
    std::vector<RegisterUse> uses;
    for (std::uint32_t i = c_.blocks[b].first; i < c_.blocks[b].last; ++i) {
      registers_of(f_.body[i], uses);
      for (const RegisterUse& u : uses)
        if (u.read && s_.read(i, u.reg) == kNone) s_.reads[i].push_back({u.reg, current_[u.reg]});
      for (const RegisterUse& u : uses) {
        if (!u.written) continue;
        Value v{Value::Kind::inst, u.reg, b, i, {}};
        if (f_.body[i].guard != kNone) v.inputs.push_back(current_[u.reg]);
        const ValueId id = add(std::move(v));
        s_.writes[i].push_back(id);
        set(u.reg, id);
      }
    }
    for (BlockId n : c_.blocks[b].successors) {
      const auto& before = c_.blocks[n].predecessors;
      const auto slot = std::size_t(std::find(before.begin(), before.end(), b) - before.begin());
      for (ValueId v : s_.phis[n]) s_.values[v].inputs[slot] = current_[s_.values[v].reg];
    }
  }

  void rename_all() {
    std::vector<std::vector<BlockId>> children(c_.blocks.size());
    for (BlockId b : c_.order)
      if (c_.dominator[b] != kNone) children[c_.dominator[b]].push_back(b);
    struct Frame {
      BlockId block;
      std::size_t child, undo;
    };
    std::vector<Frame> stack{{0, 0, 0}};  // explicit: dominator trees can be deep
    enter(0);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.child < children[top.block].size()) {
        const BlockId b = children[top.block][top.child++];
        stack.push_back({b, 0, undo_.size()});
        enter(b);
        continue;
      }
      for (; undo_.size() > top.undo; undo_.pop_back()) current_[undo_.back().reg] = undo_.back().value;
      stack.pop_back();
    }
  }

  const Function& f_;
  const Cfg& c_;
  const Liveness& l_;
  Ssa s_;
  std::vector<ValueId> current_, entry_;
  std::vector<Ssa::Read> undo_;
};

}  // namespace

ValueId Ssa::read(std::uint32_t inst, RegId reg) const {
  for (const Read& r : reads[inst])
    if (r.reg == reg) return r.value;
  return kNone;
}

ValueId Ssa::written(std::uint32_t inst, RegId reg) const {
  for (ValueId v : writes[inst])
    if (values[v].reg == reg) return v;
  return kNone;
}

Ssa build_ssa(const Function& f, const Cfg& c, const Liveness& l) { return Builder(f, c, l).run(); }

}  // namespace cgp::ptx
