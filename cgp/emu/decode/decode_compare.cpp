// SPDX-License-Identifier: Apache-2.0
// setp, set, selp, slct.
#include "cgp/base/text.h"
#include "cgp/emu/core/handlers.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
struct Comparison {
  std::uint16_t bits = 0;
  bool as_unsigned = false;
};

Comparison comparison(Decoder& d, const ptx::Inst& i) {
  for (Mod m : i.mods) switch (m) {
      case Mod::eq:
        return {kEqual, false};
      case Mod::ne:
        return {kLess | kGreater, false};
      case Mod::lt:
        return {kLess, false};
      case Mod::le:
        return {kLess | kEqual, false};
      case Mod::gt:
        return {kGreater, false};
      case Mod::ge:
        return {kGreater | kEqual, false};
      case Mod::lo:
        return {kLess, true};
      case Mod::ls:
        return {kLess | kEqual, true};
      case Mod::hi:
        return {kGreater, true};
      case Mod::hs:
        return {kGreater | kEqual, true};
      case Mod::equ:
        return {kEqual | kUnordered, false};
      case Mod::neu:
        return {kLess | kGreater | kUnordered, false};
      case Mod::ltu:
        return {kLess | kUnordered, false};
      case Mod::leu:
        return {kLess | kEqual | kUnordered, false};
      case Mod::gtu:
        return {kGreater | kUnordered, false};
      case Mod::geu:
        return {kGreater | kEqual | kUnordered, false};
      case Mod::num:
        return {kLess | kEqual | kGreater, false};
      case Mod::nan:
        return {kUnordered, false};
      default:
        break;
    }
  d.unsupported("without a comparison operator");
}

std::uint8_t combination(const ptx::Inst& i) {
  return i.has(Mod::and_) ? 1 : i.has(Mod::or_) ? 2 : i.has(Mod::xor_) ? 3 : 0;
}

void compare_into(Decoder& d, const ptx::Inst& i, Op& op, Mod t) {
  allow(d, i, {Mod::eq,  Mod::ne,  Mod::lt,   Mod::le,  Mod::gt,   Mod::ge,  Mod::lo,  Mod::ls,
               Mod::hi,  Mod::hs,  Mod::equ,  Mod::neu, Mod::ltu,  Mod::leu, Mod::gtu, Mod::geu,
               Mod::num, Mod::nan, Mod::and_, Mod::or_, Mod::xor_, Mod::ftz});
  const Comparison c = comparison(d, i);
  Mod compared = t;
  if (c.as_unsigned && !ptx::is_float(t))
    compared = ptx::type_bits(t) == 16 ? Mod::u16 : ptx::type_bits(t) == 32 ? Mod::u32 : Mod::u64;
  op.small = c.bits;
  op.kind = combination(i);
  op.vec = i.has(Mod::ftz) ? 2 : 1;
  op.a = d.source(d.operand(i, 1), t);
  op.b = d.source(d.operand(i, 2), t);
  if (op.kind) op.c = d.pred(d.operand(i, 3));
  op.fn = d.avx512() ? isa_avx512::setp_handler(compared, i.has(Mod::ftz))
                     : isa_portable::setp_handler(compared, i.has(Mod::ftz));
  if (!op.fn) d.unsupported(cat("comparison of .", ptx::name(t)));
}

void decode_setp(Decoder& d, const ptx::Inst& i, Op& op) {
  compare_into(d, i, op, i.type());
  const ptx::Operand& out = d.operand(i, 0);
  ptx::Operand first = out;
  first.reg2 = ptx::kNone;
  op.d = d.pred_dest(first);
  if (out.reg2 != ptx::kNone) op.e = d.pred_dest(ptx::Operand::of(out.reg2));
}

// set: the predicate becomes all ones, 1.0 or 0 in a register. d = value, a = p, b = q (high half), imm =
// pattern.
template <class T>
void expand(Warp& w, const Op& op) {
  const Mask p = w.pred(op.a);
  T* d = w.row<T>(op.d);
  for_lanes(w.active, [&](int l) { d[l] = p >> l & 1 ? T(op.imm) : T(0); });
}
void expand_pair(Warp& w, const Op& op) {
  const Mask p = w.pred(op.a), q = w.pred(op.b);
  auto* d = w.row<std::uint32_t>(op.d);
  const auto one = std::uint32_t(op.imm);
  for_lanes(w.active, [&](int l) { d[l] = (p >> l & 1 ? one : 0) | (q >> l & 1 ? one << 16 : 0); });
}

void decode_set(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod to = i.type(0), from = i.type(1);
  const bool pair = ptx::type_bits(from) == 32 && (from == Mod::f16x2 || from == Mod::bf16x2);
  Op test;
  compare_into(d, i, test, from);
  test.d = d.pred_dest(ptx::Operand::none());
  if (pair) test.e = d.pred_dest(ptx::Operand::none());
  d.prelude(test);
  op.a = test.d;
  op.b = test.e;
  op.d = d.dest(d.operand(i, 0), to);
  switch (to) {
    case Mod::f32:
      op.imm = 0x3f800000;
      break;
    case Mod::f16:
      op.imm = 0x3c00;
      break;
    case Mod::bf16:
      op.imm = 0x3f80;
      break;
    case Mod::f16x2:
      op.imm = 0x3c00;
      break;
    case Mod::bf16x2:
      op.imm = 0x3f80;
      break;
    case Mod::u16:
    case Mod::s16:
      op.imm = 0xffff;
      break;
    default:
      op.imm = pair ? 0xffff : -1;  // pairs put one result in each half
      break;
  }
  if (to == Mod::f64) d.unsupported("set into .f64");
  op.fn = pair ? expand_pair : Handler(expand<std::uint32_t>);
}

void decode_selp(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  const Mod t = i.type();
  op.a = d.source(d.operand(i, 1), t);
  op.b = d.source(d.operand(i, 2), t);
  op.c = d.pred(d.operand(i, 3));
  op.d = d.dest(d.operand(i, 0), t);
  op.fn = integer_for(d, IntOp::select, ptx::type_bits(t) == 64 ? Mod::b64 : Mod::b32);
}

void decode_slct(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::ftz});
  const Mod t = i.type(0), by = i.type(1);
  op.a = d.source(d.operand(i, 1), t);
  op.b = d.source(d.operand(i, 2), t);
  op.c = d.source(d.operand(i, 3), by);
  op.kind = by == Mod::f32;
  op.small = i.has(Mod::ftz);
  op.d = d.dest(d.operand(i, 0), t);
  op.fn = integer_for(d, IntOp::slct, ptx::type_bits(t) == 64 ? Mod::b64 : Mod::b32);
}
}  // namespace

void add_compare(Table& t) {
  t.set(POp::setp, decode_setp);
  t.set(POp::set, decode_set);
  t.set(POp::selp, decode_selp);
  t.set(POp::slct, decode_slct);
}

}  // namespace cgp::emu
