// SPDX-License-Identifier: Apache-2.0
// cvt between all scalar types in all roundings, packed 16-, 8-, 6- and 4-bit formats, tf32, cvt.pack.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/core/handlers.h"
#include "cgp/emu/core/rounding.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"
#include "cgp/emu/exec/exec_convert_random.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
struct Conversion {
  Mod to = Mod::s32, from = Mod::s32;
  Round round = Round::rn;
  bool to_integral = false;  ///< rni rzi rmi rpi
  bool ftz = false, sat = false, satfinite = false, relu = false;
  int from_cell = 32, to_cell = 32;
};

// ---------------------------------------------------------------- scalar values
double float_value(Mod t, std::uint64_t bits, bool ftz) {
  switch (t) {
    case Mod::f16:
      return double(half::from_bits(std::uint16_t(bits)));
    case Mod::bf16:
      return double(bfloat16::from_bits(std::uint16_t(bits)));
    case Mod::f32: {
      auto u = std::uint32_t(bits);
      if (ftz && !(u & 0x7f800000u)) u &= 0x80000000u;
      return double(std::bit_cast<float>(u));
    }
    default:
      return std::bit_cast<double>(bits);
  }
}

struct Format {
  int ebits, mbits;
};
Format format_of(Mod t) {
  switch (t) {
    case Mod::f16:
      return {5, 10};
    case Mod::bf16:
      return {8, 7};
    case Mod::f32:
      return {8, 23};
    default:
      return {11, 52};
  }
}
std::uint64_t nan_bits(Mod t) {
  return t == Mod::f32 ? 0x7fffffffu : t == Mod::f64 ? 0xfff8000000000000ull : 0x7fffu;
}

double round_integral(double v, Round r) {
  switch (r) {
    case Round::rn: {
      const double f = std::floor(v), d = v - f;
      if (d != 0.5) return d < 0.5 ? f : f + 1;
      return std::fmod(f, 2) == 0 ? f : f + 1;
    }
    case Round::rm:
      return std::floor(v);
    case Round::rp:
      return std::ceil(v);
    default:
      return std::trunc(v);
  }
}

std::uint64_t encode(Mod t, double v, Round r) {
  const Format f = format_of(t);
  if (v != v) return nan_bits(t);
  if (std::isinf(v))
    return (std::uint64_t(std::signbit(v)) << (f.ebits + f.mbits)) | std::uint64_t((1 << f.ebits) - 1)
                                                                         << f.mbits;
  return encode_double(v, f.ebits, f.mbits, r);
}

// What becomes of a NaN, by measurement: conversions to or from f64 keep sign and upper payload bits and make
// it quiet, copies and f32 from bf16 keep every bit; the others give the canonical NaN.
std::uint64_t nan_result(const Conversion& c, std::uint64_t bits) {
  const bool copy = c.to == c.from && !c.to_integral && !c.ftz && (c.to == Mod::f32 || c.to == Mod::f64);
  if (copy) return bits;
  if (c.to == Mod::f32 && c.from == Mod::bf16 && !c.ftz) return bits << 16 & 0xffffffffu;
  if (c.to != Mod::f64 && c.from != Mod::f64) return nan_bits(c.to);
  if (c.ftz && c.from == Mod::f32) bits = 0x7fffffffu;
  const Format from = format_of(c.from), to = format_of(c.to);
  const std::uint64_t fraction = bits & ((1ull << from.mbits) - 1),
                      sign = bits >> (from.ebits + from.mbits) & 1;
  const std::uint64_t payload =
      to.mbits > from.mbits ? fraction << (to.mbits - from.mbits) : fraction >> (from.mbits - to.mbits);
  return sign << (to.ebits + to.mbits) | std::uint64_t((1 << to.ebits) - 1) << to.mbits | payload |
         1ull << (to.mbits - 1);
}

std::uint64_t float_to_float(const Conversion& c, std::uint64_t bits) {
  // f16 from f32 ignores .ftz: its inputs are not flushed (measured).
  double v = float_value(c.from, bits, c.ftz && c.to != Mod::f16);
  if (v != v && !c.sat && !c.satfinite && !c.relu) return nan_result(c, bits);
  if (c.to_integral && std::isfinite(v)) {
    const double r = round_integral(v, c.round);
    v = r == 0 ? std::copysign(0.0, v) : r;
  }
  if (c.sat) v = v > 0 ? std::min(v, 1.0) : 0.0;  // NaN gives 0
  if (c.relu && v < 0) v = 0;
  if (c.relu && v == 0) v = 0.0;
  std::uint64_t r = encode(c.to, v, c.to_integral ? Round::rn : c.round);
  const Format f = format_of(c.to);
  const std::uint64_t inf = std::uint64_t((1 << f.ebits) - 1) << f.mbits,
                      magnitude = (1ull << (f.ebits + f.mbits)) - 1;
  if (c.satfinite && (r & magnitude) == inf) --r;
  if (c.ftz && c.to == Mod::f32 && !(r & 0x7f800000u)) r &= 0x80000000u;
  return r;
}

int int_bits(Mod t) { return ptx::type_bits(t); }

std::uint64_t float_to_int(const Conversion& c, std::uint64_t bits) {
  const double v = float_value(c.from, bits, c.ftz);
  const int n = int_bits(c.to);
  const bool sign = ptx::is_signed(c.to);
  if (v != v) {  // from f64: the most negative number of the type, whether signed or not
    if (n == 64) return 0x8000000000000000ull;
    return c.from != Mod::f64 ? 0 : sign ? ~0ull << (n - 1) : 1ull << (n - 1);
  }
  const double r = round_integral(v, c.round);
  const double least = sign ? -std::ldexp(1.0, n - 1) : 0.0, beyond = std::ldexp(1.0, sign ? n - 1 : n);
  if (r < least) return sign ? ~0ull << (n - 1) : 0;
  if (r >= beyond) return (sign ? 1ull << (n - 1) : n == 64 ? 0ull : 1ull << n) - 1;
  return sign ? std::uint64_t(std::int64_t(r)) : std::uint64_t(r);
}

// The source as a sign and a magnitude.
std::uint64_t magnitude_of(Mod t, std::uint64_t bits, bool& negative) {
  const int n = int_bits(t);
  if (n < 64) bits &= (1ull << n) - 1;
  negative = ptx::is_signed(t) && (bits >> (n - 1) & 1);
  if (!negative) return bits;
  const std::uint64_t extended = n < 64 ? bits | ~0ull << n : bits;
  return 0 - extended;
}

std::uint64_t int_to_float(const Conversion& c, std::uint64_t bits) {
  bool negative = false;
  const std::uint64_t m = magnitude_of(c.from, bits, negative);
  if (c.sat && (negative || m)) {
    const double v = negative ? 0.0 : 1.0;
    return encode(c.to, v, Round::rn);
  }
  const Format f = format_of(c.to);
  return encode_exact(negative && m, m, 0, f.ebits, f.mbits, c.round);
}

std::uint64_t int_to_int(const Conversion& c, std::uint64_t bits) {
  bool negative = false;
  const std::uint64_t m = magnitude_of(c.from, bits, negative);
  const std::uint64_t value = negative ? 0 - m : m;
  const int n = int_bits(c.to);
  if (c.sat) {
    if (ptx::is_signed(c.to)) {
      const std::uint64_t most = (1ull << (n - 1)) - 1;
      if (negative) return m > most + 1 ? ~most : value;
      return std::min<std::uint64_t>(m, most);
    }
    if (negative) return 0;
    return n == 64 ? m : std::min<std::uint64_t>(m, (1ull << n) - 1);
  }
  if (n == 64) return value;
  const std::uint64_t low = value & ((1ull << n) - 1);
  return ptx::is_signed(c.to) && (low >> (n - 1) & 1) ? low | ~0ull << n : low;
}

void exec_convert(Warp& w, const Op& op) {
  const Conversion& c = op.data_as<Conversion>();
  const bool from_float = ptx::is_float(c.from), to_float = ptx::is_float(c.to);
  for_lanes(w.active, [&](int l) {
    const std::uint64_t x = c.from_cell == 64 ? w.row<std::uint64_t>(op.a)[l] : w.row<std::uint32_t>(op.a)[l];
    const std::uint64_t r = from_float ? (to_float ? float_to_float(c, x) : float_to_int(c, x))
                                       : (to_float ? int_to_float(c, x) : int_to_int(c, x));
    if (c.to_cell == 64)
      w.row<std::uint64_t>(op.d)[l] = r;
    else
      w.row<std::uint32_t>(op.d)[l] = std::uint32_t(r);
  });
}

// ---------------------------------------------------------------- packed formats
// Formats without infinity below 8 bits: saturate to the largest value, NaN too.
std::uint32_t encode_small(double v, int ebits, int mbits) {
  const std::uint32_t sign = std::uint32_t(std::signbit(v)) << (ebits + mbits);
  const std::uint32_t most = (1u << (ebits + mbits)) - 1;
  if (v != v) return most;
  const int bias = (1 << (ebits - 1)) - 1;
  const double scaled = std::fabs(v);
  const double largest = (2.0 - std::ldexp(1.0, -mbits)) * std::ldexp(1.0, (1 << ebits) - 1 - bias);
  if (scaled >= largest) return sign | most;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(scaled == 0 ? 1.0 : scaled), 1 - bias) - mbits);
  const double r = round_integral(scaled / unit, Round::rn) * unit;
  if (r >= std::ldexp(1.0, 1 - bias)) {
    const int e = std::ilogb(r);
    const auto m = std::uint32_t(std::ldexp(r, mbits - e)) - (1u << mbits);
    return std::min(sign | (std::uint32_t(e + bias) << mbits) | m, sign | most);
  }
  return sign | std::uint32_t(r / std::ldexp(1.0, 1 - bias - mbits));
}

std::uint32_t encode_ue8m0(double v, bool up) {
  if (v != v) return 0xff;
  if (v <= 0) return 0;
  if (std::isinf(v)) return 0xfe;
  int e = std::ilogb(v);
  if (up && std::ldexp(1.0, e) < v) ++e;
  return std::uint32_t(std::clamp(e + 127, 0, 254));
}

std::uint32_t encode_piece(Mod t, double v, const Conversion& c) {
  if (c.relu && !(v > 0) && v == v) v = 0;
  switch (t) {
    case Mod::e4m3x2:
      return float8_e4m3(v).bits;
    case Mod::e5m2x2:
      return float8_e5m2(v).bits;
    case Mod::e2m3x2:
      return encode_small(v, 2, 3);
    case Mod::e3m2x2:
      return encode_small(v, 3, 2);
    case Mod::e2m1x2:
      return encode_small(v, 2, 1);
    case Mod::ue8m0x2:
      return encode_ue8m0(v, c.round == Round::rp);
    default: {
      std::uint64_t r = encode(t == Mod::f16x2 ? Mod::f16 : Mod::bf16, v, c.round);
      const std::uint64_t inf = t == Mod::f16x2 ? 0x7c00 : 0x7f80;
      if (c.satfinite && (r & 0x7fff) == inf) --r;
      return std::uint32_t(r);
    }
  }
}

double decode_piece(Mod t, std::uint32_t bits) {
  switch (t) {
    case Mod::e4m3x2:
      return double(float8_e4m3::from_bits(std::uint8_t(bits)));
    case Mod::e5m2x2:
      return double(float8_e5m2::from_bits(std::uint8_t(bits)));
    case Mod::e2m3x2:
      return decode_float(bits & 0x3f, 2, 3, false);
    case Mod::e3m2x2:
      return decode_float(bits & 0x3f, 3, 2, false);
    case Mod::e2m1x2:
      return decode_float(bits & 0xf, 2, 1, false);
    case Mod::ue8m0x2:
      return (bits & 0xff) == 0xff ? std::nan("") : std::ldexp(1.0, int(bits & 0xff) - 127);
    case Mod::f16x2:
      return double(half::from_bits(std::uint16_t(bits)));
    default:
      return double(bfloat16::from_bits(std::uint16_t(bits)));
  }
}
int storage_bits(Mod t) {  // 6-bit formats lie in bytes
  return t == Mod::e2m1x2 ? 4 : ptx::type_bits(t) == 32 ? 16 : 8;
}

// d = {hi: a, lo: b} from f32 (op.b) or from the halves of one packed register.
void exec_pack(Warp& w, const Op& op) {
  const Conversion& c = op.data_as<Conversion>();
  const int n = storage_bits(c.to);
  for_lanes(w.active, [&](int l) {
    double hi, lo;
    if (c.from == Mod::f32) {
      hi = float_value(Mod::f32, w.row<std::uint32_t>(op.a)[l], c.ftz);
      lo = float_value(Mod::f32, w.row<std::uint32_t>(op.b)[l], c.ftz);
    } else {
      const std::uint32_t x = w.row<std::uint32_t>(op.a)[l];
      const int m = storage_bits(c.from);
      hi = decode_piece(c.from, x >> m & ((1u << m) - 1));
      lo = decode_piece(c.from, x & ((1u << m) - 1));
    }
    w.row<std::uint32_t>(op.d)[l] = encode_piece(c.to, hi, c) << n | encode_piece(c.to, lo, c);
  });
}

// tf32: f32 with 10 mantissa bits; the 13 bits below are zero.
void exec_tf32(Warp& w, const Op& op) {
  const Conversion& c = op.data_as<Conversion>();
  for_lanes(w.active, [&](int l) {
    const std::uint32_t x = w.row<std::uint32_t>(op.a)[l];
    std::uint32_t r;
    if ((x & 0x7fffffffu) > 0x7f800000u)
      r = c.round == Round::rna ? x & 0xffffe000u : 0x7fffe000u;
    else if ((x & 0x7fffffffu) == 0x7f800000u)
      r = x;
    else
      r = std::uint32_t(encode_double(double(std::bit_cast<float>(x)), 8, 10, c.round) << 13);
    // The card takes one unit off whatever lies beyond the largest number, a NaN of .rna included (measured).
    if (c.satfinite && (r & 0x7fffffffu) >= 0x7f800000u &&
        ((x & 0x7fffffffu) <= 0x7f800000u || c.round == Round::rna))
      r -= 0x2000;
    if (c.relu && (r & 0x80000000u) && (r & 0x7fffffffu) <= 0x7f800000u) r = 0;
    w.row<std::uint32_t>(op.d)[l] = r;
  });
}

// ---------------------------------------------------------------- decoding
bool packed(Mod t) {
  switch (t) {
    case Mod::f16x2:
    case Mod::bf16x2:
    case Mod::e4m3x2:
    case Mod::e5m2x2:
    case Mod::e2m3x2:
    case Mod::e3m2x2:
    case Mod::e2m1x2:
    case Mod::ue8m0x2:
      return true;
    default:
      return false;
  }
}

void set_rounding(const ptx::Inst& i, Conversion& c) {
  const bool from_float = ptx::is_float(c.from), to_int = !ptx::is_float(c.to);
  c.round = from_float && to_int ? Round::rz : Round::rn;
  for (Mod m : i.mods) switch (m) {
      case Mod::rn:
        c.round = Round::rn;
        break;
      case Mod::rz:
        c.round = Round::rz;
        break;
      case Mod::rm:
        c.round = Round::rm;
        break;
      case Mod::rp:
        c.round = Round::rp;
        break;
      case Mod::rna:
        c.round = Round::rna;
        break;
      case Mod::rni:
        c.round = Round::rn, c.to_integral = true;
        break;
      case Mod::rzi:
        c.round = Round::rz, c.to_integral = true;
        break;
      case Mod::rmi:
        c.round = Round::rm, c.to_integral = true;
        break;
      case Mod::rpi:
        c.round = Round::rp, c.to_integral = true;
        break;
      default:
        break;
    }
}

void decode_packed(Decoder& d, const ptx::Inst& i, Op& op, const Conversion& c) {
  const bool from_packed = packed(c.from);
  if (!from_packed && c.from != Mod::f32) d.unsupported(cat("packing from .", ptx::name(c.from)));
  if (from_packed && !packed(c.to)) d.unsupported(cat("unpacking to .", ptx::name(c.to)));
  op.a = d.source(d.operand(i, 1), c.from);
  if (!from_packed) op.b = d.source(d.operand(i, 2), Mod::f32);
  op.d = d.dest(d.operand(i, 0), c.to);
  op.data = d.keep(c);
  Handler fast = nullptr;
  if (c.round == Round::rn && !c.relu && !c.satfinite && !c.ftz)
    fast =
        d.avx512() ? isa_avx512::convert_handler(c.to, c.from) : isa_portable::convert_handler(c.to, c.from);
  op.fn = fast ? fast : exec_pack;
}

void decode_cvt(Decoder& d, const ptx::Inst& i, Op& op) {
  if (i.has(Mod::rs)) return decode_random_cvt(d, i, op);
  allow(d, i,
        {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::rna, Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi, Mod::ftz,
         Mod::sat, Mod::satfinite, Mod::relu});
  Conversion c;
  c.to = i.type(0);
  c.from = i.type(1);
  c.ftz = i.has(Mod::ftz);
  c.sat = i.has(Mod::sat);
  c.satfinite = i.has(Mod::satfinite);
  c.relu = i.has(Mod::relu);
  set_rounding(i, c);
  if (packed(c.to) || packed(c.from)) return decode_packed(d, i, op, c);
  const ptx::Operand& from = d.operand(i, 1);
  const ptx::Operand& to = d.operand(i, 0);
  if (c.to == Mod::tf32) {
    op.a = d.source(from, Mod::f32);
    op.d = d.dest(to, Mod::b32);
    op.data = d.keep(c);
    op.fn = exec_tf32;
    return;
  }
  for (Mod t : {c.to, c.from})
    if (ptx::is_float(t) && t != Mod::f16 && t != Mod::bf16 && t != Mod::f32 && t != Mod::f64)
      d.unsupported(cat("the type .", ptx::name(t)));
  // Registers may be wider than the types.
  auto cell = [&](const ptx::Operand& o, Mod t) {
    const int have = d.cell_bits(o), need = ptx::type_bits(t) > 32 ? 64 : 32;
    return std::max(have, need);
  };
  c.from_cell = cell(from, c.from);
  c.to_cell = cell(to, c.to);
  const bool wide_from = c.from_cell == 64 && ptx::type_bits(c.from) <= 32;
  const bool wide_to = c.to_cell == 64 && ptx::type_bits(c.to) <= 32;
  op.a = d.source(from, wide_from ? Mod::b64 : c.from);
  op.d = d.dest(to, wide_to ? Mod::b64 : c.to);
  op.data = d.keep(c);
  op.fn = exec_convert;
  const bool natural = c.round == (ptx::is_float(c.from) && !ptx::is_float(c.to) ? Round::rz : Round::rn);
  if (wide_from || wide_to || c.ftz || c.sat || c.satfinite || c.relu || !natural ||
      (c.to_integral && ptx::is_float(c.to)))
    return;
  const Handler fast =
      d.avx512() ? isa_avx512::convert_handler(c.to, c.from) : isa_portable::convert_handler(c.to, c.from);
  if (fast) op.fn = fast;
}

// ---------------------------------------------------------------- cvt.pack
void exec_cvt_pack(Warp& w, const Op& op) {
  const int n = op.bytes;
  const bool to_signed = op.kind & 1, from_signed = op.kind & 2;
  const std::int64_t most = to_signed ? (1ll << (n - 1)) - 1 : (1ll << n) - 1;
  const std::int64_t least = to_signed ? -(1ll << (n - 1)) : 0;
  auto piece = [&](std::uint32_t x) {
    const std::int64_t v = from_signed ? std::int64_t(std::int32_t(x)) : std::int64_t(x);
    return std::uint32_t(std::clamp(v, least, most)) & std::uint32_t((1ull << n) - 1);
  };
  for_lanes(w.active, [&](int l) {
    std::uint64_t r =
        std::uint64_t(piece(w.row<std::uint32_t>(op.a)[l])) << n | piece(w.row<std::uint32_t>(op.b)[l]);
    if (op.c != kNoLoc) r |= std::uint64_t(w.row<std::uint32_t>(op.c)[l]) << (2 * n);
    w.row<std::uint32_t>(op.d)[l] = std::uint32_t(r);
  });
}

void decode_cvt_pack(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::sat});
  const Mod to = i.type(0), from = i.type(1);
  op.bytes = std::uint8_t(ptx::type_bits(to));
  op.kind = std::uint8_t((to == Mod::s16 || to == Mod::s8 || to == Mod::s4 || to == Mod::s2 ? 1 : 0) |
                         (from == Mod::s32 ? 2 : 0));
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  if (i.operands.size() > 3) op.c = d.source(d.operand(i, 3), Mod::b32);
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  op.fn = exec_cvt_pack;
}
}  // namespace

void add_convert(Table& t) {
  t.set(POp::cvt, decode_cvt);
  t.set(POp::cvt_pack, decode_cvt_pack);
}

}  // namespace cgp::emu
