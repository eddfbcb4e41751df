// SPDX-License-Identifier: Apache-2.0
// Cheaper instructions with the same result: powers of two; one instruction for a product and a sum.
#include <bit>

#include "cgp/ptx/passes/evaluate.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

Mod bits_of(int w) { return w == 16 ? Mod::b16 : w == 32 ? Mod::b32 : Mod::b64; }
Mod unsigned_of(int w) { return w == 16 ? Mod::u16 : w == 32 ? Mod::u32 : Mod::u64; }
Mod signed_of(int w) { return w == 16 ? Mod::s16 : w == 32 ? Mod::s32 : Mod::s64; }

class Reducer {
 public:
  Reducer(Unit& u, bool powers, bool sums) : u_(u), v_(u), edit_(u), powers_(powers), sums_(sums) {}

  std::uint64_t run() {
    for (BlockId b : v_.cfg.order)
      for (std::uint32_t i = v_.cfg.blocks[b].first; i < v_.cfg.blocks[b].last; ++i) visit(i);
    edit_.apply();
    return changes_;
  }

 private:
  void visit(std::uint32_t at) {
    const Inst& i = u_.f.body[at];
    const RegId d = only_destination(i);
    const Mod type = i.type();
    if (d == kNone || !is_pure(i) || is_float(type) || i.type(1) != kNoMod || u_.touches_pinned(i)) return;
    switch (i.op) {
      case Op::add:
        if (sums_) sum(at);
        return;
      case Op::mul:
      case Op::div:
      case Op::rem:
        if (powers_) power(at);
        return;
      default:
        return;
    }
  }

  // ------------------------------------------------------------ powers of two
  void power(std::uint32_t at) {
    Inst& i = u_.f.body[at];
    const int w = type_bits(i.type());
    std::size_t x = 1, c = 2;
    if (i.op == Op::mul) {
      if (!i.has(Mod::lo)) return;
      if (i.operands[1].kind == OperandKind::imm) std::swap(x, c);
    }
    if (i.operands[c].kind != OperandKind::imm || i.operands[x].kind != OperandKind::reg) return;
    const std::uint64_t v = low_bits(i.operands[c].imm, w);
    if (!std::has_single_bit(v) || v == 1) return;
    const int k = std::countr_zero(v);
    const Operand value = i.operands[x];
    const bool s = is_signed(i.type());
    if (i.op == Op::mul) return replace(i, Op::shl, {bits_of(w)}, {value, Operand::integer(k)});
    if (!s && i.op == Op::div) return replace(i, Op::shr, {unsigned_of(w)}, {value, Operand::integer(k)});
    if (!s) return replace(i, Op::and_, {bits_of(w)}, {value, Operand::integer(std::int64_t(v - 1))});
    if (k < w - 1) signed_power(at, value, w, k);  // the most negative number is no power of two
  }

  void replace(Inst& i, Op op, Mods mods, std::vector<Operand> sources) {
    Inst n = i;
    n.op = op;
    n.mods = mods;
    n.operands.resize(1);
    for (Operand& o : sources) n.operands.push_back(std::move(o));
    if (!u_.legal(n)) return;
    i = std::move(n);
    ++changes_;
  }

  // Quotients round towards zero: negative numbers first get 2^k - 1 added.
  void signed_power(std::uint32_t at, const Operand& value, int w, int k) {
    Inst& i = u_.f.body[at];
    const Mod declared = u_.f.regs[i.operands[0].reg].type;
    const Mod temporary = is_float(declared) ? bits_of(w) : declared;
    std::vector<Inst> before;
    const auto step = [&](Op op, Mod type, Operand a, Operand b) {
      Inst n;
      n.op = op;
      n.mods = {type};
      n.loc = i.loc;
      n.ptx_line = i.ptx_line;
      n.operands = {Operand::of(u_.new_register(temporary)), std::move(a), std::move(b)};
      before.push_back(n);
      return n.operands[0];
    };
    const Operand sign = step(Op::shr, signed_of(w), value, Operand::integer(w - 1));
    const Operand bias = step(Op::shr, unsigned_of(w), sign, Operand::integer(w - k));
    const Operand sum = step(Op::add, signed_of(w), value, bias);
    Inst last = i;
    if (i.op == Op::div) {
      last.op = Op::shr;
      last.mods = {signed_of(w)};
      last.operands = {i.operands[0], sum, Operand::integer(k)};
    } else {
      const std::uint64_t mask = low_bits(~((1ull << k) - 1), w);
      const Operand multiple = step(Op::and_, bits_of(w), sum, Operand::integer(sign_extend(mask, w)));
      last.op = Op::sub;
      last.mods = {signed_of(w)};
      last.operands = {i.operands[0], value, multiple};
    }
    for (const Inst& n : before)
      if (!u_.legal(n)) return;
    if (!u_.legal(last)) return;
    for (Inst& n : before) edit_.insert(at, std::move(n));
    i = std::move(last);
    ++changes_;
  }

  // ------------------------------------------------------------ mul + add
  void sum(std::uint32_t at) {
    Inst& i = u_.f.body[at];
    if (i.has(Mod::sat) || i.operands.size() != 3 || type_bits(i.type()) < 32) return;
    for (std::size_t k : {1u, 2u}) {
      const Operand& t = i.operands[k];
      if (t.kind != OperandKind::reg || !v_.single(t.reg) || v_.reads(t.reg) != 1) continue;
      const std::uint32_t from = v_.definition(t.reg);
      if (v_.cfg.block_of[from] != v_.cfg.block_of[at] || edit_.erased(from)) continue;
      const Inst& product = u_.f.body[from];
      if (product.op != Op::mul || u_.touches_pinned(product) || only_destination(product) != t.reg) continue;
      const bool wide = product.has(Mod::wide);
      if (!wide && !product.has(Mod::lo)) continue;
      if (is_float(product.type()) || type_bits(product.type()) * (wide ? 2 : 1) != type_bits(i.type()))
        continue;
      if (!unchanged(product, from, at)) continue;
      Inst n = i;
      n.op = Op::mad;
      n.mods = product.mods;
      n.operands = {i.operands[0], product.operands[1], product.operands[2], i.operands[3 - k]};
      if (!u_.legal(n)) continue;
      i = std::move(n);
      edit_.erase(from);
      ++changes_;
      return;
    }
  }

  // Do the sources of the instruction at `from` still have their values at `to` (in the same block)?
  bool unchanged(const Inst& product, std::uint32_t from, std::uint32_t to) const {
    std::vector<RegisterUse> sources, uses;
    registers_of(product, sources);
    for (std::uint32_t k = from + 1; k < to; ++k) {
      registers_of(u_.f.body[k], uses);
      for (const RegisterUse& w : uses)
        for (const RegisterUse& s : sources)
          if (w.written && s.read && w.reg == s.reg) return false;
    }
    return true;
  }

  Unit& u_;
  Values v_;
  Edit edit_;
  bool powers_, sums_;
  std::uint64_t changes_ = 0;
};

// ---------------------------------------------------------------- floating mul + add
bool fusable_modifiers(const Inst& mul, const Inst& add, bool rounded_too) {
  const auto rounding = [](const Inst& i) {
    for (Mod m : {Mod::rn, Mod::rz, Mod::rm, Mod::rp})
      if (i.has(m)) return m;
    return kNoMod;
  };
  const Mod a = rounding(mul), b = rounding(add);
  if (mul.has(Mod::sat) || mul.has(Mod::ftz) != add.has(Mod::ftz)) return false;
  if (a == kNoMod && b == kNoMod) return true;
  return rounded_too && (a == Mod::rn || a == kNoMod) && (b == Mod::rn || b == kNoMod);
}

}  // namespace

std::uint64_t strength(Unit& u) { return Reducer(u, true, false).run(); }
std::uint64_t multiply_add(Unit& u) { return Reducer(u, false, true).run(); }

std::uint64_t fuse(Unit& u) {
  Values v(u);
  Edit edit(u);
  std::uint64_t changes = 0;
  for (std::uint32_t at = 0; at < u.f.body.size(); ++at) {
    Inst& i = u.f.body[at];
    const Mod type = i.type();
    if (i.op != Op::add || (type != Mod::f32 && type != Mod::f64) || i.type(1) != kNoMod) continue;
    if (i.operands.size() != 3 || u.touches_pinned(i)) continue;
    for (std::size_t k : {1u, 2u}) {
      const Operand& t = i.operands[k];
      if (t.kind != OperandKind::reg || !v.single(t.reg) || v.reads(t.reg) != 1) continue;
      const std::uint32_t from = v.definition(t.reg);
      const Inst& product = u.f.body[from];
      if (product.op != Op::mul || product.type() != type || product.type(1) != kNoMod) continue;
      if (!fusable_modifiers(product, i, u.options.fuse_rounded) || u.touches_pinned(product)) continue;
      // The factors must be the same later: constants, or registers of one value.
      const auto lasting = [&](const Operand& o) {
        return is_literal(o) || (o.kind == OperandKind::reg && v.single(o.reg));
      };
      if (!lasting(product.operands[1]) || !lasting(product.operands[2])) continue;
      Inst n = i;
      n.op = Op::fma;
      n.mods = {Mod::rn};
      if (i.has(Mod::ftz)) n.mods.push_back(Mod::ftz);
      if (i.has(Mod::sat)) n.mods.push_back(Mod::sat);
      n.mods.push_back(type);
      n.operands = {i.operands[0], product.operands[1], product.operands[2], i.operands[3 - k]};
      if (!u.legal(n)) continue;
      i = std::move(n);
      edit.erase(from);
      ++changes;
      break;
    }
  }
  edit.apply();
  return changes;
}

}  // namespace cgp::ptx::passes
