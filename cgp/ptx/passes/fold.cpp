// SPDX-License-Identifier: Apache-2.0
// Constants: operands that are known, instructions of constants, neutral elements, sums of sums, offsets of
// addresses, guards and branches that always go one way.
#include "cgp/ptx/passes/evaluate.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

constexpr std::int64_t kLargestOffset = 1 << 22;  // what every memory instruction encodes

class Folder {
 public:
  explicit Folder(Unit& u) : u_(u), v_(u), edit_(u), known_(u.f.regs.size()) {}

  std::uint64_t run() {
    for (BlockId b : v_.cfg.order)
      for (std::uint32_t i = v_.cfg.blocks[b].first; i < v_.cfg.blocks[b].last; ++i) visit(i);
    edit_.apply();
    return changes_;
  }

 private:
  std::optional<std::uint64_t> literal(const Operand& o, const Inst& in) const {
    const bool wide = type_bits(in.type()) == 64;
    switch (o.kind) {
      case OperandKind::imm:
        return o.imm;
      case OperandKind::f32_imm:
        if (wide && in.op != Op::cvt) return std::nullopt;
        return o.imm;
      case OperandKind::f64_imm:
        if (!wide && in.op != Op::cvt) return std::nullopt;
        return o.imm;
      case OperandKind::reg:
        if (o.reg == kNone || o.reg2 != kNone || !v_.single(o.reg)) return std::nullopt;
        return known_[o.reg];
      default:
        return std::nullopt;
    }
  }

  void visit(std::uint32_t at) {
    Inst& i = u_.f.body[at];
    if (!guard(at, i)) return;
    if (i.op == Op::mov && is_literal(i.operands.back())) {
      note(i);
      return;
    }
    if (is_pure(i)) {
      if (evaluate_whole(i)) return;
      substitute(i);
      simplify(i);
      note(i);
    } else if (i.op == Op::st && is_weak_access(i) && i.operands[1].kind == OperandKind::reg) {
      substitute_operand(i, 1);
    }
    offsets(i);
  }

  /// False when the instruction never runs.
  bool guard(std::uint32_t at, Inst& i) {
    if (i.guard == kNone || !v_.single(i.guard) || !known_[i.guard]) return true;
    ++changes_;
    if ((*known_[i.guard] != 0) != i.guard_negated) {
      i.guard = kNone;
      i.guard_negated = false;
      return true;
    }
    edit_.erase(at);
    return false;
  }

  void note(const Inst& i) {
    const RegId d = only_destination(i);
    if (i.op != Op::mov || d == kNone || !v_.single(d) || i.guard != kNone) return;
    if (!is_literal(i.operands[1]) || type_bits(u_.f.regs[d].type) != type_bits(i.type())) return;
    if (auto bits = literal(i.operands[1], i)) known_[d] = low_bits(*bits, type_bits(i.type()));
  }

  bool replace(Inst& i, Inst by) {
    if (!u_.legal(by)) return false;
    i = std::move(by);
    ++changes_;
    note(i);
    return true;
  }

  bool evaluate_whole(Inst& i) {
    const RegId d = only_destination(i);
    if (d == kNone || u_.pinned(d) || result_bits(i) != type_bits(u_.f.regs[d].type)) return false;
    const auto bits = evaluate(i, [&](const Operand& o) { return literal(o, i); });
    return bits && replace(i, u_.constant(d, *bits, i));
  }

  // Registers that are known become literals where the instruction takes them.
  void substitute(Inst& i) {
    if (i.op == Op::mov && i.operands[1].kind == OperandKind::vector) return;
    for (std::size_t k = 0; k < i.operands.size(); ++k)
      if (i.operands[k].kind == OperandKind::reg && !writes_operand(i, k)) substitute_operand(i, k);
  }

  void substitute_operand(Inst& i, std::size_t k) {
    const Operand was = i.operands[k];
    if (was.negated || was.reg == kNone || was.reg2 != kNone || !v_.single(was.reg) || !known_[was.reg])
      return;
    const std::uint64_t bits = *known_[was.reg];
    const int w = type_bits(u_.f.regs[was.reg].type);
    if ((i.op == Op::div || i.op == Op::rem) && bits == 0) return;
    if (w == 1) return;
    Operand as_float, as_integer = Operand::integer(std::int64_t(bits));
    as_float.kind = w == 64 ? OperandKind::f64_imm : OperandKind::f32_imm;
    as_float.imm = bits;
    // A sign-extended spelling reads better and means the same.
    if (is_signed(i.type()) && w <= type_bits(i.type())) as_integer.imm = std::uint64_t(sign_extend(bits, w));
    const Mod type = i.op == Op::cvt ? i.type(1) : i.type(0);
    if (is_float(type) && type_bits(type) != w) return;
    i.operands[k] = is_float(type) && w >= 32 ? as_float : as_integer;
    if (!u_.legal(i))
      i.operands[k] = was;
    else
      ++changes_;
  }

  // ------------------------------------------------------------ neutral elements
  bool to_operand(Inst& i, std::size_t k) {
    const RegId d = only_destination(i);
    const Operand& o = i.operands[k];
    if (is_literal(o)) {
      const auto bits = literal(o, i);
      return bits && replace(i, u_.constant(d, *bits, i));
    }
    if (o.kind != OperandKind::reg || o.negated || u_.pinned(o.reg) ||
        type_bits(u_.f.regs[o.reg].type) != type_bits(u_.f.regs[d].type))
      return false;
    return replace(i, u_.copy(d, o.reg, i));
  }
  bool to_constant(Inst& i, std::uint64_t bits) {
    return replace(i, u_.constant(only_destination(i), bits, i));
  }
  bool drop_operand(Inst& i, Op op, std::size_t k) {
    Inst by = i;
    by.op = op;
    by.operands.erase(by.operands.begin() + std::ptrdiff_t(k));
    if (op == Op::add) by.mods = {i.type()};
    return replace(i, std::move(by));
  }

  void simplify(Inst& i) {
    const RegId d = only_destination(i);
    const Mod type = i.type();
    if (d == kNone || u_.pinned(d) || is_float(type) || i.type(1) != kNoMod || i.operands.size() < 3) return;
    const int w = type_bits(type);
    if (w > 64 || result_bits(i) != type_bits(u_.f.regs[d].type)) return;
    const std::uint64_t ones = low_bits(~0ull, w);
    const auto is = [&](std::size_t k, std::uint64_t v) {
      const Operand& o = i.operands[k];
      return o.kind == OperandKind::imm && low_bits(o.imm, w) == v;
    };
    const bool same = i.operands[1].kind == OperandKind::reg && i.operands[2].kind == OperandKind::reg &&
                      i.operands[1].reg == i.operands[2].reg &&
                      i.operands[1].negated == i.operands[2].negated;
    switch (i.op) {
      case Op::add:
        if (i.has(Mod::sat)) return;
        if (is(2, 0)) return void(to_operand(i, 1));
        if (is(1, 0)) return void(to_operand(i, 2));
        return sum_of_sum(i);
      case Op::sub:
        if (i.has(Mod::sat)) return;
        if (is(2, 0)) return void(to_operand(i, 1));
        if (same) return void(to_constant(i, 0));
        return sum_of_sum(i);
      case Op::mul:
        if (is(1, 0) || is(2, 0)) return void(to_constant(i, 0));
        if (!i.has(Mod::lo)) return;
        if (is(2, 1)) return void(to_operand(i, 1));
        if (is(1, 1)) return void(to_operand(i, 2));
        return;
      case Op::mad:
        return multiply_add(i, is);
      case Op::and_:
        if (is(1, 0) || is(2, 0)) return void(to_constant(i, 0));
        if (is(2, ones) || same) return void(to_operand(i, 1));
        if (is(1, ones)) return void(to_operand(i, 2));
        return;
      case Op::or_:
        if (is(1, ones) || is(2, ones)) return void(to_constant(i, ones));
        if (is(2, 0) || same) return void(to_operand(i, 1));
        if (is(1, 0)) return void(to_operand(i, 2));
        return;
      case Op::xor_:
        if (same) return void(to_constant(i, 0));
        if (is(2, 0)) return void(to_operand(i, 1));
        if (is(1, 0)) return void(to_operand(i, 2));
        return;
      case Op::shl:
      case Op::shr:
        if (i.operands[2].kind == OperandKind::imm && low_bits(i.operands[2].imm, 32) == 0) to_operand(i, 1);
        return;
      case Op::div:
        if (is(2, 1)) to_operand(i, 1);
        return;
      case Op::rem:
        if (is(2, 1)) to_constant(i, 0);
        return;
      case Op::selp:
        return select(i, same);
      default:
        return;
    }
  }

  template <class Is>
  void multiply_add(Inst& i, const Is& is) {
    if (i.has(Mod::sat)) return;
    const bool wide = i.has(Mod::wide);
    if (is(1, 0) || is(2, 0)) return void(to_operand(i, 3));
    if (i.operands[3].kind == OperandKind::imm && i.operands[3].imm == 0) {
      Inst by = i;
      by.op = Op::mul;
      by.operands.pop_back();
      return void(replace(i, std::move(by)));
    }
    if (!wide && i.has(Mod::lo)) {
      if (is(2, 1)) return void(drop_operand(i, Op::add, 2));
      if (is(1, 1)) return void(drop_operand(i, Op::add, 1));
    }
    if (i.operands[1].kind != OperandKind::imm || i.operands[2].kind != OperandKind::imm) return;
    Inst product = i;
    product.op = Op::mul;
    product.operands.pop_back();
    const auto bits = evaluate(product, [&](const Operand& o) { return literal(o, i); });
    if (!bits) return;
    Inst by = i;
    by.op = Op::add;
    const int w = result_bits(i);
    by.mods = {wide ? (w == 64 ? Mod::u64 : Mod::u32) : i.type()};
    by.operands = {i.operands[0], i.operands[3], Operand::integer(sign_extend(*bits, w))};
    replace(i, std::move(by));
  }

  void select(Inst& i, bool same) {
    if (same) return void(to_operand(i, 1));
    const Operand& p = i.operands[3];
    if (p.kind != OperandKind::reg || !v_.single(p.reg) || !known_[p.reg]) return;
    to_operand(i, ((*known_[p.reg] != 0) != p.negated) ? 1 : 2);
  }

  /// The literal that x = base + literal adds, when x is such a sum of one that never changes.
  std::optional<std::int64_t> added(RegId x, int w, RegId& base) const {
    const Inst* s = v_.pure(x);
    if (!s || (s->op != Op::add && s->op != Op::sub) || s->has(Mod::sat) || s->type(1) != kNoMod) return {};
    if (is_float(s->type()) || type_bits(s->type()) != w || s->operands.size() != 3) return {};
    const Operand &a = s->operands[1], &b = s->operands[2];
    if (a.kind != OperandKind::reg || b.kind != OperandKind::imm || !v_.single(a.reg)) return {};
    if (a.reg == x) return {};
    base = a.reg;
    const std::int64_t by = sign_extend(b.imm, w);
    return s->op == Op::sub ? std::int64_t(0 - std::uint64_t(by)) : by;
  }

  void sum_of_sum(Inst& i) {
    const int w = type_bits(i.type());
    if (w < 32 || i.operands[1].kind != OperandKind::reg || i.operands[2].kind != OperandKind::imm) return;
    RegId base = kNone;
    const auto inner = added(i.operands[1].reg, w, base);
    if (!inner) return;
    std::uint64_t by = i.operands[2].imm;
    if (i.op == Op::sub) by = 0 - by;
    Inst n = i;
    n.op = Op::add;
    n.operands[1] = Operand::of(base);
    n.operands[2] = Operand::integer(sign_extend(low_bits(by + std::uint64_t(*inner), w), w));
    replace(i, std::move(n));
  }

  void offsets(Inst& i) {
    switch (i.op) {
      case Op::ld:
      case Op::st:
      case Op::atom:
      case Op::red:
      case Op::ldmatrix:
      case Op::cp_async:
        break;
      default:
        return;
    }
    for (Operand& o : i.operands) {
      // A sum of 32 bits may wrap where the sum of the address does not.
      if (o.kind != OperandKind::address || o.reg == kNone || !o.elems.empty()) continue;
      if (type_bits(u_.f.regs[o.reg].type) != 64) continue;
      RegId base = kNone;
      const auto by = added(o.reg, 64, base);
      if (!by || *by < -kLargestOffset || *by > kLargestOffset) continue;
      const std::int64_t sum = *by + std::int64_t(o.imm);
      if (sum < -kLargestOffset || sum > kLargestOffset || u_.pinned(base)) continue;
      const Operand was = o;
      o.reg = base;
      o.imm = std::uint64_t(sum);
      if (!u_.legal(i))
        o = was;
      else
        ++changes_;
    }
  }

  Unit& u_;
  Values v_;
  Edit edit_;
  std::vector<std::optional<std::uint64_t>> known_;
  std::uint64_t changes_ = 0;
};

}  // namespace

std::uint64_t fold(Unit& u) { return Folder(u).run(); }

}  // namespace cgp::ptx::passes
