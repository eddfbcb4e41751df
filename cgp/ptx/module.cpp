// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/module.h"

#include <bit>
#include <unordered_map>

namespace cgp::ptx {
namespace {

constexpr std::string_view kFamilies[] = {
#define CGP_FAMILY(id, text) text,
#include "cgp/ptx/opcodes.def"
};
constexpr std::string_view kOps[] = {
#define CGP_OP(id, text, family, forms) text,
#include "cgp/ptx/opcodes.def"
};
constexpr Family kOpFamily[] = {
#define CGP_OP(id, text, family, forms) Family::family,
#include "cgp/ptx/opcodes.def"
};
constexpr std::string_view kMods[] = {
#define CGP_MOD(id, text, type_bits) text,
#include "cgp/ptx/modifiers.def"
};
constexpr std::uint16_t kModBits[] = {
#define CGP_MOD(id, text, type_bits) type_bits,
#include "cgp/ptx/modifiers.def"
};
constexpr std::string_view kSregs[] = {
#define CGP_SREG(id, text, bits) text,
#include "cgp/ptx/special.def"
};
constexpr std::uint8_t kSregBits[] = {
#define CGP_SREG(id, text, bits) bits,
#include "cgp/ptx/special.def"
};
constexpr std::string_view kSpaces[] = {"generic", "reg", "global", "shared", "local", "const", "param"};

template <class E, std::size_t N>
std::optional<E> find_name(const std::string_view (&names)[N], std::string_view text) {
  static const auto index = [&] {
    std::unordered_map<std::string_view, E> m;
    m.reserve(N);
    for (std::size_t i = 0; i < N; ++i) m.emplace(names[i], E(i));
    return m;
  }();
  auto it = index.find(text);
  if (it == index.end()) return std::nullopt;
  return it->second;
}

template <class E, std::size_t N>
std::string_view name_of(const std::string_view (&names)[N], E e) {
  return std::size_t(e) < N ? names[std::size_t(e)] : std::string_view("?");
}

}  // namespace

std::string_view name(Family f) { return name_of(kFamilies, f); }
std::string_view name(Op op) { return name_of(kOps, op); }
std::string_view name(Mod m) { return name_of(kMods, m); }
std::string_view name(Sreg s) { return name_of(kSregs, s); }
std::string_view name(Space s) { return name_of(kSpaces, s); }
Family family(Op op) { return op < Op::kCount ? kOpFamily[std::size_t(op)] : Family::misc; }
std::optional<Op> parse_op(std::string_view dotted) { return find_name<Op>(kOps, dotted); }
std::optional<Mod> parse_mod(std::string_view text) { return find_name<Mod>(kMods, text); }
std::optional<Sreg> parse_sreg(std::string_view text) { return find_name<Sreg>(kSregs, text); }
int bits(Sreg s) { return s < Sreg::kCount ? kSregBits[std::size_t(s)] : 0; }
int type_bits(Mod m) { return m < Mod::kCount ? kModBits[std::size_t(m)] : 0; }

bool is_float(Mod m) {
  switch (m) {
    case Mod::f16:
    case Mod::bf16:
    case Mod::tf32:
    case Mod::f32:
    case Mod::f64:
    case Mod::f16x2:
    case Mod::bf16x2:
    case Mod::f32x2:
    case Mod::e4m3:
    case Mod::e5m2:
    case Mod::e2m3:
    case Mod::e3m2:
    case Mod::e2m1:
    case Mod::ue8m0:
    case Mod::ue4m3:
    case Mod::e4m3x2:
    case Mod::e5m2x2:
    case Mod::e2m3x2:
    case Mod::e3m2x2:
    case Mod::e2m1x2:
    case Mod::ue8m0x2:
    case Mod::e4m3x4:
    case Mod::e5m2x4:
    case Mod::e2m3x4:
    case Mod::e3m2x4:
    case Mod::e2m1x4:
      return true;
    default:
      return false;
  }
}
bool is_signed(Mod m) {
  switch (m) {
    case Mod::s8:
    case Mod::s16:
    case Mod::s32:
    case Mod::s64:
    case Mod::s4:
    case Mod::s2:
    case Mod::s16x2:
    case Mod::s8x4:
      return true;
    default:
      return false;
  }
}

Operand Operand::of(RegId r, bool negated) {
  Operand o;
  o.kind = OperandKind::reg;
  o.reg = r;
  o.negated = negated;
  return o;
}
Operand Operand::dual(RegId p, RegId q) {
  Operand o = of(p);
  o.reg2 = q;
  return o;
}
Operand Operand::integer(std::int64_t v) {
  Operand o;
  o.kind = OperandKind::imm;
  o.imm = std::uint64_t(v);
  return o;
}
Operand Operand::f32(float v) {
  Operand o;
  o.kind = OperandKind::f32_imm;
  o.imm = std::bit_cast<std::uint32_t>(v);
  return o;
}
Operand Operand::f64(double v) {
  Operand o;
  o.kind = OperandKind::f64_imm;
  o.imm = std::bit_cast<std::uint64_t>(v);
  return o;
}
Operand Operand::special(Sreg s) {
  Operand o;
  o.kind = OperandKind::sreg;
  o.sreg = s;
  return o;
}
Operand Operand::sym(SymbolId s, std::int64_t offset) {
  Operand o;
  o.kind = OperandKind::symbol;
  o.symbol = s;
  o.imm = std::uint64_t(offset);
  return o;
}
Operand Operand::at(RegId base, std::int64_t offset) {
  Operand o;
  o.kind = OperandKind::address;
  o.reg = base;
  o.imm = std::uint64_t(offset);
  return o;
}
Operand Operand::at_symbol(SymbolId s, std::int64_t offset) {
  Operand o = sym(s, offset);
  o.kind = OperandKind::address;
  return o;
}
Operand Operand::vec(std::vector<Operand> e) {
  Operand o;
  o.kind = OperandKind::vector;
  o.elems = std::move(e);
  return o;
}
Operand Operand::vec_of(const std::vector<RegId>& regs) {
  std::vector<Operand> e;
  e.reserve(regs.size());
  for (RegId r : regs) e.push_back(of(r));
  return vec(std::move(e));
}
Operand Operand::args(std::vector<Operand> e) {
  Operand o = vec(std::move(e));
  o.kind = OperandKind::list;
  return o;
}
Operand Operand::target(LabelId l) {
  Operand o;
  o.kind = OperandKind::label;
  o.label = l;
  return o;
}
Operand Operand::none() { return {}; }

Mod Inst::type(int i) const {
  for (Mod m : mods)
    if (is_type(m) && i-- == 0) return m;
  return kNoMod;
}

std::uint64_t Var::bytes() const {
  std::uint64_t n = std::uint64_t((type_bits(type) + 7) / 8) * std::uint64_t(vector);
  if (is_array)
    for (std::uint64_t d : dims) n *= d;
  return n;
}
std::uint32_t Var::alignment() const {
  if (align) return align;
  return std::uint32_t((type_bits(type) + 7) / 8 * vector);
}

SymbolId Module::intern(std::string_view s) {
  for (std::size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] == s) return SymbolId(i);
  symbols.emplace_back(s);
  return SymbolId(symbols.size() - 1);
}
const Function* Module::find(std::string_view function) const {
  // A body wins over the declarations before it.
  const Function* declared = nullptr;
  for (const Function& f : functions)
    if (text(f.name) == function) {
      if (f.has_body) return &f;
      if (!declared) declared = &f;
    }
  return declared;
}
const Var* Module::find_var(std::string_view name) const {
  for (const Var& v : vars)
    if (text(v.name) == name) return &v;
  return nullptr;
}

}  // namespace cgp::ptx
