// SPDX-License-Identifier: Apache-2.0
// If-conversion. A branch around a few cheap pure instructions goes away: what only they use is computed
// always, what the code after them sees is selected, or written under the branch's predicate. Never around
// memory, barriers, calls, asynchronous or warp-wide instructions: those are not pure.
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

class Converter {
 public:
  explicit Converter(Unit& u) : u_(u), v_(u), live_(liveness(u.f, v_.cfg)), edit_(u) {}

  std::uint64_t run() {
    std::uint64_t n = 0;
    for (BlockId b = 0; b + 1 < v_.cfg.blocks.size(); ++b)
      if (v_.cfg.blocks[b].reachable && !used(b) && !used(b + 1) && convert(b)) ++n;
    edit_.apply();
    return n;
  }

 private:
  bool used(BlockId b) const { return b < done_.size() && done_[b]; }
  void use(BlockId b) {
    if (done_.size() <= b) done_.resize(b + 1, false);
    done_[b] = true;
  }

  bool only_from(BlockId b, BlockId from) const {
    const auto& p = v_.cfg.blocks[b].predecessors;
    return p.size() == 1 && p[0] == from;
  }
  std::uint32_t target(const Inst& bra) const { return u_.f.labels[bra.operands[0].label].position; }

  bool pragma_inside(std::uint32_t first, std::uint32_t last) const {
    for (const Pragma& p : u_.f.body_pragmas)
      if (p.position >= first && p.position < last) return true;
    return false;
  }

  static bool cheap(const Inst& i) {
    switch (i.op) {
      case Op::div:
      case Op::rem:
      case Op::sqrt:
      case Op::rsqrt:
      case Op::rcp:
      case Op::sin:
      case Op::cos:
      case Op::lg2:
      case Op::ex2:
      case Op::tanh:
      case Op::fns:
        return false;
      default:
        return i.type() != Mod::f64;
    }
  }

  // The instructions [first, last) may run for everybody, or under the predicate p.
  bool suitable(std::uint32_t first, std::uint32_t last, RegId p) const {
    if (last - first > std::uint32_t(u_.options.convert_instructions)) return false;
    for (std::uint32_t i = first; i < last; ++i) {
      const Inst& n = u_.f.body[i];
      const RegId d = only_destination(n);
      if (!is_pure(n) || n.guard != kNone || d == kNone || d == p || u_.touches_pinned(n) || !cheap(n))
        return false;
    }
    return true;
  }

  // The instruction runs where p (negated: !p) holds.
  void guard(std::uint32_t at, RegId p, bool negated, const RegisterSet& after) {
    Inst& n = u_.f.body[at];
    const RegId d = n.operands[0].reg;
    if (v_.single(d)) return;  // read only behind it, so computing it always harms nobody
    const int w = type_bits(u_.f.regs[d].type);
    if (n.op == Op::mov && n.operands[1].kind != OperandKind::vector && w >= 16 && w <= 64 && after.has(d)) {
      Inst s = n;
      s.op = Op::selp;
      s.mods = {w == 16 ? Mod::b16 : w == 32 ? Mod::b32 : Mod::b64};
      s.operands = {n.operands[0], n.operands[1], Operand::of(d), Operand::of(p)};
      if (negated) std::swap(s.operands[1], s.operands[2]);
      if (u_.legal(s)) {
        n = std::move(s);
        return;
      }
    }
    n.guard = p;
    n.guard_negated = negated;
  }

  bool convert(BlockId b) {
    const Block& block = v_.cfg.blocks[b];
    const std::uint32_t branch = block.last - 1;
    const Inst& bra = u_.f.body[branch];
    if (bra.op != Op::bra || bra.guard == kNone || u_.pinned(bra.guard)) return false;
    const RegId p = bra.guard;
    const bool taken_if_false = bra.guard_negated;
    const Block& then = v_.cfg.blocks[b + 1];
    if (then.first != block.last || !only_from(b + 1, b)) return false;
    const std::uint32_t to = target(bra);
    if (to == then.last) {  // a triangle
      const Inst& last = u_.f.body[then.last - 1];
      if (!is_jump(last.op) && b + 2 < v_.cfg.blocks.size()) return triangle(branch, then, p, taken_if_false);
    }
    return diamond(b, branch, then, to, p, taken_if_false);
  }

  bool triangle(std::uint32_t branch, const Block& then, RegId p, bool taken_if_false) {
    if (!suitable(then.first, then.last, p) || pragma_inside(branch, then.last)) return false;
    const BlockId join = v_.cfg.block_of[then.last];
    for (std::uint32_t i = then.first; i < then.last; ++i) guard(i, p, !taken_if_false, live_.in[join]);
    edit_.erase(branch);
    use(v_.cfg.block_of[branch]);
    use(v_.cfg.block_of[then.first]);
    return true;
  }

  bool diamond(BlockId b, std::uint32_t branch, const Block& then, std::uint32_t to, RegId p,
               bool taken_if_false) {
    if (b + 3 >= v_.cfg.blocks.size()) return false;
    const Inst& leave = u_.f.body[then.last - 1];
    const Block& other = v_.cfg.blocks[b + 2];
    if (leave.op != Op::bra || leave.guard != kNone || to != then.last || other.first != then.last ||
        !only_from(b + 2, b) || used(b + 2) || target(leave) != other.last)
      return false;
    if (is_jump(u_.f.body[other.last - 1].op) || !suitable(then.first, then.last - 1, p) ||
        !suitable(other.first, other.last, p) || pragma_inside(branch, other.last))
      return false;
    // What one side writes, the other must not read: after conversion both run, one after the other. Guards
    // take care of that, except where a result is computed for everybody; those are read on one side only.
    const BlockId join = v_.cfg.block_of[other.last];
    for (std::uint32_t i = then.first; i + 1 < then.last; ++i) guard(i, p, !taken_if_false, live_.in[join]);
    for (std::uint32_t i = other.first; i < other.last; ++i) guard(i, p, taken_if_false, live_.in[join]);
    edit_.erase(branch);
    edit_.erase(then.last - 1);
    use(b);
    use(b + 1);
    use(b + 2);
    return true;
  }

  Unit& u_;
  Values v_;
  Liveness live_;
  Edit edit_;
  std::vector<bool> done_;
};

}  // namespace

std::uint64_t convert_branches(Unit& u) { return u.f.body.empty() ? 0 : Converter(u).run(); }

}  // namespace cgp::ptx::passes
