// SPDX-License-Identifier: Apache-2.0
// mma.m8n8k4 on f16, the shape of sm_70: four quad pairs of a warp (lanes 4p to 4p + 3 and 16 more) compute a
// product each. PTX ISA 9.7.14.5.1. Hopper has no such unit: ptxas expands it to an
// fma chain over the products in f32, to which C is added (measured); other chips are taken to do the same.
#include <cmath>

#include "cgp/base/float16.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/tensor/matrix_plan.h"

namespace cgp::emu {
namespace {

using ptx::Mod;

struct QuadPlan {
  std::vector<Loc> a, b, c, d;
  bool a_row = true, b_row = false, f16_c = false, f16_d = false;
};

// Row and column of accumulator i of a lane, of its quad pair's 8x8.
constexpr int accumulator_row(bool f16, int t, int high, int i) {
  return f16 ? t + 4 * high : (t & 1) + (i & 2) + 4 * high;
}
constexpr int accumulator_column(bool f16, int t, int i) { return f16 ? i : (i & 4) + (t & 2) + (i & 1); }

std::uint32_t half_of(const Warp& w, const std::vector<Loc>& regs, int lane, int i) {
  return w.row<std::uint32_t>(regs[std::size_t(i / 2)])[lane] >> (16 * (i % 2)) & 0xffff;
}

void exec_quad(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  const auto& p = op.data_as<QuadPlan>();
  float c[4][8][8], av[4][8][4], bv[4][8][4];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int q = lane % 16 / 4, t = lane % 4, high = lane / 16;
    for (int i = 0; i < 4; ++i) {
      const Decoded a = decode_element(Mod::f16, half_of(w, p.a, lane, i));
      const Decoded b = decode_element(Mod::f16, half_of(w, p.b, lane, i));
      const int m = p.a_row ? t + 4 * high : i + 4 * high, ka = p.a_row ? i : t;
      const int n = p.b_row ? i + 4 * high : t + 4 * high, kb = p.b_row ? t : i;
      av[q][m][ka] = a.value;
      bv[q][n][kb] = b.value;
    }
    for (int i = 0; i < 8; ++i)
      c[q][accumulator_row(p.f16_c, t, high, i)][accumulator_column(p.f16_c, t, i)] =
          p.f16_c ? float(half::from_bits(std::uint16_t(half_of(w, p.c, lane, i))))
                  : w.row<float>(p.c[std::size_t(i)])[lane];
  }
  for (auto& quad : c) {
    const auto q = std::size_t(&quad - c);
    for (int m = 0; m < 8; ++m)
      for (int n = 0; n < 8; ++n) {
        float d = av[q][m][0] * bv[q][n][0];
        for (int k = 1; k < 4; ++k) d = std::fma(av[q][m][k], bv[q][n][k], d);
        d += quad[m][n];
        quad[m][n] = d == d ? d : std::bit_cast<float>(0x7fffffffu);
      }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const int q = lane % 16 / 4, t = lane % 4, high = lane / 16;
    const auto at = [&](int i) {
      return c[q][accumulator_row(p.f16_d, t, high, i)][accumulator_column(p.f16_d, t, i)];
    };
    if (!p.f16_d) {
      for (int i = 0; i < 8; ++i) w.row<float>(p.d[std::size_t(i)])[lane] = at(i);
      continue;
    }
    for (int i = 0; i < 8; i += 2)
      w.row<std::uint32_t>(p.d[std::size_t(i / 2)])[lane] =
          half(double(at(i))).bits | std::uint32_t(half(double(at(i + 1))).bits) << 16;
  }
}

}  // namespace

void decode_mma_quad(Decoder& d, const ptx::Inst& i, Op& op) {
  QuadPlan p;
  int layouts = 0;
  for (Mod m : i.mods)
    if (m == Mod::row || m == Mod::col) (layouts++ == 0 ? p.a_row : p.b_row) = m == Mod::row;
  p.f16_d = i.type(0) == Mod::f16;
  p.f16_c = i.type(3) == Mod::f16;
  p.d = d.dests(d.operand(i, 0), p.f16_d ? Mod::b32 : Mod::f32);
  p.a = d.sources(d.operand(i, 1), Mod::b32);
  p.b = d.sources(d.operand(i, 2), Mod::b32);
  p.c = d.sources(d.operand(i, 3), p.f16_c ? Mod::b32 : Mod::f32);
  if (p.a.size() != 2 || p.b.size() != 2 || p.c.size() != (p.f16_c ? 4u : 8u) ||
      p.d.size() != (p.f16_d ? 4u : 8u))
    d.unsupported(".m8n8k4 takes 2 registers of A and B and 4 (f16) or 8 of C and D");
  op.data = d.keep(std::move(p));
  op.flags |= kSplits;
  op.fn = exec_quad;
}

}  // namespace cgp::emu
