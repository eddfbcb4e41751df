// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/memory/ptr.h"

namespace cgp::dsl::record_impl {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using text::cat;

Address index_address(const Address& a, const Value& index, int stride_bytes, Here at) {
  if (index.is_literal()) {
    const int unused = 64 - ptx::type_bits(index.type());
    const bool is_signed = kind_of(index.type()) == Kind::signed_int;
    const std::int64_t i =
        is_signed ? std::int64_t(index.bits() << unused) >> unused : std::int64_t(index.bits());
    return {a.base, a.offset + i * stride_bytes};
  }
  Kernel& k = *a.base.kernel();
  const bool is_signed = kind_of(index.type()) == Kind::signed_int;
  const Value stride = Value::literal(std::uint64_t(stride_bytes), is_signed ? Mod::s32 : Mod::u32);
  if (ptx::type_bits(a.base.type()) == 32)
    return {k.op(Op::mad, {Mod::lo, is_signed ? Mod::s32 : Mod::u32}, Mod::u32, {index, stride, a.base}, at),
            a.offset};
  if (ptx::type_bits(index.type()) == 32)  // the product is formed in 64 bits: no overflow
    return {
        k.op(Op::mad, {Mod::wide, is_signed ? Mod::s32 : Mod::u32}, Mod::u64, {index, stride, a.base}, at),
        a.offset};
  return {k.op(Op::mad, {Mod::lo, is_signed ? Mod::s64 : Mod::u64}, Mod::u64,
               {index, stride.as(Mod::u64), a.base}, at),
          a.offset};
}

Operand address_operand(Kernel& k, const Address& a, int access_bytes, Here at) {
  if (a.offset % access_bytes != 0)
    throw BuildError(
        cat("an access of ", access_bytes, " bytes needs an address that is a multiple of ", access_bytes),
        at, cat("the constant part of this address is ", a.offset),
        "load fewer elements at once, or move the pointer by whole vectors");
  if (a.offset > 0x7fffffff || a.offset < -0x7fffffffLL - 1) {
    const Value far =
        k.op(Op::add, {Mod::u64}, Mod::u64, {a.base, Value::literal(std::uint64_t(a.offset), Mod::u64)}, at);
    return Operand::at(far.reg());
  }
  return Operand::at(k.register_of(a.base), a.offset);
}

namespace {

/// How many elements of which type one instruction moves, for `count` elements of `type`.
struct Shape {
  Mod type;       ///< memory type of one register
  int registers;  ///< per instruction
  int packed;     ///< elements per register
  int instructions;
};

Shape shape_of(const Kernel& k, const Access& a, Here at) {
  const int total = a.count * a.bytes;
  // 256-bit global accesses exist from sm_100 on; elsewhere 16 bytes is the widest.
  const bool wide = k.sm() >= 100 && k.sm() < 120 && total >= 32 && a.mods.has(Mod::global) && a.bytes >= 4;
  const int most = wide ? 32 : 16;
  const int bytes = std::min(total, most);
  if (total % bytes) throw BuildError("a vector access moves whole 16-byte pieces", at, cat(total, " bytes"));
  const int elements = bytes / a.bytes;
  const int most_registers = wide && a.bytes == 4 ? 8 : 4;
  if (elements <= most_registers) return {a.type, elements, 1, total / bytes};
  return {Mod::b32, bytes / 4, 4 / a.bytes,
          total / bytes};  // small elements travel packed in 32-bit registers
}

ptx::Mods full_mods(const Access& a, const Shape& s) {
  ptx::Mods m = a.mods;
  if (s.registers > 1) m.push_back(s.registers == 2 ? Mod::v2 : s.registers == 4 ? Mod::v4 : Mod::v8);
  m.push_back(s.type);
  return m;
}

Operand braces(const std::vector<ptx::RegId>& regs) {
  return regs.size() == 1 ? Operand::of(regs[0]) : Operand::vec_of(regs);
}

/// Splits a 32-bit register into its 16-bit or 8-bit elements.
void unpack(Kernel& k, const Value& word, int packed, Mod element, std::vector<Value>& out, Uniform u) {
  std::vector<ptx::RegId> parts;
  for (int j = 0; j < packed; ++j) {
    out.push_back(k.fresh(element, u));
    parts.push_back(out.back().reg());
  }
  k.inst(Op::mov, {Mod::b32}, {Operand::vec_of(parts), Operand::of(word.reg())});
}

Value pack(Kernel& k, const std::vector<Value>& v, std::size_t from, int packed) {
  const Value word = k.fresh(Mod::b32, Uniform::thread);
  std::vector<ptx::RegId> parts;
  for (int j = 0; j < packed; ++j) parts.push_back(k.register_of(v[from + std::size_t(j)]));
  k.inst(Op::mov, {Mod::b32}, {Operand::of(word.reg()), Operand::vec_of(parts)});
  return word;
}

}  // namespace

void load(Kernel& k, const Access& a, const Address& from, std::vector<Value>& out, Mod result, Uniform u,
          Here at) {
  const bool given = !out.empty();  // predicated loads overwrite registers that already hold the fallback
  const Shape s = shape_of(k, a, at);
  const int step = s.registers * s.packed * a.bytes;
  if (given && s.packed > 1)
    throw BuildError("a predicated load moves at most four elements of this type at once", at,
                     cat(a.count, " asked for"));
  for (int n = 0; n < s.instructions; ++n) {
    std::vector<ptx::RegId> regs;
    std::vector<Value> words;
    for (int r = 0; r < s.registers; ++r) {
      if (given) {
        regs.push_back(out[std::size_t(n * s.registers + r)].reg());
      } else {
        words.push_back(k.fresh(s.packed > 1 ? Mod::b32 : result, u));
        regs.push_back(words.back().reg());
      }
    }
    std::vector<Operand> operands{braces(regs),
                                  address_operand(k, {from.base, from.offset + n * step}, step, at)};
    if (a.policy) operands.push_back(k.in_register(*a.policy));
    k.inst(Op::ld, full_mods(a, s), std::move(operands));
    for (const Value& w : words) {
      if (s.packed > 1)
        unpack(k, w, s.packed, result, out, u);
      else
        out.push_back(w);
    }
  }
}

void store(Kernel& k, const Access& a, const Address& to, const std::vector<Value>& v, Here at) {
  const Shape s = shape_of(k, a, at);
  const int step = s.registers * s.packed * a.bytes;
  std::size_t next = 0;
  for (int n = 0; n < s.instructions; ++n) {
    std::vector<ptx::RegId> regs;
    for (int r = 0; r < s.registers; ++r) {
      regs.push_back(s.packed > 1 ? pack(k, v, next, s.packed).reg() : k.register_of(v[next]));
      next += std::size_t(s.packed);
    }
    std::vector<Operand> operands{address_operand(k, {to.base, to.offset + n * step}, step, at),
                                  braces(regs)};
    if (a.policy) operands.push_back(k.in_register(*a.policy));
    k.inst(Op::st, full_mods(a, s), std::move(operands));
  }
}

Value variable(Kernel& k, ptx::Space space, Mod type, std::uint64_t count, int align,
               std::vector<std::uint8_t> init, std::string name, Here at) {
  k.at(at);
  ptx::Module& m = k.module();
  ptx::Function& f = k.function();
  if (name.empty())
    name =
        cat(space == ptx::Space::local ? "local_" : "const_", k.name(), "_", m.vars.size() + f.vars.size());
  ptx::Var v;
  v.name = m.intern(name);
  v.space = space;
  v.type = type;
  v.align = std::uint32_t(align);
  v.is_array = true;
  v.dims = {count};
  v.has_init = !init.empty();
  v.init = std::move(init);
  if (space == ptx::Space::constant) {
    std::uint64_t total = v.bytes();
    for (const auto& o : m.vars)
      if (o.space == ptx::Space::constant) total += o.bytes();
    if (total > 65536)
      throw BuildError("the constant bank of a module holds 65536 bytes", at,
                       cat("this array brings it to ", total));
  }
  const Value d = k.fresh(Mod::u64, Uniform::grid);
  k.inst(Op::mov, {Mod::u64}, {Operand::of(d.reg()), Operand::sym(v.name)});
  if (space == ptx::Space::local) {
    f.vars.push_back(std::move(v));
  } else {
    if (space == ptx::Space::global) v.linkage = ptx::Linkage::visible;
    if (!m.find_var(name)) m.vars.push_back(std::move(v));
  }
  return d;
}

}  // namespace cgp::dsl::record_impl
