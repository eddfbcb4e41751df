// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/mma.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
Mod shape_mod(const MmaTypes& t) {
  if (t.m == 8) return Mod::m8n8k4;
  switch (t.k) {
    case 4:
      return Mod::m16n8k4;
    case 8:
      return Mod::m16n8k8;
    case 16:
      return Mod::m16n8k16;
    default:
      return Mod::m16n8k32;
  }
}

/// The oldest architecture of the form, for the message; ptx::verify has the full table.
int oldest_sm(const MmaTypes& t) {
  if (t.a == Mod::e4m3 || t.a == Mod::e5m2) return 89;
  if (t.a == Mod::f64 && t.m == 16) return 90;
  if (t.a == Mod::f16 && t.k == 8) return 75;
  return 80;
}

Operand registers(Kernel& k, std::span<const Value> v) {
  std::vector<Operand> list;
  list.reserve(v.size());
  for (const Value& x : v) list.push_back(k.in_register(x));
  return Operand::vec(std::move(list));
}
}  // namespace

void mma(Kernel& kernel, const MmaTypes& t, std::span<const Value> a, std::span<const Value> b,
         std::span<const Value> c, bool satfinite, Here at) {
  kernel.at(at);
  kernel.needs_sm(oldest_sm(t), "this mma.sync", at);
  kernel.collective("mma.sync", Uniform::warp, at);
  ptx::Mods m{Mod::sync, Mod::aligned, shape_mod(t), Mod::row, Mod::col};
  if (satfinite) m.push_back(Mod::satfinite);
  for (Mod type : {t.c, t.a, t.b, t.c}) m.push_back(type);
  const Operand acc = registers(kernel, c);
  kernel.inst(Op::mma, m, {acc, registers(kernel, a), registers(kernel, b), acc});
}

void mma_blocks(Kernel& kernel, const WarpProduct& p, const std::vector<Value>& a,
                const std::vector<Value>& b, const std::vector<Value>& acc, Here at) {
  const auto part = [](const std::vector<Value>& v, int i, int n) {
    return std::span<const Value>(v).subspan(std::size_t(i * n), std::size_t(n));
  };
  for (int i = 0; i < p.blocks_m; ++i)
    for (int step = 0; step < p.blocks_n; ++step) {
      const int j = i % 2 ? p.blocks_n - 1 - step : step;  // serpentine: the B fragment just used is reused
      mma(kernel, p.types, part(a, i, p.a_regs), part(b, j, p.b_regs),
          part(acc, i * p.blocks_n + j, p.c_regs), false, at);
    }
}

}  // namespace cgp::dsl::record
