// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wmma.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
Mod layout_mod(WmmaLayout l) { return l == WmmaLayout::row ? Mod::row : Mod::col; }
Mod shape_mod(int m, int n, int k) { return ptx::parse_mod(text::cat("m", m, "n", n, "k", k)).value(); }
Operand list_of(Kernel& k, const std::vector<Value>& v) {
  std::vector<Operand> list;
  for (const Value& x : v) list.push_back(k.in_register(x));
  return Operand::vec(std::move(list));
}
int oldest_sm(Mod t) {
  return t == Mod::bf16 || t == Mod::tf32 || t == Mod::f64 ? 80 : t == Mod::f16 ? 70 : 72;
}
ptx::Mods place_mods(const WmmaPlace& p) {
  ptx::Mods m{Mod::sync, Mod::aligned, layout_mod(p.layout), shape_mod(p.m, p.n, p.k)};
  if (p.space != Mod::generic) m.push_back(p.space);
  m.push_back(p.type);
  return m;
}
}  // namespace

std::vector<Value> wmma_load(Kernel& k, Use use, const WmmaPlace& p, const record_impl::Address& from,
                             const Value& pitch, Mod register_type, int count, Here at) {
  k.at(at);
  k.needs_sm(oldest_sm(p.type), "this wmma", at);
  k.collective("wmma.load", Uniform::warp, at);
  auto out = fresh_registers(k, register_type, count);
  const Op op = use == Use::a ? Op::wmma_load_a : use == Use::b ? Op::wmma_load_b : Op::wmma_load_c;
  k.inst(op, place_mods(p),
         {list_of(k, out), record_impl::address_operand(k, from, 1, at), k.operand(pitch)});
  return out;
}

void wmma_store(Kernel& k, const WmmaPlace& p, const record_impl::Address& to, const std::vector<Value>& v,
                const Value& pitch, Here at) {
  k.at(at);
  k.collective("wmma.store", Uniform::warp, at);
  k.inst(Op::wmma_store_d, place_mods(p),
         {record_impl::address_operand(k, to, 1, at), list_of(k, v), k.operand(pitch)});
}

void wmma_mma(Kernel& k, const WmmaTypes& t, const std::vector<Value>& a, const std::vector<Value>& b,
              const std::vector<Value>& acc, bool satfinite, Here at) {
  k.at(at);
  k.needs_sm(oldest_sm(t.a), "this wmma", at);
  k.collective("wmma.mma", Uniform::warp, at);
  ptx::Mods m{Mod::sync, Mod::aligned, layout_mod(t.la), layout_mod(t.lb), shape_mod(t.m, t.n, t.k)};
  m.push_back(t.c);
  if (t.a != Mod::f16) {  // f16 operands are implied
    m.push_back(t.a);
    m.push_back(t.b);
  }
  m.push_back(t.c);
  if (satfinite) m.push_back(Mod::satfinite);
  const Operand d = list_of(k, acc);
  k.inst(Op::wmma_mma, m, {d, list_of(k, a), list_of(k, b), d});
}

}  // namespace cgp::dsl::record
