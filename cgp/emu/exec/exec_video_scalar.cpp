// SPDX-License-Identifier: Apache-2.0
// The scalar video instructions: one 33-bit intermediate per lane, then saturation and a second operation.
// PTX ISA, "Scalar Video Instructions". Byte and halfword selectors are not in the grammar.
#include <algorithm>

#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;

namespace {
enum Kind : std::uint8_t { add, sub, distance, least, most, left, right, set };
enum Flags : std::uint16_t {
  kSignedA = 1,
  kSignedB = 2,
  kSignedD = 4,
  kSaturate = 8,
  kThenAdd = 16,
  kThenMin = 32,
  kThenMax = 64,
  kWrap = 128,
  kPlusOne = 256  // vmad.po
};

std::int64_t extend(std::uint32_t x, bool sign) {
  return sign ? std::int64_t(std::int32_t(x)) : std::int64_t(x);
}

std::int64_t primary(const Op& op, std::int64_t a, std::int64_t b, std::uint32_t raw_b) {
  switch (op.kind) {
    case add:
      return a + b;
    case sub:
      return a - b;
    case distance:
      return a < b ? b - a : a - b;
    case least:
      return std::min(a, b);
    case most:
      return std::max(a, b);
    case left:
    case right: {
      const std::uint32_t n = op.small & kWrap ? raw_b & 31 : std::min<std::uint32_t>(raw_b, 32);
      return op.kind == left ? std::int64_t(std::uint64_t(a) << n) : a >> n;
    }
    default:
      break;
  }
  const int which = a < b ? 1 : a == b ? 2 : 4;
  return (op.imm & which) != 0;
}

std::int64_t clamp_to(std::int64_t v, bool sign) {
  return sign ? std::clamp<std::int64_t>(v, INT32_MIN, INT32_MAX)
              : std::clamp<std::int64_t>(v, 0, UINT32_MAX);
}

void exec_scalar(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint32_t>(op.a);
  const auto* b = w.row<std::uint32_t>(op.b);
  const auto* c = w.row<std::uint32_t>(op.c == kNoLoc ? op.a : op.c);
  const bool to_signed = op.small & kSignedD;
  for_lanes(w.active, [&](int l) {
    std::int64_t v = primary(op, extend(a[l], op.small & kSignedA), extend(b[l], op.small & kSignedB), b[l]);
    if (op.small & kSaturate) v = clamp_to(v, to_signed);
    if (op.small & kThenAdd) v += c[l];
    if (op.small & (kThenMin | kThenMax)) {
      const std::int64_t x = extend(std::uint32_t(v), to_signed), y = extend(c[l], to_signed);
      v = op.small & kThenMin ? std::min(x, y) : std::max(x, y);
    }
    w.row<std::uint32_t>(op.d)[l] = std::uint32_t(v);
  });
}

// One signed factor makes all three operands signed (measured).
void exec_vmad(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint32_t>(op.a);
  const auto* b = w.row<std::uint32_t>(op.b);
  const auto* c = w.row<std::uint32_t>(op.c);
  const bool sign = op.small & (kSignedA | kSignedB);
  for_lanes(w.active, [&](int l) {
    __extension__ using Wide = __int128;
    Wide v =
        Wide(extend(a[l], sign)) * extend(b[l], sign) + extend(c[l], sign) + (op.small & kPlusOne ? 1 : 0);
    v >>= op.imm;
    if (op.small & kSaturate) {
      const Wide low = sign ? Wide(INT32_MIN) : Wide(0), high = sign ? Wide(INT32_MAX) : Wide(UINT32_MAX);
      v = v < low ? low : v > high ? high : v;
    }
    w.row<std::uint32_t>(op.d)[l] = std::uint32_t(v);
  });
}

// vset has no type of its result; its second operation takes that of a (measured).
std::uint16_t signs(const ptx::Inst& i, bool result_first) {
  const int first = result_first ? 1 : 0;
  return std::uint16_t((ptx::is_signed(i.type(first)) ? kSignedA : 0) |
                       (ptx::is_signed(i.type(first + 1)) ? kSignedB : 0) |
                       (ptx::is_signed(i.type(0)) ? kSignedD : 0));
}

void sources(Decoder& d, const ptx::Inst& i, Op& op) {
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  if (i.operands.size() > 3) op.c = d.source(d.operand(i, 3), Mod::b32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
}

template <Kind K>
void decode_scalar(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i,
        {Mod::sat, Mod::add, Mod::min, Mod::max, Mod::clamp, Mod::wrap, Mod::eq, Mod::ne, Mod::lt, Mod::le,
         Mod::gt, Mod::ge});
  op.kind = K;
  op.small =
      std::uint16_t(signs(i, K != set) | (i.has(Mod::sat) ? kSaturate : 0) | (i.has(Mod::wrap) ? kWrap : 0));
  op.imm = i.has(Mod::eq)   ? 2
           : i.has(Mod::ne) ? 5
           : i.has(Mod::lt) ? 1
           : i.has(Mod::le) ? 3
           : i.has(Mod::gt) ? 4
                            : 6;
  if (i.operands.size() > 3)
    op.small |= i.has(Mod::add) ? kThenAdd : i.has(Mod::min) ? kThenMin : i.has(Mod::max) ? kThenMax : 0;
  sources(d, i, op);
  op.fn = exec_scalar;
}

void decode_vmad(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::sat, Mod::po, Mod::shr7, Mod::shr15});
  op.small =
      std::uint16_t(signs(i, true) | (i.has(Mod::sat) ? kSaturate : 0) | (i.has(Mod::po) ? kPlusOne : 0));
  op.imm = i.has(Mod::shr7) ? 7 : i.has(Mod::shr15) ? 15 : 0;
  sources(d, i, op);
  op.fn = exec_vmad;
}
}  // namespace

void add_scalar_video(Table& t) {
  t.set(POp::vadd, decode_scalar<add>);
  t.set(POp::vsub, decode_scalar<sub>);
  t.set(POp::vabsdiff, decode_scalar<distance>);
  t.set(POp::vmin, decode_scalar<least>);
  t.set(POp::vmax, decode_scalar<most>);
  t.set(POp::vshl, decode_scalar<left>);
  t.set(POp::vshr, decode_scalar<right>);
  t.set(POp::vset, decode_scalar<set>);
  t.set(POp::vmad, decode_vmad);
}

}  // namespace cgp::emu
