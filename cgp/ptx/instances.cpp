// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/instances.h"

#include <algorithm>

#include "cgp/ptx/parse.h"

namespace cgp::ptx::samples {
namespace {

using Kind = OperandPattern::Kind;
using Where = OperandPattern::Where;

struct Maker {
  Module& m;
  Function& f;
  std::mt19937& random;
  bool plain;

  std::size_t pick(std::size_t n) { return plain || n < 2 ? 0 : std::size_t(random()) % n; }
  bool coin() { return !plain && random() % 2; }

  // Register files of empty_module(): 16 each.
  RegId reg(Mod type) {
    const char* prefix = "%r";
    switch (std::max(8, type_bits(type))) {
      case 8:
        prefix = type == Mod::pred ? "%p" : "%b";
        break;
      case 16:
        prefix = "%h";
        break;
      case 32:
        prefix = type == Mod::f32 ? "%f" : "%r";
        break;
      case 64:
        prefix = type == Mod::f64 ? "%d" : "%rd";
        break;
      case 128:
        prefix = "%q";
        break;
      default:
        break;
    }
    const std::string name = prefix + std::to_string(random() % 16);
    for (std::size_t i = 0; i < f.regs.size(); ++i)
      if (f.regs[i].name == name) return RegId(i);
    throw Error("no register " + name);
  }
  Operand symbol(const char* name, std::int64_t offset = 0) { return Operand::sym(m.intern(name), offset); }

  Mod type_of(const OperandPattern& p, const Mods& mods) {
    const Mod t = operand_type(p, mods);
    if (p.type_from == OperandPattern::Type::size) return Mod::u64;
    return t == kNoMod ? Mod::b32 : t;
  }
  Operand constant(const OperandPattern& p) {
    if (p.ranges.empty()) return Operand::integer(std::int64_t(pick(16)));
    const auto& r = p.ranges[pick(p.ranges.size())];
    return Operand::integer(r.first + std::int64_t(pick(std::size_t(
                                          std::min<std::int64_t>((r.last - r.first) / r.step + 1, 64)))) *
                                          r.step);
  }
  Operand value(const OperandPattern& p, Mod type) {
    const bool may = p.kind == Kind::source || p.kind == Kind::mov;
    if (may && coin() && coin()) {
      if (type == Mod::f32) return Operand::f32(0.5f);
      if (type == Mod::f64) return Operand::f64(-2.25);
      const bool integer =
          type >= Mod::b16 && type <= Mod::s64 && type != Mod::b128 && type != Mod::u8 && type != Mod::s8;
      if (integer) return constant(p);
    }
    return Operand::of(reg(type));
  }
  Operand address(const OperandPattern& p, const Mods& mods) {
    Operand o;
    o.kind = OperandKind::address;
    auto space = [&](Mod a) { return mods.has(a); };
    const bool shared = p.where == Where::shared ||
                        (p.where == Where::mods && !space(Mod::global) &&
                         (space(Mod::shared) || space(Mod::shared_cta) || space(Mod::shared_cluster)));
    o.reg = reg(shared || p.where == Where::tmem ? Mod::b32 : Mod::b64);
    if (coin()) o.imm = 16 * (random() % 64);
    if (p.where != Where::tensor && p.where != Where::gather) return o;
    o.imm = 0;
    std::size_t n = 5;
    if (p.where == Where::tensor)
      for (Mod x : mods)
        if (x >= Mod::d1d && x <= Mod::d5d) n = std::size_t(x) - std::size_t(Mod::d1d) + 1;
    std::vector<Operand> c;
    for (std::size_t i = 0; i < n; ++i) c.push_back(Operand::of(reg(Mod::b32)));
    o.elems.push_back(Operand::vec(std::move(c)));
    return o;
  }
  Operand pack(Mod type) {
    const int n = type == Mod::b16 ? 2 : coin() && type != Mod::b128 ? 4 : 2;
    const int bits = type_bits(type) / n;
    std::vector<Operand> e;
    for (int i = 0; i < n; ++i)
      e.push_back(Operand::of(reg(bits == 8    ? Mod::b8
                                  : bits == 16 ? Mod::b16
                                  : bits == 32 ? Mod::b32
                                               : Mod::b64)));
    return Operand::vec(std::move(e));
  }
  Operand operand(const OperandPattern& p, const Inst& i) {
    const Mod type = type_of(p, i.mods);
    switch (p.kind) {
      case Kind::dest:
      case Kind::source:
      case Kind::reg:
      case Kind::mov: {
        const int n = operand_count(p, i.mods);
        if (n > 0) {
          std::vector<Operand> e;
          for (int k = 0; k < n; ++k) e.push_back(Operand::of(reg(type)));
          return Operand::vec(std::move(e));
        }
        Operand o = value(p, type);
        if (p.dual && (coin() || i.op == Op::elect_sync || i.op == Op::lop3) && o.kind == OperandKind::reg)
          o.reg2 = reg(Mod::pred);
        return o;
      }
      case Kind::pred_dest: {
        Operand o = Operand::of(reg(Mod::pred));
        if (p.dual && coin()) o.reg2 = reg(Mod::pred);
        return o;
      }
      case Kind::pred:
        return Operand::of(reg(Mod::pred));
      case Kind::pred_not:
      case Kind::pred_or_flag:
        return Operand::of(reg(Mod::pred));
      case Kind::imm:
        return constant(p);
      case Kind::address:
        return address(p, i.mods);
      case Kind::pack:
      case Kind::unpack:
        return pack(type);
      case Kind::mask: {
        std::vector<Operand> e;
        for (int k = 0; k < (i.has(Mod::cta_group_2) ? 8 : 4); ++k) e.push_back(Operand::of(reg(Mod::b32)));
        return Operand::vec(std::move(e));
      }
      case Kind::label:
        return Operand::target(0);
      case Kind::table: {
        Operand o = Operand::target(0);
        o.kind = OperandKind::table;
        return o;
      }
      case Kind::call:
        return symbol("callee");
      case Kind::any:
      case Kind::sink:
        return Operand::none();
    }
    return Operand::none();
  }
};

Inst with_mods(Maker& make, const Form& f, Mods mods) {
  Inst i;
  i.op = f.op;
  i.mods = mods;
  for (const OperandPattern& p : f.operands) {
    if (p.only_with != kNoMod && !mods.has(p.only_with)) continue;
    if (p.optional && !make.coin()) continue;
    i.operands.push_back(make.operand(p, i));
  }
  return i;
}

void append(Mods& mods, const std::vector<Mod>& more) {
  for (Mod m : more) mods.push_back(m);
}

}  // namespace

Module empty_module(Version version, const std::string& target) {
  Module m = parse(
      ".version 9.0\n.target sm_100a\n.address_size 64\n.func callee\n{\nret;\n}\n.global .align 128 .b8 "
      "gm[1024];\n"
      ".visible .entry k(.param .u64 a, .param .align 64 .b8 tm[128])\n{\n"
      ".reg .pred %p<16>;\n.reg .b8 %b<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<16>;\n"
      ".reg .f32 %f<16>;\n.reg .f64 %d<16>;\n.reg .b128 %q<16>;\n"
      ".shared .align 1024 .b8 sm[8192];\n"
      "L0:\nts: .branchtargets L0;\n}\n");
  m.version = version;
  m.target = target;
  return m;
}

Inst instance(Module& m, const Form& f, std::mt19937& random, bool plain) {
  Maker make{m, m.functions.back(), random, plain};
  Mods mods;
  for (const ModSlot& s : f.slots) {
    if (s.optional && !make.coin()) continue;
    append(mods, s.alternatives[make.pick(s.alternatives.size())]);
  }
  return with_mods(make, f, mods);
}

std::vector<Inst> cover(Module& m, const Form& f, std::mt19937& random) {
  Maker make{m, m.functions.back(), random, true};
  std::vector<Inst> out;
  auto add = [&](std::size_t slot, std::size_t alternative) {
    Mods mods;
    for (std::size_t s = 0; s < f.slots.size(); ++s) {
      if (s == slot)
        append(mods, f.slots[s].alternatives[alternative]);
      else if (!f.slots[s].optional)
        append(mods, f.slots[s].alternatives[0]);
    }
    out.push_back(with_mods(make, f, mods));
  };
  add(~std::size_t(0), 0);
  for (std::size_t s = 0; s < f.slots.size(); ++s)
    for (std::size_t a = f.slots[s].optional ? 0 : 1; a < f.slots[s].alternatives.size(); ++a) add(s, a);
  return out;
}

}  // namespace cgp::ptx::samples
