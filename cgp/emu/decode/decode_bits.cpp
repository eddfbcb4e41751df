// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, bit fields, permutations and dot products of small integers.
#include "cgp/base/text.h"
#include "cgp/emu/core/handlers.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
void use(Decoder& d, Op& op, IntOp o, Mod t) {
  op.fn = integer_for(d, o, t);
  if (!op.fn) d.unsupported(cat("the type .", ptx::name(t)));
}

void decode_logic(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  const Mod t = i.type();
  const IntOp o = i.op == POp::and_   ? IntOp::and_
                  : i.op == POp::or_  ? IntOp::or_
                  : i.op == POp::xor_ ? IntOp::xor_
                  : i.op == POp::not_ ? IntOp::not_
                                      : IntOp::cnot;
  const bool one = o == IntOp::not_ || o == IntOp::cnot;
  if (t == Mod::pred) {
    op.kind = std::uint8_t(o);
    op.a = d.pred(d.operand(i, 1));
    if (!one) op.b = d.pred(d.operand(i, 2));
    op.d = d.pred_dest(d.operand(i, 0));
  } else {
    op.a = d.source(d.operand(i, 1), t);
    if (!one) op.b = d.source(d.operand(i, 2), t);
    op.d = d.dest(d.operand(i, 0), t);
  }
  use(d, op, o, t);
}

void decode_shift(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  const Mod t = i.type();
  op.a = d.source(d.operand(i, 1), t);
  op.b = d.source(d.operand(i, 2), Mod::u32);
  op.d = d.dest(d.operand(i, 0), t);
  use(d, op, i.op == POp::shl ? IntOp::shl : IntOp::shr, t);
}

void decode_shf(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::l, Mod::r, Mod::clamp, Mod::wrap});
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::u32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  const bool wrap = i.has(Mod::wrap);
  use(d, op,
      i.has(Mod::l) ? (wrap ? IntOp::shf_l_wrap : IntOp::shf_l_clamp)
                    : (wrap ? IntOp::shf_r_wrap : IntOp::shf_r_clamp),
      Mod::b32);
}

void decode_count(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::shiftamt});
  const Mod t = i.type();
  IntOp o = IntOp::popc;
  Mod result = Mod::u32;
  switch (i.op) {
    case POp::clz:
      o = IntOp::clz;
      break;
    case POp::bfind:
      o = i.has(Mod::shiftamt) ? IntOp::bfind_shiftamt : IntOp::bfind;
      break;
    case POp::brev:
      o = IntOp::brev;
      result = t;
      break;
    default:
      break;
  }
  op.a = d.source(d.operand(i, 1), t);
  op.d = d.dest(d.operand(i, 0), result);
  use(d, op, o, t);
}

void decode_field(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  if (i.op == POp::bfi) {
    allow(d, i, {});
    op.a = d.source(d.operand(i, 1), t);
    op.b = d.source(d.operand(i, 2), t);
    op.c = d.source(d.operand(i, 3), Mod::u32);
    op.e = d.source(d.operand(i, 4), Mod::u32);
    op.d = d.dest(d.operand(i, 0), t);
    return use(d, op, IntOp::bfi, t);
  }
  if (i.op == POp::bfe) {
    allow(d, i, {});
    op.a = d.source(d.operand(i, 1), t);
    op.b = d.source(d.operand(i, 2), Mod::u32);
    op.c = d.source(d.operand(i, 3), Mod::u32);
    op.d = d.dest(d.operand(i, 0), t);
    return use(d, op, IntOp::bfe, t);
  }
  allow(d, i, {Mod::clamp, Mod::wrap});  // bmsk, szext
  const bool clamp = i.has(Mod::clamp);
  op.a = d.source(d.operand(i, 1), t);
  op.b = d.source(d.operand(i, 2), Mod::u32);
  op.d = d.dest(d.operand(i, 0), t);
  if (i.op == POp::bmsk) return use(d, op, clamp ? IntOp::bmsk_clamp : IntOp::bmsk_wrap, Mod::b32);
  use(d, op, clamp ? IntOp::szext_clamp : IntOp::szext_wrap, t);
}

void decode_fns(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::s32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  use(d, op, IntOp::fns, Mod::b32);
}

void decode_lop3(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::and_, Mod::or_});
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::b32);
  op.kind = std::uint8_t(d.immediate(d.operand(i, 4)));
  const ptx::Operand& out = d.operand(i, 0);
  if (i.has(Mod::and_) || i.has(Mod::or_)) {
    op.small = i.has(Mod::and_) ? 1 : 0;
    op.e = d.pred(d.operand(i, 5));
    op.f = d.pred_dest(ptx::Operand::of(out.reg2));
  }
  ptx::Operand value = out;
  value.reg2 = ptx::kNone;
  op.d = d.dest(value, Mod::b32);
  use(d, op, IntOp::lop3, Mod::b32);
}

void decode_prmt(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::f4e, Mod::b4e, Mod::rc8, Mod::ecl, Mod::ecr, Mod::rc16});
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::b32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  use(d, op,
      i.has(Mod::f4e)    ? IntOp::prmt_f4e
      : i.has(Mod::b4e)  ? IntOp::prmt_b4e
      : i.has(Mod::rc8)  ? IntOp::prmt_rc8
      : i.has(Mod::ecl)  ? IntOp::prmt_ecl
      : i.has(Mod::ecr)  ? IntOp::prmt_ecr
      : i.has(Mod::rc16) ? IntOp::prmt_rc16
                         : IntOp::prmt,
      Mod::b32);
}

void decode_dot(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::lo, Mod::hi});
  const bool sa = ptx::is_signed(i.type(0)), sb = ptx::is_signed(i.type(1));
  const bool four = i.op == POp::dp4a;
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::b32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  const IntOp base = four ? IntOp::dp4a_uu : i.has(Mod::hi) ? IntOp::dp2a_hi_uu : IntOp::dp2a_lo_uu;
  use(d, op, IntOp(int(base) + (sa ? 2 : 0) + (sb ? 1 : 0)), Mod::b32);
}
}  // namespace

void add_bits(Table& t) {
  for (POp o : {POp::and_, POp::or_, POp::xor_, POp::not_, POp::cnot}) t.set(o, decode_logic);
  t.set(POp::shl, decode_shift);
  t.set(POp::shr, decode_shift);
  t.set(POp::shf, decode_shf);
  for (POp o : {POp::popc, POp::clz, POp::bfind, POp::brev}) t.set(o, decode_count);
  for (POp o : {POp::bfe, POp::bfi, POp::bmsk, POp::szext}) t.set(o, decode_field);
  t.set(POp::fns, decode_fns);
  t.set(POp::lop3, decode_lop3);
  t.set(POp::prmt, decode_prmt);
  t.set(POp::dp4a, decode_dot);
  t.set(POp::dp2a, decode_dot);
}

}  // namespace cgp::emu
