// SPDX-License-Identifier: Apache-2.0
// Moves and conversions.
#include "cgp/base/text.h"
#include "cgp/shader/lower.h"

namespace cgp::shader {

using ptx::Inst;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;

namespace {

Value word(Builder& b, std::uint32_t v) { return b.word(v); }

/// f16 bits to f32, subnormals, infinities and NaN included, by integers: unpack2x16float may flush subnormals.
Value half_to_float_body(Builder& b, const std::vector<Value>& a) {
  const Value h = a[0];
  const Value magnitude = b.keep(b.binary(Binary::and_, h, word(b, 0x7fff)), "magnitude");
  const Value shifted = b.keep(b.binary(Binary::shl, magnitude, word(b, 13)), "shifted");
  const Value normal = b.binary(Binary::add, shifted, word(b, 0x38000000));
  const Value special = b.binary(Binary::add, shifted, word(b, 0x70000000));
  const Value tiny = b.convert(
      Convert::bits, b.binary(Binary::mul, b.convert(Convert::to_float, magnitude), b.real(0x33800000)));
  const Value is_special = b.compare(Compare::ge, magnitude, word(b, 0x7c00));
  const Value is_tiny = b.compare(Compare::lt, magnitude, word(b, 0x400));
  const Value value = b.keep(b.select(is_tiny, tiny, b.select(is_special, special, normal)), "value");
  const Value sign = b.binary(Binary::shl, b.binary(Binary::and_, h, word(b, 0x8000)), word(b, 16));
  return b.convert(Convert::bits, b.binary(Binary::or_, value, sign));
}

/// f32 to f16 bits, to nearest even.
Value float_to_half_body(Builder& b, const std::vector<Value>& a) {
  const Value bits = b.keep(b.convert(Convert::bits, a[0]), "bits");
  const Value m = b.keep(b.binary(Binary::and_, bits, word(b, 0x7fffffff)), "magnitude");
  const Value sign = b.binary(Binary::and_, b.binary(Binary::shr, bits, word(b, 16)), word(b, 0x8000));
  // Normal: half of the last place, or one less if the last place is even, then cut.
  const Value odd = b.binary(Binary::and_, b.binary(Binary::shr, m, word(b, 13)), word(b, 1));
  const Value up = b.binary(Binary::add, b.binary(Binary::sub, m, word(b, 0x38000000)),
                            b.binary(Binary::add, odd, word(b, 0xfff)));
  const Value normal = b.binary(Binary::shr, up, word(b, 13));
  // Subnormal: in units of 2^-24, the addition of 2^23 rounds. Below 2^-25 that is 0.
  const Value small = b.binary(Binary::mul, b.unary(Unary::abs, a[0]), b.real(0x4b800000));
  const Value tiny = b.convert(Convert::to_integer,
                               b.unary(Unary::round_even, b.binary(Binary::min, small, b.real(0x44800000))));
  const Value nan = b.compare(Compare::gt, m, word(b, 0x7f800000));
  const Value big = b.compare(Compare::ge, m, word(b, 0x477ff000));
  const Value is_tiny = b.compare(Compare::lt, m, word(b, 0x38800000));
  const Value value =
      b.select(nan, word(b, 0x7fff), b.select(big, word(b, 0x7c00), b.select(is_tiny, tiny, normal)));
  return b.select(nan, word(b, 0x7fff), b.binary(Binary::or_, value, sign));
}

/// f32 to bf16 bits, to nearest even.
Value float_to_bfloat_body(Builder& b, const std::vector<Value>& a) {
  const Value bits = b.keep(b.convert(Convert::bits, a[0]), "bits");
  const Value odd = b.binary(Binary::and_, b.binary(Binary::shr, bits, word(b, 16)), word(b, 1));
  const Value up = b.binary(
      Binary::shr, b.binary(Binary::add, bits, b.binary(Binary::add, odd, word(b, 0x7fff))), word(b, 16));
  const Value nan =
      b.compare(Compare::gt, b.binary(Binary::and_, bits, word(b, 0x7fffffff)), word(b, 0x7f800000));
  return b.select(nan, word(b, 0x7fff), up);
}

// The 8-bit formats of one sign, kExponent and kMantissa bits (Micikevicius et al., "FP8 formats for deep learning",
// 2022): e4m3 has no infinity, and one NaN.
template <int kExponent, int kMantissa>
struct Fp8 {
  static constexpr std::uint32_t kBias = (1u << (kExponent - 1)) - 1;
  static constexpr std::uint32_t kShift = 23 - kMantissa;
  static constexpr std::uint32_t kRebias = (127 - kBias) << 23;
  /// f32 of the unit of the subnormals, and of one over it.
  static constexpr std::uint32_t kUnit = (128 - kBias - kMantissa) << 23;
  static constexpr std::uint32_t kPerUnit = (126 + kBias + kMantissa) << 23;
  static constexpr std::uint32_t kLargest = kMantissa == 3 ? 0x43e00000 : 0x47600000;  // 448, 57344
  static constexpr std::uint32_t kNan = kMantissa == 3 ? 0x7f : 0x7d;                  // from here on
  static constexpr std::uint32_t kInfinity = kMantissa == 3 ? 0x7f : 0x7c;

  /// Bits to f32.
  static Value decode(Builder& b, const std::vector<Value>& a) {
    const Value m = b.keep(b.binary(Binary::and_, a[0], word(b, 0x7f)), "magnitude");
    const Value normal = b.binary(Binary::add, b.binary(Binary::shl, m, word(b, kShift)), word(b, kRebias));
    const Value tiny =
        b.convert(Convert::bits, b.binary(Binary::mul, b.convert(Convert::to_float, m), b.real(kUnit)));
    const Value is_tiny = b.compare(Compare::lt, m, word(b, 1u << kMantissa));
    const Value finite = b.select(is_tiny, tiny, normal);
    const Value infinite =
        b.select(b.compare(Compare::ge, m, word(b, kInfinity)), word(b, 0x7f800000), finite);
    const Value value = b.select(b.compare(Compare::ge, m, word(b, kNan)), word(b, 0x7fffffff), infinite);
    const Value sign = b.binary(Binary::shl, b.binary(Binary::and_, a[0], word(b, 0x80)), word(b, 24));
    return b.convert(Convert::bits, b.binary(Binary::or_, value, sign));
  }

  /// f32 to bits: to nearest even, beyond the largest number that one.
  static Value encode(Builder& b, const std::vector<Value>& a) {
    const Value bits = b.keep(b.convert(Convert::bits, a[0]), "bits");
    const Value x = b.keep(b.binary(Binary::min, b.unary(Unary::abs, a[0]), b.real(kLargest)), "x_abs");
    const Value m = b.keep(b.convert(Convert::bits, x), "magnitude");
    const Value odd = b.binary(Binary::and_, b.binary(Binary::shr, m, word(b, kShift)), word(b, 1));
    const Value half = b.binary(Binary::add, odd, word(b, (1u << (kShift - 1)) - 1));
    const Value normal =
        b.binary(Binary::shr, b.binary(Binary::add, b.binary(Binary::sub, m, word(b, kRebias)), half),
                 word(b, kShift));
    const Value units = b.binary(Binary::min, b.binary(Binary::mul, x, b.real(kPerUnit)), b.real(0x41800000));
    const Value tiny = b.convert(Convert::to_integer, b.unary(Unary::round_even, units));
    const Value is_tiny = b.compare(Compare::lt, m, word(b, kRebias + (1u << 23)));
    const Value sign = b.binary(Binary::and_, b.binary(Binary::shr, bits, word(b, 24)), word(b, 0x80));
    const Value value = b.binary(Binary::or_, b.select(is_tiny, tiny, normal), sign);
    const Value nan =
        b.compare(Compare::gt, b.binary(Binary::and_, bits, word(b, 0x7fffffff)), word(b, 0x7f800000));
    return b.select(nan, word(b, 0x7f), value);
  }
};
using E4m3 = Fp8<4, 3>;
using E5m2 = Fp8<5, 2>;

/// f32 to a word: saturated, NaN to 0.
Value float_to_unsigned_body(Builder& b, const std::vector<Value>& a) {
  const Value big = b.compare(Compare::ge, a[0], b.real(0x4f800000));
  const Value positive = b.compare(Compare::ge, a[0], b.real(0x3f800000));
  const Value fits = b.select(big, b.real(0), b.select(positive, a[0], b.real(0)));
  return b.select(big, word(b, 0xffffffff), b.convert(Convert::to_integer, fits));
}

Value float_to_signed_body(Builder& b, const std::vector<Value>& a) {
  const Value big = b.compare(Compare::ge, a[0], b.real(0x4f000000));
  const Value low = b.compare(Compare::le, a[0], b.real(0xcf000000));
  const Value inside = b.compare(Compare::lt, b.unary(Unary::abs, a[0]), b.real(0x4f000000));
  const Value fits = b.select(inside, a[0], b.real(0));
  const Value value = b.convert(Convert::to_integer_signed, fits);
  return b.select(big, word(b, 0x7fffffff), b.select(low, word(b, 0x80000000), value));
}

const Builder::Helper kHalfToFloat{"f16_to_f32", {Type::u32}, Type::f32, half_to_float_body};
const Builder::Helper kFloatToHalf{"f32_to_f16", {Type::f32}, Type::u32, float_to_half_body};
const Builder::Helper kFloatToBfloat{"f32_to_bf16", {Type::f32}, Type::u32, float_to_bfloat_body};
const Builder::Helper kE4m3ToFloat{"e4m3_to_f32", {Type::u32}, Type::f32, E4m3::decode};
const Builder::Helper kE5m2ToFloat{"e5m2_to_f32", {Type::u32}, Type::f32, E5m2::decode};
const Builder::Helper kFloatToE4m3{"f32_to_e4m3", {Type::f32}, Type::u32, E4m3::encode};
const Builder::Helper kFloatToE5m2{"f32_to_e5m2", {Type::f32}, Type::u32, E5m2::encode};
const Builder::Helper kFloatToUnsigned{"f32_to_u32", {Type::f32}, Type::u32, float_to_unsigned_body};
const Builder::Helper kFloatToSigned{"f32_to_s32", {Type::f32}, Type::u32, float_to_signed_body};

}  // namespace

Value Lowering::half_to_float(Mod type, Value v) {
  if (type == Mod::bf16) return as(Type::f32, bin(Binary::shl, v, u(16)));
  if (k_.layout.float16) return b_.convert(Convert::half_to_float, v);
  return b_.call(kHalfToFloat, {v});
}

Value Lowering::float_to_half(Mod type, Mod rounding, Value v) {
  if (rounding == Mod::rz && type == Mod::bf16) return bin(Binary::shr, as(Type::u32, v), u(16));
  if (rounding != Mod::rn) no("a shader rounds half types to nearest");
  if (type == Mod::f16 && k_.layout.float16) return b_.convert(Convert::float_to_half, v);
  return b_.call(type == Mod::f16 ? kFloatToHalf : kFloatToBfloat, {v});
}

/// .rni, .rzi, .rmi, .rpi of an f32.
Value Lowering::rounded(const Inst& i, Value v) {
  if (i.has(Mod::rni)) return b_.unary(Unary::round_even, v);
  if (i.has(Mod::rzi)) return b_.unary(Unary::trunc, v);
  if (i.has(Mod::rmi)) return b_.unary(Unary::floor, v);
  if (i.has(Mod::rpi)) return b_.unary(Unary::ceil, v);
  return v;
}

void Lowering::convert(const Inst& i) {
  const auto& o = i.operands;
  const Mod to = i.type(0), from = i.type(1);
  const auto is_half = [](Mod t) { return t == Mod::f16 || t == Mod::bf16; };
  const auto rounding = [&] {
    for (Mod r : {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::rna, Mod::rs})
      if (i.has(r)) return r;
    return Mod::rn;
  };
  if (to == Mod::f64 || from == Mod::f64) no("a shader has no type f64");
  if (i.has(Mod::relu)) no("a shader has no such conversion");
  const auto is_fp8 = [](Mod t) { return t == Mod::e4m3x2 || t == Mod::e5m2x2; };
  if (is_fp8(to) && (from == Mod::f32 || from == Mod::f16x2)) {
    const Builder::Helper& encode = to == Mod::e4m3x2 ? kFloatToE4m3 : kFloatToE5m2;
    Value high, low;
    if (from == Mod::f32) {
      high = read(o[1], Type::f32), low = read(o[2], Type::f32);
    } else {
      const Value pair = b_.keep(read(o[1], Type::u32));
      high = half_to_float(Mod::f16, bin(Binary::shr, pair, u(16)));
      low = half_to_float(Mod::f16, bin(Binary::and_, pair, u(0xffff)));
    }
    high = b_.call(encode, {high}), low = b_.call(encode, {low});
    return write(o[0], bin(Binary::or_, bin(Binary::shl, high, u(8)), low));
  }
  if (to == Mod::f16x2 && is_fp8(from)) {
    const Builder::Helper& decode = from == Mod::e4m3x2 ? kE4m3ToFloat : kE5m2ToFloat;
    const Value pair = b_.keep(read(o[1], Type::u32));
    const Value high = b_.call(decode, {bin(Binary::and_, bin(Binary::shr, pair, u(8)), u(0xff))});
    const Value low = b_.call(decode, {bin(Binary::and_, pair, u(0xff))});
    return write(o[0], bin(Binary::or_, bin(Binary::shl, float_to_half(Mod::f16, Mod::rn, high), u(16)),
                           float_to_half(Mod::f16, Mod::rn, low)));
  }
  if (i.has(Mod::satfinite)) no("a shader has no such conversion");
  if ((to == Mod::f16x2 || to == Mod::bf16x2) && from == Mod::f32) {
    const Mod one = to == Mod::f16x2 ? Mod::f16 : Mod::bf16;
    const Value high = float_to_half(one, rounding(), read(o[1], Type::f32)),
                low = float_to_half(one, rounding(), read(o[2], Type::f32));
    return write(o[0], bin(Binary::or_, bin(Binary::shl, high, u(16)), low));
  }
  const auto known = [&](Mod t) {
    return t == Mod::f32 || is_half(t) ||
           (!ptx::is_float(t) && ptx::type_bits(t) >= 8 && ptx::type_bits(t) <= 64);
  };
  if (!known(to) || !known(from))
    no(text::cat("a shader has no conversion from ", ptx::name(from), " to ", ptx::name(to)));
  if (ptx::is_float(from)) {
    Value v = is_half(from) ? half_to_float(from, read(o[1], Type::u32)) : read(o[1], Type::f32);
    if (to == Mod::f32 || is_half(to)) {
      v = rounded(i, v);
      if (i.has(Mod::sat)) v = saturated(v);
      return write(o[0], to == Mod::f32 ? v : float_to_half(to, rounding(), v));
    }
    const int bits = ptx::type_bits(to);
    if (bits == 64) no("a shader converts floating point to 32-bit integers at most");
    const bool sign = ptx::is_signed(to);
    Value r = b_.call(sign ? kFloatToSigned : kFloatToUnsigned, {rounded(i, v)});
    if (bits < 32) {
      r = sign ? bin(Binary::max_signed, bin(Binary::min_signed, r, u((1u << (bits - 1)) - 1)),
                     u(~0u << (bits - 1)))
               : bin(Binary::min, r, u((1u << bits) - 1));
      if (ptx::type_bits(f_.regs[o[0].reg].type) == 16) r = small(r, Mod::u16, false);
    }
    return write(o[0], r);
  }
  const int from_bits = ptx::type_bits(from), to_bits = ptx::type_bits(to);
  const bool sign = ptx::is_signed(from);
  if (ptx::is_float(to)) {
    if (rounding() != Mod::rn) no("a shader rounds to nearest");
    Value v = from_bits == 64 ? read(o[1], Type::u64) : small(read(o[1], Type::u32), from, sign);
    if (from_bits == 64 && sign && !k_.layout.native64) no("WGSL has no conversion of s64 to f32");
    v = b_.convert(sign ? Convert::to_float_signed : Convert::to_float, v);
    if (i.has(Mod::sat)) v = saturated(v);
    return write(o[0], to == Mod::f32 ? v : float_to_half(to, Mod::rn, v));
  }
  if (i.has(Mod::sat)) no("a shader has no saturating conversion of integers");
  if (o[0].kind != OperandKind::reg || o[0].reg == ptx::kNone) return;
  const Type type = facts_.type[o[0].reg];
  if (from_bits == 64 && type == Type::u64 && to_bits == 64) return write(o[0], read(o[1], Type::u64));
  Value v = small(read(o[1], Type::u32),
                  from_bits < to_bits ? from
                  : to_bits < 32      ? to
                                      : from,
                  from_bits < to_bits ? sign : ptx::is_signed(to));
  if (to_bits < 32 && ptx::type_bits(f_.regs[o[0].reg].type) <= 16)
    v = small(v, ptx::type_bits(f_.regs[o[0].reg].type) == 8 ? Mod::u8 : Mod::u16, false);
  if (type == Type::u64) {
    // A register wider than the destination type holds its extension.
    const bool extend = to_bits == 64 ? sign && from_bits <= 32 : ptx::is_signed(to);
    return write(o[0], b_.convert(extend ? Convert::extend_signed : Convert::extend, v));
  }
  write(o[0], v);
}

void Lowering::move(const Inst& i) {
  const auto& o = i.operands;
  if (i.op == Op::cvta) {
    if (space_of(i) != ptx::Space::global || o[1].kind != OperandKind::reg)
      no("a shader has addresses of buffers only: this is a generic address");
    return write(o[0], read(o[1], type_of(o[0]) == Type::none ? Type::u32 : type_of(o[0])));
  }
  const Mod t = i.type();
  const int width = ptx::type_bits(t);
  if (t == Mod::f64 || width > 64) no(text::cat("a shader has no type ", ptx::name(t)));
  if (o[1].kind == OperandKind::vector) {  // pack
    const auto& e = o[1].elems;
    if (width == 64 && e.size() == 2) {
      const Value low = read(e[0], Type::u32);
      return write(o[0], type_of(o[0]) == Type::u64 ? b_.join(low, read(e[1], Type::u32)) : low);
    }
    if (width != 64 && (e.size() == 2 || e.size() == 4)) {
      const int part = width / int(e.size());
      Value sum = read(e[0], Type::u32);
      for (std::size_t k = 1; k < e.size(); ++k)
        sum = bin(Binary::or_, sum,
                  bin(Binary::shl, read(e[k], Type::u32), u(std::uint32_t(part) * std::uint32_t(k))));
      return write(o[0], sum);
    }
    no("a shader has no such packing");
  }
  if (o[0].kind == OperandKind::vector) {  // unpack
    const auto& e = o[0].elems;
    if (width == 64 && e.size() == 2) {
      if (type_of(o[1]) != Type::u64) return write(e[0], read(o[1], Type::u32));
      const Value v = b_.keep(read(o[1], Type::u64));
      const Value low = b_.keep(b_.convert(Convert::low, v)), high = b_.keep(b_.convert(Convert::high, v));
      write(e[0], low);
      return write(e[1], high);
    }
    if (width != 64 && (e.size() == 2 || e.size() == 4)) {
      const std::uint32_t part = std::uint32_t(width) / std::uint32_t(e.size());
      const Value v = b_.keep(read(o[1], Type::u32));
      for (std::uint32_t k = 0; k < e.size(); ++k) {
        const Value shifted = k ? bin(Binary::shr, v, u(part * k)) : v;
        write(e[k], bin(Binary::and_, shifted, u((1u << part) - 1)));
      }
      return;
    }
    no("a shader has no such unpacking");
  }
  if (o[0].kind != OperandKind::reg || o[0].reg == ptx::kNone) return;
  if (t == Mod::pred) return write(o[0], predicate(o[1]));
  const Type type = facts_.type[o[0].reg];
  if (facts_.demanded[o[0].reg] == 0) return;
  const Value v = read(o[1], type == Type::boolean ? Type::u32 : type);
  write(o[0], width == 16 && o[1].kind == OperandKind::imm ? small(v, Mod::u16, false) : v);
}

}  // namespace cgp::shader
