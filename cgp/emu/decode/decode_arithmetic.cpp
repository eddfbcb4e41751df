// SPDX-License-Identifier: Apache-2.0
// add sub mul mad fma div ... : one opcode serves integers, floats and halves; the type picks the handler.
#include "cgp/base/text.h"
#include "cgp/emu/core/handlers.h"
#include "cgp/emu/decode/decode_mixed.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

Handler integer_for(const Decoder& d, IntOp op, Mod t) {
  const Handler h = d.avx512() ? isa_avx512::integer_handler(op, t) : isa_portable::integer_handler(op, t);
  return h ? h : d.avx512() ? isa_avx512::logic_handler(op, t) : isa_portable::logic_handler(op, t);
}
Handler float_for(const Decoder& d, FloatOp op, Mod t, FloatMode m) {
  if (t == Mod::f32 || t == Mod::f64)
    return d.avx512() ? isa_avx512::float_handler(op, t, m) : isa_portable::float_handler(op, t, m);
  return d.avx512() ? isa_avx512::half_handler(op, t, m) : isa_portable::half_handler(op, t, m);
}

namespace {
bool integral(Mod t) { return !ptx::is_float(t); }

FloatMode mode_of(const ptx::Inst& i) {
  FloatMode m;
  m.rounding = i.has(Mod::rz) ? 1 : i.has(Mod::rm) ? 2 : i.has(Mod::rp) ? 3 : 0;
  m.ftz = i.has(Mod::ftz);
  m.sat = i.has(Mod::sat);
  m.relu = i.has(Mod::relu);
  return m;
}

void set_handler(Decoder& d, Op& op, Handler h, Mod t) {
  if (!h) d.unsupported(cat("the type .", ptx::name(t)));
  op.fn = h;
}

// d, a [, b [, c]] of types chosen by the caller.
void operands(Decoder& d, const ptx::Inst& i, Op& op, Mod dt, Mod at, Mod bt = ptx::kNoMod,
              Mod ct = ptx::kNoMod) {
  op.a = d.source(d.operand(i, 1), at);
  if (bt != ptx::kNoMod) op.b = d.source(d.operand(i, 2), bt);
  if (ct != ptx::kNoMod) op.c = d.source(d.operand(i, 3), ct);
  op.d = d.dest(d.operand(i, 0), dt);
}

Mod wider(Decoder& d, Mod t) {
  switch (t) {
    case Mod::u16:
      return Mod::u32;
    case Mod::s16:
      return Mod::s32;
    case Mod::u32:
      return Mod::u64;
    case Mod::s32:
      return Mod::s64;
    default:
      d.unsupported(cat(".wide of .", ptx::name(t)));
  }
}

void float_operation(Decoder& d, const ptx::Inst& i, Op& op, FloatOp f, Mod t, int arity) {
  const FloatMode m = mode_of(i);
  if (m.rounding && t == Mod::f32x2) return decode_pair(d, i, op, f, m);
  if (m.rounding && t != Mod::f32 && t != Mod::f64) d.unsupported("directed rounding of this type");
  op.small = std::uint16_t(m.rounding);
  if (t != Mod::f32 && t != Mod::f64)
    op.small = std::uint16_t((m.sat ? 1 : 0) | (m.relu ? 2 : 0) | (m.ftz ? 4 : 0));
  op.kind = std::uint8_t(f);
  operands(d, i, op, t, t, arity > 1 ? t : ptx::kNoMod, arity > 2 ? t : ptx::kNoMod);
  set_handler(d, op, float_for(d, f, t, m), t);
}

void decode_add_sub(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  const bool sub = i.op == POp::sub;
  if (!integral(t)) {
    allow(d, i, {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::ftz, Mod::sat});
    if (i.type(1) != ptx::kNoMod)
      return decode_mixed(d, i, op, sub ? FloatOp::sub : FloatOp::add, mode_of(i));
    return float_operation(d, i, op, sub ? FloatOp::sub : FloatOp::add, t, 2);
  }
  allow(d, i, {Mod::sat, Mod::cc});
  IntOp o = sub ? IntOp::sub : IntOp::add;
  if (i.has(Mod::sat)) o = sub ? IntOp::sub_sat : IntOp::add_sat;
  operands(d, i, op, t, t, t);
  if (i.has(Mod::cc)) return set_handler(d, op, carry_handler(sub ? IntOp::sub_cc : IntOp::add_cc, t), t);
  set_handler(d, op, integer_for(d, o, t), t);
}

void decode_mul(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  if (!integral(t)) {
    allow(d, i, {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::ftz, Mod::sat});
    if (i.type(1) != ptx::kNoMod) d.unsupported("mixed-precision mul");
    return float_operation(d, i, op, FloatOp::mul, t, 2);
  }
  allow(d, i, {Mod::lo, Mod::hi, Mod::wide});
  const IntOp o = i.has(Mod::wide) ? IntOp::mul_wide : i.has(Mod::hi) ? IntOp::mul_hi : IntOp::mul_lo;
  operands(d, i, op, o == IntOp::mul_wide ? wider(d, t) : t, t, t);
  set_handler(d, op, integer_for(d, o, t), t);
}

void decode_mad(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  if (!integral(t)) {
    allow(d, i, {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::ftz, Mod::sat});
    return float_operation(d, i, op, FloatOp::fma, t, 3);
  }
  allow(d, i, {Mod::lo, Mod::hi, Mod::wide, Mod::sat, Mod::cc});
  const bool hi = i.has(Mod::hi), in = i.op == POp::madc;
  if (in || i.has(Mod::cc)) {
    operands(d, i, op, t, t, t, t);
    const bool out = i.has(Mod::cc);
    const IntOp o =
        in ? (out ? (hi ? IntOp::madc_hi_cc : IntOp::madc_lo_cc) : (hi ? IntOp::madc_hi : IntOp::madc_lo))
           : (hi ? IntOp::mad_hi_cc : IntOp::mad_lo_cc);
    return set_handler(d, op, carry_handler(o, t), t);
  }
  IntOp o = i.has(Mod::wide) ? IntOp::mad_wide : hi ? IntOp::mad_hi : IntOp::mad_lo;
  if (i.has(Mod::sat)) o = IntOp::mad_hi_sat;
  const Mod dt = o == IntOp::mad_wide ? wider(d, t) : t;
  operands(d, i, op, dt, t, t, dt);
  set_handler(d, op, integer_for(d, o, t), t);
}

void decode_carry(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  allow(d, i, {Mod::cc});
  IntOp o = IntOp::addc;
  switch (i.op) {
    case POp::add_cc:
      o = IntOp::add_cc;
      break;
    case POp::addc:
      o = i.has(Mod::cc) ? IntOp::addc_cc : IntOp::addc;
      break;
    case POp::addc_cc:
      o = IntOp::addc_cc;
      break;
    case POp::sub_cc:
      o = IntOp::sub_cc;
      break;
    case POp::subc:
      o = i.has(Mod::cc) ? IntOp::subc_cc : IntOp::subc;
      break;
    default:
      o = IntOp::subc_cc;
      break;
  }
  operands(d, i, op, t, t, t);
  set_handler(d, op, carry_handler(o, t), t);
}

void decode_24(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  allow(d, i, {Mod::lo, Mod::hi, Mod::sat});
  const bool hi = i.has(Mod::hi), mad = i.op == POp::mad24;
  IntOp o = mad ? (hi ? IntOp::mad24_hi : IntOp::mad24_lo) : (hi ? IntOp::mul24_hi : IntOp::mul24_lo);
  if (i.has(Mod::sat)) o = IntOp::mad24_hi_sat;
  operands(d, i, op, t, t, t, mad ? t : ptx::kNoMod);
  set_handler(d, op, integer_for(d, o, t), t);
}

void decode_div(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  if (!integral(t)) {
    allow(d, i, {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::ftz, Mod::approx, Mod::full});
    return float_operation(d, i, op, i.has(Mod::approx) ? FloatOp::div_approx : FloatOp::div, t, 2);
  }
  allow(d, i, {});
  operands(d, i, op, t, t, t);
  set_handler(d, op, integer_for(d, i.op == POp::rem ? IntOp::rem : IntOp::div, t), t);
}

void decode_sad(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  allow(d, i, {});
  operands(d, i, op, t, t, t, t);
  set_handler(d, op, integer_for(d, IntOp::sad, t), t);
}

void decode_abs_neg(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  allow(d, i, {Mod::ftz});
  const bool abs = i.op == POp::abs;
  if (!integral(t)) return float_operation(d, i, op, abs ? FloatOp::abs : FloatOp::neg, t, 1);
  operands(d, i, op, t, t);
  set_handler(d, op, integer_for(d, abs ? IntOp::abs : IntOp::neg, t), t);
}

FloatOp min_max(const ptx::Inst& i, bool max) {
  const bool nan = i.has(Mod::NaN), x = i.has(Mod::xorsign);
  if (max)
    return nan ? (x ? FloatOp::max_nan_xorsign : FloatOp::max_nan)
               : (x ? FloatOp::max_xorsign : FloatOp::max);
  return nan ? (x ? FloatOp::min_nan_xorsign : FloatOp::min_nan) : (x ? FloatOp::min_xorsign : FloatOp::min);
}

void decode_min_max(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  const bool max = i.op == POp::max;
  if (!integral(t)) {
    allow(d, i, {Mod::ftz, Mod::NaN, Mod::xorsign, Mod::abs});
    const FloatOp f = min_max(i, max);
    if (i.operands.size() == 4) {  // three inputs (sm_100): the first two, then the third
      Op first;
      first.a = d.source(d.operand(i, 1), t);
      first.b = d.source(d.operand(i, 2), t);
      first.d = d.scratch(ptx::type_bits(t));
      set_handler(d, first, float_for(d, f, t, mode_of(i)), t);
      d.prelude(first);
      op.a = first.d;
      op.b = d.source(d.operand(i, 3), t);
      op.d = d.dest(d.operand(i, 0), t);
      return set_handler(d, op, float_for(d, f, t, mode_of(i)), t);
    }
    return float_operation(d, i, op, f, t, 2);
  }
  allow(d, i, {Mod::relu});
  const bool relu = i.has(Mod::relu);
  const IntOp o = max ? (relu ? IntOp::max_relu : IntOp::max) : (relu ? IntOp::min_relu : IntOp::min);
  operands(d, i, op, t, t, t);
  set_handler(d, op, integer_for(d, o, t), t);
}

void decode_fma(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::ftz, Mod::sat, Mod::relu, Mod::oob});
  if (i.type(1) != ptx::kNoMod) return decode_mixed(d, i, op, FloatOp::fma, mode_of(i));
  if (i.has(Mod::oob)) return decode_fma_oob(d, i, op, mode_of(i));
  float_operation(d, i, op, FloatOp::fma, i.type(), 3);
}

void decode_unary(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::ftz, Mod::approx});
  FloatOp f = FloatOp::rcp;
  switch (i.op) {
    case POp::sqrt:
      f = FloatOp::sqrt;
      break;
    case POp::rsqrt:
      f = FloatOp::rsqrt;
      break;
    case POp::sin:
      f = FloatOp::sin;
      break;
    case POp::cos:
      f = FloatOp::cos;
      break;
    case POp::lg2:
      f = FloatOp::lg2;
      break;
    case POp::ex2:
      f = FloatOp::ex2;
      break;
    case POp::tanh:
      f = FloatOp::tanh;
      break;
    default:
      break;
  }
  if (i.type() == Mod::f64 && i.has(Mod::approx) && i.has(Mod::ftz))
    f = f == FloatOp::rcp ? FloatOp::rcp_high : FloatOp::rsqrt_high;
  float_operation(d, i, op, f, i.type(), 1);
}

void decode_copysign(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  float_operation(d, i, op, FloatOp::copysign, i.type(), 2);
}

void decode_testp(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::finite, Mod::infinite, Mod::number, Mod::notanumber, Mod::normal, Mod::subnormal});
  const Mod t = i.type();
  op.kind = std::uint8_t(i.has(Mod::finite)       ? FloatOp::testp_finite
                         : i.has(Mod::infinite)   ? FloatOp::testp_infinite
                         : i.has(Mod::number)     ? FloatOp::testp_number
                         : i.has(Mod::notanumber) ? FloatOp::testp_notanumber
                         : i.has(Mod::normal)     ? FloatOp::testp_normal
                                                  : FloatOp::testp_subnormal);
  op.a = d.source(d.operand(i, 1), t);
  op.d = d.pred_dest(d.operand(i, 0));
  set_handler(d, op, float_for(d, FloatOp(op.kind), t, {}), t);
}
}  // namespace

void add_arithmetic(Table& t) {
  t.set(POp::add, decode_add_sub);
  t.set(POp::sub, decode_add_sub);
  t.set(POp::mul, decode_mul);
  t.set(POp::mad, decode_mad);
  t.set(POp::madc, decode_mad);
  for (POp o : {POp::add_cc, POp::addc, POp::addc_cc, POp::sub_cc, POp::subc, POp::subc_cc})
    t.set(o, decode_carry);
  t.set(POp::mul24, decode_24);
  t.set(POp::mad24, decode_24);
  t.set(POp::sad, decode_sad);
  t.set(POp::div, decode_div);
  t.set(POp::rem, decode_div);
  t.set(POp::abs, decode_abs_neg);
  t.set(POp::neg, decode_abs_neg);
  t.set(POp::min, decode_min_max);
  t.set(POp::max, decode_min_max);
  t.set(POp::fma, decode_fma);
  for (POp o : {POp::rcp, POp::sqrt, POp::rsqrt, POp::sin, POp::cos, POp::lg2, POp::ex2, POp::tanh})
    t.set(o, decode_unary);
  t.set(POp::copysign, decode_copysign);
  t.set(POp::testp, decode_testp);
}

}  // namespace cgp::emu
