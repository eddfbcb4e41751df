// SPDX-License-Identifier: Apache-2.0
// Common subexpressions, from dominator to dominated. A repeated computation becomes a copy, which copy
// propagation and dead code then remove. Loads: of parameters, .const and .nc everywhere, since nobody writes
// there while the kernel runs; other weak loads inside one block while nothing but pure instructions and weak
// loads lies between.
#include <algorithm>
#include <unordered_map>

#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

void put(std::string& key, std::uint64_t v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); }

void put(std::string& key, const Operand& o) {
  put(key, std::uint64_t(o.kind) | std::uint64_t(o.negated) << 8 | std::uint64_t(o.sreg) << 16);
  put(key, std::uint64_t(o.reg) << 32 | o.reg2);
  put(key, std::uint64_t(o.symbol) << 32 | o.label);
  put(key, o.imm);
  put(key, o.elems.size());
  for (const Operand& e : o.elems) put(key, e);
}

bool commutes(const Inst& i) {
  switch (i.op) {
    case Op::add:
    case Op::mul:
    case Op::mad:
    case Op::and_:
    case Op::or_:
    case Op::xor_:
    case Op::min:
    case Op::max:
      return !is_float(i.type()) && i.type(1) == kNoMod;
    default:
      return false;
  }
}

class Subexpressions {
 public:
  explicit Subexpressions(Unit& u) : u_(u), v_(u), version_(u.f.regs.size(), 0) {}

  std::uint64_t run() {
    if (u_.f.body.empty()) return 0;
    std::vector<std::vector<BlockId>> children(v_.cfg.blocks.size());
    for (BlockId b : v_.cfg.order)
      if (v_.cfg.dominator[b] != kNone) children[v_.cfg.dominator[b]].push_back(b);
    // Depth first along the dominator tree; what a block adds is taken back when its subtree is done.
    struct Visit {
      BlockId block;
      std::size_t child = 0;
      std::vector<std::string> added;
    };
    std::vector<Visit> stack;
    const auto enter = [&](BlockId b) {
      stack.push_back({b, 0, {}});
      block(b, stack.back().added);
    };
    enter(0);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.child < children[top.block].size()) {
        enter(children[top.block][top.child++]);
        continue;
      }
      for (const std::string& key : top.added) table_.erase(key);
      stack.pop_back();
    }
    return changes_;
  }

 private:
  void block(BlockId b, std::vector<std::string>& added) {
    std::vector<RegisterUse> uses;
    ++epoch_;
    ++block_;
    for (std::uint32_t i = v_.cfg.blocks[b].first; i < v_.cfg.blocks[b].last; ++i) {
      Inst& n = u_.f.body[i];
      const bool pure = is_pure(n) || is_parameter_load(u_.m, u_.f, n) || is_constant_load(n);
      const bool load = n.op == Op::ld && is_weak_access(n);
      if (pure || load) visit(n, load && !pure, added);
      if (!pure && !load) ++epoch_;
      registers_of(n, uses);
      for (const RegisterUse& use : uses)
        if (use.written) version_[use.reg] = ++clock_;
    }
  }

  bool worth(const Inst& n) const {
    if (n.op != Op::mov) return true;
    const OperandKind k = n.operands[1].kind;
    return k == OperandKind::sreg || k == OperandKind::symbol || k == OperandKind::vector;
  }

  void visit(Inst& n, bool from_memory, std::vector<std::string>& added) {
    const RegId d = only_destination(n);
    if (d == kNone || n.guard != kNone || !v_.single(d) || u_.touches_pinned(n) || !worth(n)) return;
    std::string key = key_of(n, from_memory);
    const auto [it, fresh] = table_.try_emplace(std::move(key), d);
    if (fresh) {
      added.push_back(it->first);
      return;
    }
    if (u_.f.regs[it->second].type != u_.f.regs[d].type) return;
    n = u_.copy(d, it->second, n);
    ++changes_;
  }

  std::string key_of(const Inst& n, bool from_memory) {
    std::string key;
    put(key, std::uint64_t(n.op));
    for (Mod m : n.mods) put(key, std::uint64_t(m));
    put(key, from_memory ? epoch_ : 0);
    std::vector<std::string> operands;
    Inst copy = n;
    bool local = false;
    for (std::size_t k = 1; k < n.operands.size(); ++k) {
      std::string one;
      put(one, n.operands[k]);
      operands.push_back(std::move(one));
    }
    // Registers that change: the value they have now, which is known inside this block.
    std::string versions;
    for_each_read(copy, [&](Operand& o) {
      if (o.reg == kNone || v_.single(o.reg)) return;
      local = true;
      put(versions, version_[o.reg]);
    });
    if (commutes(n) && operands.size() >= 2 && !local && operands[1] < operands[0])
      std::swap(operands[0], operands[1]);
    for (const std::string& o : operands) key += o;
    put(key, local ? block_ : 0);
    return key + versions;
  }

  Unit& u_;
  Values v_;
  std::unordered_map<std::string, RegId> table_;
  std::vector<std::uint64_t> version_;
  std::uint64_t epoch_ = 1, block_ = 0, clock_ = 0, changes_ = 0;
};

}  // namespace

std::uint64_t common_subexpressions(Unit& u) { return Subexpressions(u).run(); }

}  // namespace cgp::ptx::passes
