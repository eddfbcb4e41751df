// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparisons and bits of one thread.
#include <bit>

#include "cgp/base/text.h"
#include "cgp/shader/lower.h"

namespace cgp::shader {

using ptx::Inst;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;

namespace {

std::optional<std::uint32_t> constant(const Operand& o) {
  return o.kind == OperandKind::imm ? std::optional(std::uint32_t(o.imm)) : std::nullopt;
}

bool directed(const Inst& i) { return i.has(Mod::rz) || i.has(Mod::rm) || i.has(Mod::rp); }

bool is_half(Mod t) { return t == Mod::f16 || t == Mod::bf16 || t == Mod::f16x2 || t == Mod::bf16x2; }

/// sin(x), with turn 1 cos(x): within 2^-21 for |x| up to 2^13. WGSL and Vulkan allow their own functions an error of 2^-11. x is taken to
/// [-pi/4, pi/4] with pi/2 in three parts, of which the first two times a whole number are exact (Cody and Waite, 1980); the
/// polynomials are Moshier's (Cephes, sinf.c).
Value sine_body(Builder& b, const std::vector<Value>& a) {
  const auto real = [&](float v) { return b.real(std::bit_cast<std::uint32_t>(v)); };
  const auto times = [&](Value x, Value y) { return b.binary(Binary::mul, x, y); };
  const auto plus = [&](Value x, Value y) { return b.binary(Binary::add, x, y); };
  const auto equal = [&](Value x, float y) { return b.compare(Compare::eq, x, real(y)); };
  const Value n = b.keep(b.unary(Unary::round_even, times(a[0], real(0.636619772f))), "n");
  const Value r1 = b.fma(n, real(-1.5703125f), a[0]);
  const Value r2 = b.fma(n, real(-4.837512969970703e-4f), r1);
  const Value r3 = b.fma(n, real(-7.549789954891882e-8f), r2);
  const Value r = b.keep(b.binary(Binary::max, b.binary(Binary::min, r3, real(0.8f)), real(-0.8f)), "r");
  const Value z = b.keep(times(r, r), "z");
  const Value s3 = b.fma(z, real(-1.9515295891e-4f), real(8.3321608736e-3f));
  const Value s = b.fma(times(r, z), b.fma(z, s3, real(-1.6666654611e-1f)), r);
  const Value c3 = b.fma(z, real(2.443315711809948e-5f), real(-1.388731625493765e-3f));
  const Value c4 = b.fma(z, b.fma(z, c3, real(4.166664568298827e-2f)), real(-0.5f));
  const Value c = b.fma(z, c4, real(1));
  const Value m = b.keep(plus(n, a[1]), "m");
  const Value quadrant = b.keep(b.fma(b.unary(Unary::floor, times(m, real(0.25f))), real(-4), m), "quadrant");
  const Value odd = b.binary(Binary::or_, equal(quadrant, 1), equal(quadrant, 3));
  const Value v = b.keep(b.select(odd, c, s), "v");
  const Value signed_v = b.select(b.compare(Compare::ge, quadrant, real(2)), b.unary(Unary::negate, v), v);
  const Value finite = b.compare(Compare::le, b.unary(Unary::abs, a[0]), real(3.402823466e38f));
  return b.convert(Convert::bits, b.select(finite, b.convert(Convert::bits, signed_v), b.word(0x7fffffff)));
}
const Builder::Helper kSine{"sine", {Type::f32, Type::f32}, Type::f32, sine_body};

}  // namespace

/// The low 8 or 16 bits of a word, zero or sign extended; words and wider stay.
Value Lowering::small(Value v, Mod type, bool sign) {
  const int bits = ptx::type_bits(type);
  if (bits >= 32) return v;
  if (!sign) return bin(Binary::and_, v, u((1u << bits) - 1));
  const Value amount = u(std::uint32_t(32 - bits));
  return bin(Binary::shr_signed, bin(Binary::shl, v, amount), amount);
}

/// PTX shifts by more than the width give 0, or the sign.
Value Lowering::shifted(Binary op, Value v, Value amount, int bits) {
  const Value n = b_.keep(amount);
  const auto width = std::uint32_t(bits);
  if (op == Binary::shr_signed) return bin(op, v, bin(Binary::min, n, u(width - 1)));
  const Value zero = v.type == Type::u64 ? b_.wide(0) : u(0);
  return b_.select(b_.compare(Compare::lt, n, u(width)), bin(op, v, bin(Binary::and_, n, u(width - 1))),
                   zero);
}

/// Bytes of x and y (constants, where those are known) by a selector that is known: bytes that move together are one term.
Value Lowering::permuted(const Value (&from)[2], const std::optional<std::uint32_t> (&known)[2],
                         std::uint32_t which) {
  std::uint32_t fixed = 0;
  std::vector<Value> terms;
  for (std::uint32_t source = 0; source < 2; ++source) {
    const Value x = known[source] ? from[source] : b_.keep(from[source]);
    std::uint32_t masks[7] = {};  // by how many bytes to the right, less 3
    for (std::uint32_t k = 0; k < 4; ++k) {
      const std::uint32_t n = which >> (4 * k) & 15, byte = n & 3, all = 0xffu << (8 * k);
      if ((n >> 2 & 1) != source) continue;
      if (known[source]) {
        const std::uint32_t v = *known[source] >> (8 * byte) & 0xff;
        fixed |= n & 8 ? v & 0x80 ? all : 0 : v << (8 * k);
      } else if (n & 8) {
        terms.push_back(
            bin(Binary::mul, bin(Binary::and_, bin(Binary::shr, x, u(8 * byte + 7)), u(1)), u(all)));
      } else {
        masks[byte + 3 - k] |= all;
      }
    }
    for (std::uint32_t i = 0; i < 7; ++i) {
      if (!masks[i]) continue;
      const Value moved = i > 3   ? bin(Binary::shr, x, u(8 * (i - 3)))
                          : i < 3 ? bin(Binary::shl, x, u(8 * (3 - i)))
                                  : x;
      const std::uint32_t there = i > 3 ? ~0u >> (8 * (i - 3)) : ~0u << (8 * (3 - i));
      terms.push_back(masks[i] == there ? moved : bin(Binary::and_, moved, u(masks[i])));
    }
  }
  if (fixed || terms.empty()) terms.push_back(u(fixed));
  Value all = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) all = bin(Binary::or_, all, terms[i]);
  return all;
}

/// A divisor that is known to be 0 gives all ones: PTX leaves it open, and shader compilers refuse it.
Value Lowering::divided(const Inst& i, Binary op, Value x, Value y) {
  const Operand& d = i.operands[2];
  if (d.kind == OperandKind::imm && d.imm == 0) return x.type == Type::u64 ? b_.wide(~0ull) : u(~0u);
  return bin(op, x, y);
}

Value Lowering::saturated(Value v) {
  return bin(Binary::min, bin(Binary::max, v, b_.real(0)), b_.real(0x3f800000));
}

bool Lowering::scalar(const Inst& i) {
  const Mod t = i.type();
  switch (i.op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::mad:
    case Op::div:
    case Op::rem:
    case Op::min:
    case Op::max:
    case Op::abs:
    case Op::neg:
    case Op::fma:
    case Op::rcp:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::sin:
    case Op::cos:
    case Op::lg2:
    case Op::ex2:
    case Op::tanh:
      if (is_half(t))
        halves(i);
      else if (t == Mod::f32 && ptx::is_float(i.type(1)) && i.type(1) != Mod::f32)
        no("a shader has no arithmetic of mixed types");
      else if (t == Mod::f32)
        floating(i);
      else if (ptx::is_float(t))
        no(text::cat("a shader has no type ", ptx::name(t)), "WGSL and most Vulkan devices have f32");
      else
        integer(i);
      return true;
    case Op::setp:
    case Op::set:
    case Op::selp:
    case Op::slct:
    case Op::testp:
      compare(i);
      return true;
    default:
      return bits(i);
  }
}

void Lowering::integer(const Inst& i) {
  const auto& o = i.operands;
  const Mod t = i.type();
  const int width = ptx::type_bits(t);
  const bool sign = ptx::is_signed(t);
  if (width > 64 || width < 16 || i.has(Mod::sat) || i.has(Mod::relu) || i.has(Mod::cc) || t == Mod::u16x2 ||
      t == Mod::s16x2)
    no("a shader has no such integer arithmetic");
  // A 64-bit result of which 32 bits matter takes 32-bit operands.
  const Type type = width == 64 ? type_of(o[0]) : Type::u32;
  if (width == 64 && type == Type::none) return;
  const auto operand = [&](std::size_t k, Type as_type) {
    const Value v = read(o[k], as_type);
    return width == 16 ? small(v, t, sign) : v;
  };
  if (i.has(Mod::wide)) {
    Value x = operand(1, Type::u32), y = operand(2, Type::u32);
    if (width == 16) {
      Value r = bin(Binary::mul, x, y);
      if (i.op == Op::mad) r = bin(Binary::add, r, read(o[3], Type::u32));
      return write(o[0], r);
    }
    const Type result = type_of(o[0]);
    Value r;
    if (result == Type::u32) {
      r = bin(Binary::mul, x, y);
    } else if (k_.layout.native64) {
      const Convert extend = sign ? Convert::extend_signed : Convert::extend;
      r = bin(Binary::mul, b_.convert(extend, x), b_.convert(extend, y));
    } else {
      x = b_.keep(x), y = b_.keep(y);
      r = b_.join(bin(Binary::mul, x, y), bin(sign ? Binary::high_signed : Binary::high, x, y));
    }
    if (i.op == Op::mad) r = bin(Binary::add, r, read(o[3], result));
    return write(o[0], r);
  }
  const auto result = [&](Value v) { write(o[0], width == 16 ? small(v, Mod::u16, false) : v); };
  const auto x = [&] { return operand(1, type); };
  const auto y = [&] { return operand(2, type); };
  const auto wide_only = [&](Type need) {
    if (width == 64 && need == Type::u32) no("a shader has no such 64-bit arithmetic");
  };
  switch (i.op) {
    case Op::add:
      return result(bin(Binary::add, x(), y()));
    case Op::sub:
      return result(bin(Binary::sub, x(), y()));
    case Op::mul:
    case Op::mad: {
      Value r;
      if (i.has(Mod::hi)) {
        wide_only(Type::u32);
        r = width == 16 ? bin(sign ? Binary::shr_signed : Binary::shr, bin(Binary::mul, x(), y()), u(16))
                        : bin(sign ? Binary::high_signed : Binary::high, x(), y());
      } else {
        r = bin(Binary::mul, x(), y());
      }
      return result(i.op == Op::mad ? bin(Binary::add, r, operand(3, type)) : r);
    }
    case Op::div:
    case Op::rem:
      return result(divided(i,
                            i.op == Op::div ? (sign ? Binary::div_signed : Binary::div)
                                            : (sign ? Binary::rem_signed : Binary::rem),
                            x(), y()));
    case Op::min:
      return result(bin(sign ? Binary::min_signed : Binary::min, x(), y()));
    case Op::max:
      return result(bin(sign ? Binary::max_signed : Binary::max, x(), y()));
    case Op::neg:
      return result(b_.unary(Unary::negate, x()));
    case Op::abs: {
      wide_only(Type::u32);
      const Value v = b_.keep(x());
      return result(bin(Binary::max_signed, v, b_.unary(Unary::negate, v)));
    }
    default:
      no("a shader has no such integer arithmetic");
  }
}

void Lowering::floating(const Inst& i) {
  const auto& o = i.operands;
  if (directed(i)) no("a shader rounds to nearest: .rz, .rm and .rp cannot be asked for");
  if (i.has(Mod::xorsign) || i.has(Mod::abs)) no("a shader has no minimum or maximum of magnitudes");
  const bool exact = i.has(Mod::rn);
  const auto x = [&](std::size_t k) { return read(o[k], Type::f32); };
  const auto one = [&] { return b_.real(0x3f800000); };
  Value r;
  switch (i.op) {
    case Op::add:
      r = b_.binary(Binary::add, x(1), x(2), exact);
      break;
    case Op::sub:
      r = b_.binary(Binary::sub, x(1), x(2), exact);
      break;
    case Op::mul:
      r = b_.binary(Binary::mul, x(1), x(2), exact);
      break;
    case Op::mad:
    case Op::fma:
      r = b_.fma(x(1), x(2), x(3));
      break;
    case Op::div:
      r = bin(Binary::div, x(1), x(2));
      break;
    case Op::min:
    case Op::max: {
      if (o.size() != 3) no("a shader has no minimum or maximum of three");
      const Binary op = i.op == Op::min ? Binary::min : Binary::max;
      if (!i.has(Mod::NaN)) {
        r = bin(op, x(1), x(2));
        break;
      }
      const Value a = b_.keep(x(1)), c = b_.keep(x(2));
      const auto nan = [&](Value v) {
        return b_.compare(Compare::gt, bin(Binary::and_, as(Type::u32, v), u(0x7fffffff)), u(0x7f800000));
      };
      r = b_.select(bin(Binary::or_, nan(a), nan(c)), b_.real(0x7fffffff), bin(op, a, c));
      break;
    }
    case Op::abs:
      r = b_.unary(Unary::abs, x(1));
      break;
    case Op::neg:
      r = b_.unary(Unary::negate, x(1));
      break;
    case Op::rcp:
      r = bin(Binary::div, one(), x(1));
      break;
    case Op::sqrt:
      r = b_.unary(Unary::sqrt, x(1));
      break;
    case Op::rsqrt:
      r = b_.unary(Unary::inverse_sqrt, x(1));
      break;
    case Op::sin:
      r = b_.call(kSine, {x(1), b_.real(0)});
      break;
    case Op::cos:
      r = b_.call(kSine, {x(1), one()});
      break;
    case Op::lg2:
      r = b_.unary(Unary::log2, x(1));
      break;
    case Op::ex2:
      r = b_.unary(Unary::exp2, x(1));
      break;
    case Op::tanh:
      r = b_.unary(Unary::tanh, x(1));
      break;
    default:
      no("a shader has no such arithmetic on f32");
  }
  write(o[0], i.has(Mod::sat) ? saturated(r) : r);
}

/// f16 and bf16, one or two in a word: in f32, rounded once more. 24 bits are enough for that to equal one rounding of
/// a sum or product.
void Lowering::halves(const Inst& i) {
  const auto& o = i.operands;
  const Mod t = i.type();
  const bool pair = t == Mod::f16x2 || t == Mod::bf16x2;
  const Mod one = t == Mod::f16 || t == Mod::f16x2 ? Mod::f16 : Mod::bf16;
  if (i.op == Op::fma || i.op == Op::mad)
    no("a shader has no fused product of half types", "convert to f32, or multiply and add");
  if (i.has(Mod::sat) || i.has(Mod::relu) || i.has(Mod::xorsign) || (i.has(Mod::abs) && i.op != Op::abs) ||
      directed(i) || o.size() > 3)
    no("a shader has no such arithmetic of half types");
  std::vector<Value> words;
  for (std::size_t k = 1; k < o.size(); ++k) words.push_back(b_.keep(read(o[k], Type::u32)));
  const auto part = [&](std::size_t k, bool upper) {
    const Value w = upper ? bin(Binary::shr, words[k], u(16)) : bin(Binary::and_, words[k], u(0xffff));
    return b_.keep(half_to_float(one, w));
  };
  const auto single = [&](bool upper) {
    const Value x = part(0, upper);
    const Value y = words.size() > 1 ? part(1, upper) : x;
    Value r;
    switch (i.op) {
      case Op::add:
        r = bin(Binary::add, x, y);
        break;
      case Op::sub:
        r = bin(Binary::sub, x, y);
        break;
      case Op::mul:
        r = bin(Binary::mul, x, y);
        break;
      case Op::min:
      case Op::max: {
        r = bin(i.op == Op::min ? Binary::min : Binary::max, x, y);
        if (i.has(Mod::NaN)) {
          const auto nan = [&](Value v) {
            return b_.compare(Compare::gt, bin(Binary::and_, as(Type::u32, v), u(0x7fffffff)), u(0x7f800000));
          };
          r = b_.select(bin(Binary::or_, nan(x), nan(y)), b_.real(0x7fffffff), r);
        }
        break;
      }
      case Op::neg:
        r = b_.unary(Unary::negate, x);
        break;
      case Op::abs:
        r = b_.unary(Unary::abs, x);
        break;
      case Op::ex2:
        r = b_.unary(Unary::exp2, x);
        break;
      case Op::tanh:
        r = b_.unary(Unary::tanh, x);
        break;
      default:
        no("a shader has no such arithmetic of half types");
    }
    return b_.keep(float_to_half(one, Mod::rn, r));
  };
  const Value low = single(false);
  write(o[0], pair ? bin(Binary::or_, low, bin(Binary::shl, single(true), u(16))) : low);
}

Value Lowering::compared(const Inst& i, Mod type, Value x, Value y) {
  if (!ptx::is_float(type)) {
    const bool sign = ptx::is_signed(type);
    if (i.has(Mod::eq)) return b_.compare(Compare::eq, x, y);
    if (i.has(Mod::ne)) return b_.compare(Compare::ne, x, y);
    if (i.has(Mod::lt) || i.has(Mod::lo)) return b_.compare(sign ? Compare::lt_signed : Compare::lt, x, y);
    if (i.has(Mod::le) || i.has(Mod::ls)) return b_.compare(sign ? Compare::le_signed : Compare::le, x, y);
    if (i.has(Mod::gt) || i.has(Mod::hi)) return b_.compare(sign ? Compare::gt_signed : Compare::gt, x, y);
    return b_.compare(sign ? Compare::ge_signed : Compare::ge, x, y);
  }
  x = b_.keep(x), y = b_.keep(y);
  const auto nan = [&](Value v) {
    return b_.compare(Compare::gt, bin(Binary::and_, as(Type::u32, v), u(0x7fffffff)), u(0x7f800000));
  };
  // Constants are numbers: one test less.
  const auto unordered = [&] {
    const auto& c = i.operands[2];
    const bool number = c.kind == OperandKind::f32_imm && (c.imm & 0x7fffffff) <= 0x7f800000;
    return number ? nan(x) : bin(Binary::or_, nan(x), nan(y));
  };
  const auto either = [&](Compare op) { return bin(Binary::or_, b_.compare(op, x, y), unordered()); };
  if (i.has(Mod::eq)) return b_.compare(Compare::eq, x, y);
  if (i.has(Mod::lt)) return b_.compare(Compare::lt, x, y);
  if (i.has(Mod::le)) return b_.compare(Compare::le, x, y);
  if (i.has(Mod::gt)) return b_.compare(Compare::gt, x, y);
  if (i.has(Mod::ge)) return b_.compare(Compare::ge, x, y);
  if (i.has(Mod::ne)) return bin(Binary::or_, b_.compare(Compare::lt, x, y), b_.compare(Compare::gt, x, y));
  if (i.has(Mod::equ)) return either(Compare::eq);
  if (i.has(Mod::neu)) return either(Compare::ne);
  if (i.has(Mod::ltu)) return either(Compare::lt);
  if (i.has(Mod::leu)) return either(Compare::le);
  if (i.has(Mod::gtu)) return either(Compare::gt);
  if (i.has(Mod::geu)) return either(Compare::ge);
  if (i.has(Mod::nan)) return unordered();
  return b_.unary(Unary::not_, unordered());
}

void Lowering::compare(const Inst& i) {
  const auto& o = i.operands;
  if (i.op == Op::selp) {
    const Mod t = i.type();
    if (t == Mod::f64) no("a shader has no type f64");
    const Type type = ptx::type_bits(t) == 64      ? type_of(o[0])
                      : t == Mod::f32              ? Type::f32
                      : type_of(o[0]) == Type::f32 ? Type::f32
                                                   : Type::u32;
    if (type == Type::none) return;
    return write(o[0], b_.select(predicate(o[3]), read(o[1], type), read(o[2], type)));
  }
  if (i.op == Op::slct) {
    const Mod t = i.type(0);
    if (ptx::type_bits(t) == 64) no("a shader has no slct of 64 bits");
    const Type type = t == Mod::f32 ? Type::f32 : Type::u32;
    const Value c = i.type(1) == Mod::f32 ? b_.compare(Compare::ge, read(o[3], Type::f32), b_.real(0))
                                          : b_.compare(Compare::ge_signed, read(o[3], Type::u32), u(0));
    return write(o[0], b_.select(c, read(o[1], type), read(o[2], type)));
  }
  if (i.op == Op::testp) {
    if (i.type() != Mod::f32) no("a shader has no type f64");
    const Value v = b_.keep(bin(Binary::and_, read(o[1], Type::u32), u(0x7fffffff)));
    const auto infinity = u(0x7f800000);
    if (i.has(Mod::finite)) return write(o[0], b_.compare(Compare::lt, v, infinity));
    if (i.has(Mod::infinite)) return write(o[0], b_.compare(Compare::eq, v, infinity));
    if (i.has(Mod::number)) return write(o[0], b_.compare(Compare::le, v, infinity));
    if (i.has(Mod::notanumber)) return write(o[0], b_.compare(Compare::gt, v, infinity));
    const Value tiny = b_.compare(Compare::lt, v, u(0x00800000));
    // Zero counts as normal.
    const Value subnormal = b_.keep(bin(Binary::and_, tiny, b_.compare(Compare::ne, v, u(0))));
    if (i.has(Mod::subnormal)) return write(o[0], subnormal);
    return write(o[0],
                 bin(Binary::and_, b_.unary(Unary::not_, subnormal), b_.compare(Compare::lt, v, infinity)));
  }
  // setp.eq.and.f32 p|q, a, b, c and set.eq.u32.f32 d, a, b
  const bool set = i.op == Op::set;
  const Mod t = i.type(set ? 1 : 0);
  if (t == Mod::f64 || t == Mod::f16x2 || t == Mod::bf16x2)
    no(text::cat("a shader has no comparison of ", ptx::name(t)));
  Value p;
  const std::int32_t root = o[1].kind == OperandKind::reg ? facts_.root[o[1].reg] : kNumber;
  if (ptx::type_bits(t) == 64 && root != kNumber && facts_.roots[std::size_t(root)].parameter != ptx::kNone &&
      o[2].kind == OperandKind::imm && o[2].imm == 0 && !k_.layout.native64 &&
      (i.has(Mod::eq) || i.has(Mod::ne))) {
    // The high word of a pointer in the parameter block says whether there is a buffer.
    const Root& r = facts_.roots[std::size_t(root)];
    const Value there = b_.load({Memory::params, 0, {}, r.offset + 4}, 32, 1)[0];
    p = b_.compare(i.has(Mod::eq) ? Compare::eq : Compare::ne, there, u(0));
  } else {
    const auto operand = [&](std::size_t k) {
      if (t == Mod::f16 || t == Mod::bf16) return half_to_float(t, read(o[k], Type::u32));
      if (t == Mod::f32) return read(o[k], Type::f32);
      if (ptx::type_bits(t) == 64) return read(o[k], Type::u64);
      return small(read(o[k], Type::u32), t, ptx::is_signed(t));
    };
    p = compared(i, t, operand(1), operand(2));
  }
  const bool second = o[0].reg2 != ptx::kNone && !set;
  if (second) p = b_.keep(p);
  Value q = o[0].reg2 != ptx::kNone && !set ? b_.unary(Unary::not_, p) : p;
  if (o.size() > 3) {
    const Value with = b_.keep(predicate(o[3]));
    const Binary op = i.has(Mod::and_) ? Binary::and_ : i.has(Mod::or_) ? Binary::or_ : Binary::xor_;
    p = bin(op, p, with);
    q = bin(op, q, with);
  }
  if (set) {
    const bool floats = i.type(0) == Mod::f32;
    if (ptx::type_bits(i.type(0)) != 32) no("a shader has no set of less than 32 bits");
    return write(o[0], floats ? b_.select(p, b_.real(0x3f800000), b_.real(0)) : b_.select(p, u(~0u), u(0)));
  }
  // Both before either is written: p may be what is combined with.
  if (second) p = b_.keep(p), q = b_.keep(q);
  write(o[0].reg, p);
  if (o[0].reg2 != ptx::kNone) write(o[0].reg2, q);
}

bool Lowering::bits(const Inst& i) {
  const auto& o = i.operands;
  const Mod t = i.mods.size() ? i.type() : ptx::kNoMod;
  const int width = t == ptx::kNoMod ? 0 : ptx::type_bits(t);
  const auto word = [&](std::size_t k) { return b_.keep(read(o[k], Type::u32)); };
  const auto words_only = [&] {
    if (width != 32) no("a shader has this for words of 32 bits only");
  };
  switch (i.op) {
    case Op::and_:
    case Op::or_:
    case Op::xor_:
    case Op::not_: {
      const Type type = t == Mod::pred ? Type::boolean : width == 64 ? type_of(o[0]) : Type::u32;
      if (type == Type::none) return true;
      const Value x = read(o[1], type);
      if (i.op == Op::not_) {
        const Value r = b_.unary(Unary::not_, x);
        write(o[0], width == 16 ? small(r, Mod::u16, false) : r);
      } else {
        write(o[0], bin(i.op == Op::and_  ? Binary::and_
                        : i.op == Op::or_ ? Binary::or_
                                          : Binary::xor_,
                        x, read(o[2], type)));
      }
      return true;
    }
    case Op::cnot:
      words_only();
      write(o[0], b_.select(b_.compare(Compare::eq, word(1), u(0)), u(1), u(0)));
      return true;
    case Op::shl:
    case Op::shr: {
      const Type type = width == 64 ? (i.op == Op::shl ? type_of(o[0]) : Type::u64) : Type::u32;
      if (type == Type::none) return true;
      const bool sign = ptx::is_signed(t);
      const Binary op = i.op == Op::shl ? Binary::shl : sign ? Binary::shr_signed : Binary::shr;
      Value x = type == Type::u64 ? read(o[1], Type::u64) : small(read(o[1], Type::u32), t, sign);
      const int bits = type == Type::u64 ? 64 : 32;
      Value r;
      if (const auto n = constant(o[2])) {
        const std::uint32_t most = std::uint32_t(bits) - 1;
        if (*n > most && op != Binary::shr_signed)
          r = type == Type::u64 ? b_.wide(0) : u(0);
        else
          r = *n == 0 ? x : bin(op, x, u(*n > most ? most : *n));
      } else {
        r = shifted(op, x, read(o[2], Type::u32), bits);
      }
      write(o[0], width == 16 ? small(r, Mod::u16, false) : r);
      return true;
    }
    case Op::popc:
    case Op::clz:
    case Op::brev: {
      words_only();
      const Unary op = i.op == Op::popc  ? Unary::popcount
                       : i.op == Op::clz ? Unary::leading_zeros
                                         : Unary::reverse;
      write(o[0], b_.unary(op, read(o[1], Type::u32)));
      return true;
    }
    case Op::bfe: {
      words_only();
      const auto first = constant(o[2]), count = constant(o[3]);
      if (!first || !count || *first + *count > 32 || *first > 31)
        no("a shader takes bit fields at constant places within a word");
      if (*count == 0)
        write(o[0], u(0));
      else if (ptx::is_signed(t))
        write(o[0],
              bin(Binary::shr_signed, bin(Binary::shl, word(1), u(32 - *first - *count)), u(32 - *count)));
      else
        write(o[0], bin(Binary::and_, bin(Binary::shr, word(1), u(*first)),
                        u(*count == 32 ? ~0u : (1u << *count) - 1)));
      return true;
    }
    case Op::bfi: {
      words_only();
      const auto first = constant(o[3]), count = constant(o[4]);
      if (!first || !count || *first + *count > 32 || *first > 31)
        no("a shader sets bit fields at constant places within a word");
      const std::uint32_t mask = (*count == 32 ? ~0u : (1u << *count) - 1) << *first;
      write(o[0], bin(Binary::or_, bin(Binary::and_, word(2), u(~mask)),
                      bin(Binary::and_, bin(Binary::shl, word(1), u(*first)), u(mask))));
      return true;
    }
    case Op::lop3: {
      if (o.size() != 5 || !constant(o[4])) no("a shader has no lop3 with a predicate");
      const Value x[3] = {word(1), word(2), word(3)};
      const Value inverse[3] = {b_.keep(b_.unary(Unary::not_, x[0])), b_.keep(b_.unary(Unary::not_, x[1])),
                                b_.keep(b_.unary(Unary::not_, x[2]))};
      Value sum = u(0);
      bool any = false;
      for (std::uint32_t term = 0; term < 8; ++term) {
        if (!(*constant(o[4]) >> term & 1)) continue;
        Value product = term & 4 ? x[0] : inverse[0];
        product = bin(Binary::and_, product, term & 2 ? x[1] : inverse[1]);
        product = bin(Binary::and_, product, term & 1 ? x[2] : inverse[2]);
        sum = any ? bin(Binary::or_, sum, product) : product;
        any = true;
      }
      write(o[0], sum);
      return true;
    }
    case Op::shf: {
      const Value low = word(1), high = word(2), amount = word(3),
                  n = b_.keep(bin(Binary::and_, amount, u(31)));
      const Value rest = bin(Binary::sub, u(31), n);
      const bool left = i.mods[0] == Mod::l;
      Value r = left ? bin(Binary::or_, bin(Binary::shl, high, n),
                           bin(Binary::shr, bin(Binary::shr, low, u(1)), rest))
                     : bin(Binary::or_, bin(Binary::shr, low, n),
                           bin(Binary::shl, bin(Binary::shl, high, u(1)), rest));
      if (i.has(Mod::clamp)) r = b_.select(b_.compare(Compare::lt, amount, u(32)), r, left ? low : high);
      write(o[0], r);
      return true;
    }
    case Op::prmt: {
      if (i.mods.size() != 1) no("a shader has the general prmt only");
      if (const auto which = constant(o[3])) {
        write(o[0], permuted({word(1), word(2)}, {constant(o[1]), constant(o[2])}, *which));
        return true;
      }
      const Value x = word(1), y = word(2), which = word(3);
      Value sum = u(0);
      for (std::uint32_t k = 0; k < 4; ++k) {
        const auto bit = [&](std::uint32_t n) {
          return b_.compare(Compare::ne, bin(Binary::and_, which, u(1u << (4 * k + n))), u(0));
        };
        const Value amount =
            bin(Binary::and_, bin(Binary::shl, bin(Binary::shr, which, u(4 * k)), u(3)), u(24));
        const Value byte =
            b_.keep(bin(Binary::and_, bin(Binary::shr, b_.select(bit(2), y, x), amount), u(0xff)));
        const Value sign = b_.select(b_.compare(Compare::ge, byte, u(0x80)), u(0xff), u(0));
        const Value put = bin(Binary::shl, b_.select(bit(3), sign, byte), u(8 * k));
        sum = k ? bin(Binary::or_, sum, put) : put;
      }
      write(o[0], sum);
      return true;
    }
    case Op::dp4a: {
      const Value x = word(1), y = word(2);
      Value sum = read(o[3], Type::u32);
      const auto byte = [&](Value v, std::uint32_t k, bool sign) {
        const Value up = bin(Binary::shl, v, u(24 - 8 * k));
        return bin(sign ? Binary::shr_signed : Binary::shr, up, u(24));
      };
      for (std::uint32_t k = 0; k < 4; ++k)
        sum = bin(
            Binary::add, sum,
            bin(Binary::mul, byte(x, k, ptx::is_signed(i.type(0))), byte(y, k, ptx::is_signed(i.type(1)))));
      write(o[0], sum);
      return true;
    }
    case Op::copysign: {
      if (t != Mod::f32) no("a shader has no type f64");
      const Value sign = bin(Binary::and_, word(1), u(0x80000000));
      write(o[0], bin(Binary::or_, sign, bin(Binary::and_, word(2), u(0x7fffffff))));
      return true;
    }
    default:
      return false;
  }
}

}  // namespace cgp::shader
