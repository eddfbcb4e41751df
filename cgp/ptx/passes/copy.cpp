// SPDX-License-Identifier: Apache-2.0
// Copy propagation: after `mov d, s` a read of d reads s, as long as neither has changed.
#include <unordered_map>

#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

/// s may stand wherever d may: the ISA compares the declared types.
bool interchangeable(Mod d, Mod s) {
  if (d == s) return true;
  if (type_bits(d) != type_bits(s) || is_float(d)) return false;
  return !is_float(s);  // .u32, .s32 and .b32 take each other's places; legal() has the last word
}

class Copies {
 public:
  explicit Copies(Unit& u) : u_(u), v_(u), of_(u.f.regs.size(), kNone) {}

  std::uint64_t run() {
    find_single();
    for (BlockId b : v_.cfg.order) block(v_.cfg.blocks[b]);
    return changes_;
  }

 private:
  bool usable(const Inst& i) const {
    if (!is_move_of_register(i) || i.guard != kNone) return false;
    const RegId d = i.operands[0].reg, s = i.operands[1].reg;
    return d != s && !u_.pinned(d) && !u_.pinned(s) && interchangeable(u_.f.regs[d].type, u_.f.regs[s].type);
  }

  // Both have one value wherever they are read: holds everywhere.
  void find_single() {
    for (BlockId b : v_.cfg.order)
      for (std::uint32_t i = v_.cfg.blocks[b].first; i < v_.cfg.blocks[b].last; ++i) {
        const Inst& n = u_.f.body[i];
        if (!usable(n)) continue;
        const RegId d = n.operands[0].reg, s = n.operands[1].reg;
        if (v_.single(d) && v_.single(s)) of_[d] = of_[s] == kNone ? s : of_[s];
      }
  }

  void block(const Block& b) {
    std::unordered_map<RegId, RegId> here;
    std::vector<RegisterUse> uses;
    for (std::uint32_t i = b.first; i < b.last; ++i) {
      Inst& n = u_.f.body[i];
      rewrite(n, here);
      registers_of(n, uses);
      for (const RegisterUse& use : uses) {
        if (!use.written) continue;
        here.erase(use.reg);
        for (auto it = here.begin(); it != here.end();)
          it = it->second == use.reg ? here.erase(it) : std::next(it);
      }
      if (usable(n)) here[n.operands[0].reg] = n.operands[1].reg;
    }
  }

  void rewrite(Inst& n, const std::unordered_map<RegId, RegId>& here) {
    if (n.op == Op::call) return;  // parameters in registers are checked against the callee's declaration
    const auto original = [&](RegId r) {
      if (const auto it = here.find(r); it != here.end()) return it->second;
      return of_[r];
    };
    if (n.guard != kNone && original(n.guard) != kNone) {
      n.guard = original(n.guard);
      ++changes_;
    }
    for_each_read(n, [&](Operand& o) {
      if (o.reg == kNone || o.reg2 != kNone || original(o.reg) == kNone) return;
      const RegId was = o.reg;
      o.reg = original(was);
      if (u_.legal(n))
        ++changes_;
      else
        o.reg = was;
    });
  }

  Unit& u_;
  Values v_;
  std::vector<RegId> of_;
  std::uint64_t changes_ = 0;
};

}  // namespace

std::uint64_t copy_propagation(Unit& u) { return Copies(u).run(); }

}  // namespace cgp::ptx::passes
