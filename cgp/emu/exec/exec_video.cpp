// SPDX-License-Identifier: Apache-2.0
// The SIMD video instructions (two halfwords or four bytes in a register). The scalar ones are not executed.
#include <algorithm>

#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;

namespace {
enum Kind : std::uint8_t { add, sub, average, distance, least, most, set };
enum Flags : std::uint16_t {
  kSignedA = 1,
  kSignedB = 2,
  kSignedD = 4,
  kSaturate = 8,
  kAccumulate = 16,
  kCompare = 32
};

std::int64_t piece(std::uint32_t x, int at, int bits, bool sign) {
  const std::uint32_t v = x >> at & ((1u << bits) - 1);
  return sign && (v >> (bits - 1)) ? std::int64_t(v) - (1 << bits) : std::int64_t(v);
}

// Comparison codes of vset: bit 0 less, 1 equal, 2 greater.
std::int64_t element(const Op& op, std::int64_t a, std::int64_t b) {
  switch (op.kind) {
    case add:
      return a + b;
    case sub:
      return a - b;
    case average: {  // rounds halves up, away from minus infinity
      const std::int64_t s = a + b;
      return (s + (s >= 0 ? 1 : 0)) >> 1;
    }
    case distance:
      return a < b ? b - a : a - b;
    case least:
      return std::min(a, b);
    case most:
      return std::max(a, b);
    default:
      break;
  }
  const int which = a < b ? 1 : a == b ? 2 : 4;
  return (op.imm & which) != 0;
}

void exec_simd(Warp& w, const Op& op) {
  const int bits = op.bytes, n = 32 / bits;
  const bool to_signed = op.small & kSignedD;
  const std::int64_t top = to_signed ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
  const std::int64_t bottom = to_signed ? -(1ll << (bits - 1)) : 0;
  const auto* a = w.row<std::uint32_t>(op.a);
  const auto* b = w.row<std::uint32_t>(op.b);
  const auto* c = w.row<std::uint32_t>(op.c);
  for_lanes(w.active, [&](int l) {
    std::uint32_t packed = 0, sum = c[l];
    for (int i = 0; i < n; ++i) {
      std::int64_t r = element(op, piece(a[l], i * bits, bits, op.small & kSignedA),
                               piece(b[l], i * bits, bits, op.small & kSignedB));
      if (op.small & kSaturate) r = std::clamp(r, bottom, top);
      packed |= (std::uint32_t(r) & ((1u << bits) - 1)) << (i * bits);
      sum += std::uint32_t(r);
    }
    w.row<std::uint32_t>(op.d)[l] = op.small & kAccumulate ? sum : packed;
  });
}

template <Kind K, int Bits>
void decode_simd(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::sat, Mod::add, Mod::eq, Mod::ne, Mod::lt, Mod::le, Mod::gt, Mod::ge});
  op.kind = K;
  op.bytes = Bits;
  // vset has no type of its own result; the others name d, a, b.
  const int first = K == set ? 0 : 1;
  op.small = std::uint16_t((ptx::is_signed(i.type(first)) ? kSignedA : 0) |
                           (ptx::is_signed(i.type(first + 1)) ? kSignedB : 0) |
                           (K != set && ptx::is_signed(i.type(0)) ? kSignedD : 0) |
                           (i.has(Mod::sat) ? kSaturate : 0) | (i.has(Mod::add) ? kAccumulate : 0));
  op.imm = i.has(Mod::eq)   ? 2
           : i.has(Mod::ne) ? 5
           : i.has(Mod::lt) ? 1
           : i.has(Mod::le) ? 3
           : i.has(Mod::gt) ? 4
                            : 6;
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::b32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  op.fn = exec_simd;
}
}  // namespace

void add_video(Table& t) {
  t.set(POp::vadd2, decode_simd<add, 16>);
  t.set(POp::vsub2, decode_simd<sub, 16>);
  t.set(POp::vavrg2, decode_simd<average, 16>);
  t.set(POp::vabsdiff2, decode_simd<distance, 16>);
  t.set(POp::vmin2, decode_simd<least, 16>);
  t.set(POp::vmax2, decode_simd<most, 16>);
  t.set(POp::vset2, decode_simd<set, 16>);
  t.set(POp::vadd4, decode_simd<add, 8>);
  t.set(POp::vsub4, decode_simd<sub, 8>);
  t.set(POp::vavrg4, decode_simd<average, 8>);
  t.set(POp::vabsdiff4, decode_simd<distance, 8>);
  t.set(POp::vmin4, decode_simd<least, 8>);
  t.set(POp::vmax4, decode_simd<most, 8>);
  t.set(POp::vset4, decode_simd<set, 8>);
}

}  // namespace cgp::emu
