// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/decode/decode_mixed.h"

#include "cgp/base/float16.h"

namespace cgp::emu {

using ptx::Mod;

namespace {

template <class H>
void exec_widen(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint32_t>(op.a);
  auto* to = w.row<std::uint32_t>(op.d);
  for (int l = 0; l < kLanes; ++l)
    to[l] = std::bit_cast<std::uint32_t>(float(H::from_bits(std::uint16_t(a[l]))));
}
void exec_split(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint64_t>(op.a);
  for (int l = 0; l < kLanes; ++l) {
    w.row<std::uint32_t>(op.d)[l] = std::uint32_t(a[l]);
    w.row<std::uint32_t>(op.e)[l] = std::uint32_t(a[l] >> 32);
  }
}
void exec_join(Warp& w, const Op& op) {
  const auto* low = w.row<std::uint32_t>(op.a);
  const auto* high = w.row<std::uint32_t>(op.b);
  for_lanes(w.active, [&](int l) { w.row<std::uint64_t>(op.d)[l] = low[l] | std::uint64_t(high[l]) << 32; });
}

// op.c holds the product and sum. 0x7ff7 is the NaN of out of bounds, of f16 and of bf16 (measured).
void exec_oob(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint32_t>(op.a);
  const auto* b = w.row<std::uint32_t>(op.b);
  const auto* c = w.row<std::uint32_t>(op.c);
  for_lanes(w.active, [&](int l) {
    std::uint32_t r = c[l];
    for (int at = 0; at < (op.kind ? 32 : 16); at += 16)
      if ((a[l] >> at & 0x7fff) == 0x7ff7 || (b[l] >> at & 0x7fff) == 0x7ff7) r &= ~(0xffffu << at);
    w.row<std::uint32_t>(op.d)[l] = r;
  });
}

Loc widened(Decoder& d, const ptx::Operand& o, Mod type) {
  Op p;
  p.a = d.source(o, type);
  p.d = d.scratch(32);
  p.fn = type == Mod::f16 ? exec_widen<half> : exec_widen<bfloat16>;
  d.prelude(p);
  return p.d;
}

}  // namespace

void decode_mixed(Decoder& d, const ptx::Inst& i, Op& op, FloatOp f, FloatMode mode) {
  const Mod narrow = i.type(1);
  op.small = std::uint16_t(mode.rounding);
  op.a = widened(d, d.operand(i, 1), narrow);
  if (f == FloatOp::fma) {
    op.b = widened(d, d.operand(i, 2), narrow);
    op.c = d.source(d.operand(i, 3), Mod::f32);
  } else {
    op.b = d.source(d.operand(i, 2), Mod::f32);
  }
  op.d = d.dest(d.operand(i, 0), Mod::f32);
  op.fn = float_for(d, f, Mod::f32, mode);
}

void decode_pair(Decoder& d, const ptx::Inst& i, Op& op, FloatOp f, FloatMode mode) {
  Op half_op[2];
  const int sources = f == FloatOp::fma ? 3 : 2;
  for (int k = 0; k < sources; ++k) {
    Op split;
    split.a = d.source(d.operand(i, std::size_t(k) + 1), Mod::b64);
    split.d = d.scratch(32);
    split.e = d.scratch(32);
    split.fn = exec_split;
    d.prelude(split);
    for (int h = 0; h < 2; ++h)
      (k == 0 ? half_op[h].a : k == 1 ? half_op[h].b : half_op[h].c) = h ? split.e : split.d;
  }
  for (Op& h : half_op) {
    h.d = d.scratch(32);
    h.small = std::uint16_t(mode.rounding);
    h.fn = float_for(d, f, Mod::f32, mode);
    d.prelude(h);
  }
  op.a = half_op[0].d;
  op.b = half_op[1].d;
  op.d = d.dest(d.operand(i, 0), Mod::b64);
  op.fn = exec_join;
}

void decode_fma_oob(Decoder& d, const ptx::Inst& i, Op& op, FloatMode mode) {
  const Mod t = i.type();
  Op fma;
  fma.a = op.a = d.source(d.operand(i, 1), t);
  fma.b = op.b = d.source(d.operand(i, 2), t);
  fma.c = d.source(d.operand(i, 3), t);
  fma.d = op.c = d.scratch(32);
  fma.small = std::uint16_t(mode.relu ? 2 : 0);
  fma.kind = std::uint8_t(FloatOp::fma);
  fma.fn = float_for(d, FloatOp::fma, t, mode);
  d.prelude(fma);
  op.kind = ptx::type_bits(t) == 32;
  op.d = d.dest(d.operand(i, 0), t);
  op.fn = exec_oob;
}

}  // namespace cgp::emu
