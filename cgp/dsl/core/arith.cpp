// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/core/arith.h"

#include "cgp/dsl/core/convert.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

Val<u32> fns(const Val<u32>& mask, const Val<u32>& base, const Val<s32>& n, Here at) {
  return record_impl::emit<u32>(Op::fns, {Mod::b32}, at, mask, base, n);
}

namespace record_impl {

Kernel& owner(Values in, Op op, Here at) {
  for (const Value& v : in)
    if (v.kernel()) return *v.kernel();
  throw BuildError("an operation on literals alone belongs to no kernel", at,
                   text::cat("every operand of ", ptx::name(op), " is a C++ number"), "compute it in C++");
}

Value bf16_to_f32(Kernel& k, const Value& v, Here at) {
  if (k.sm() >= 90) return k.op(Op::cvt, {Mod::f32, Mod::bf16}, Mod::f32, {v}, at);
  k.at(at);  // before sm_90: a bf16 is the upper half of an f32
  const Value zero(Value::literal(0, Mod::b16)), d = k.fresh(Mod::f32, v.uniform());
  k.inst(Op::mov, {Mod::b32},
         {Operand::of(d.reg()), Operand::vec_of({k.register_of(zero), k.register_of(v)})});
  return d;
}

Value mov_pack(Kernel& k, Mod to, const std::vector<Value>& parts, Here at) {
  k.at(at);
  Uniform u = Uniform::grid;
  std::vector<ptx::RegId> regs;
  for (const Value& p : parts) {
    regs.push_back(k.register_of(p));
    u = min_of(u, p.uniform());
  }
  const Value d = k.fresh(to, u);
  k.inst(Op::mov, {bits_mod(ptx::type_bits(to))}, {Operand::of(d.reg()), Operand::vec_of(regs)});
  return d;
}

std::vector<Value> mov_unpack(Kernel& k, const Value& whole, Mod part, int n, Here at) {
  k.at(at);
  std::vector<Value> out;
  std::vector<ptx::RegId> regs;
  for (int i = 0; i < n; ++i) {
    out.push_back(k.fresh(part, whole.uniform()));
    regs.push_back(out.back().reg());
  }
  k.inst(Op::mov, {bits_mod(ptx::type_bits(whole.type()))}, {Operand::vec_of(regs), k.in_register(whole)});
  return out;
}

}  // namespace record_impl
}  // namespace cgp::dsl
