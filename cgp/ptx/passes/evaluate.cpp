// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/passes/evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "cgp/ptx/analysis/exact.h"

namespace cgp::ptx::passes {
namespace {

using Bits = std::uint64_t;
using Result = std::optional<Bits>;

/// No modifier but types and these.
bool only(const Inst& i, std::initializer_list<Mod> allowed) {
  for (Mod m : i.mods)
    if (!is_type(m) && std::find(allowed.begin(), allowed.end(), m) == allowed.end()) return false;
  return true;
}

// ---------------------------------------------------------------- floating point
template <class F>
struct Float;
template <>
struct Float<float> {
  static float of(Bits b) { return std::bit_cast<float>(std::uint32_t(b)); }
  static Bits bits(float v) { return std::bit_cast<std::uint32_t>(v); }
};
template <>
struct Float<double> {
  static double of(Bits b) { return std::bit_cast<double>(b); }
  static Bits bits(double v) { return std::bit_cast<Bits>(v); }
};

template <class F>
bool near_subnormal(F v) {
  return v != 0 && std::fabs(v) <= std::numeric_limits<F>::min();
}

/// The host computes in round-to-nearest-even, as .rn does (and as no rounding modifier means).
template <class F>
Result arithmetic(const Inst& i, const Result (&operand)[4]) {
  if (!only(i, {Mod::rn, Mod::ftz})) return std::nullopt;
  const bool ftz = i.has(Mod::ftz);
  F x[3]{};
  const std::size_t n = i.operands.size() - 1;
  for (std::size_t k = 0; k < n && k < 3; ++k) {
    if (!operand[k]) return std::nullopt;
    x[k] = Float<F>::of(*operand[k]);
    if (std::isnan(x[k]) || (ftz && near_subnormal(x[k]))) return std::nullopt;
  }
  F r;
  switch (i.op) {
    case Op::add:
      r = x[0] + x[1];
      break;
    case Op::sub:
      r = x[0] - x[1];
      break;
    case Op::mul:
      r = x[0] * x[1];
      break;
    case Op::mad:
    case Op::fma:
      if (!i.has(Mod::rn)) return std::nullopt;
      r = std::fma(x[0], x[1], x[2]);
      break;
    case Op::div:
      if (!i.has(Mod::rn)) return std::nullopt;
      r = x[0] / x[1];
      break;
    case Op::sqrt:
      if (!i.has(Mod::rn)) return std::nullopt;
      r = std::sqrt(x[0]);
      break;
    case Op::neg:
      r = -x[0];
      break;
    case Op::abs:
      r = std::fabs(x[0]);
      break;
    case Op::min:
    case Op::max:
      if (x[0] == 0 && x[1] == 0) return std::nullopt;
      r = (i.op == Op::min) == (x[0] < x[1]) ? x[0] : x[1];
      break;
    default:
      return std::nullopt;
  }
  if (std::isnan(r) || (ftz && near_subnormal(r))) return std::nullopt;
  return Float<F>::bits(r);
}

template <class F>
Result compare_float(Mod how, Bits a, Bits b) {
  const F x = Float<F>::of(a), y = Float<F>::of(b);
  const bool nan = std::isnan(x) || std::isnan(y);
  switch (how) {
    case Mod::eq:
      return !nan && x == y;
    case Mod::ne:
      return !nan && x != y;
    case Mod::lt:
      return !nan && x < y;
    case Mod::le:
      return !nan && x <= y;
    case Mod::gt:
      return !nan && x > y;
    case Mod::ge:
      return !nan && x >= y;
    case Mod::equ:
      return nan || x == y;
    case Mod::neu:
      return nan || x != y;
    case Mod::ltu:
      return nan || x < y;
    case Mod::leu:
      return nan || x <= y;
    case Mod::gtu:
      return nan || x > y;
    case Mod::geu:
      return nan || x >= y;
    case Mod::num:
      return !nan;
    case Mod::nan:
      return nan;
    default:
      return std::nullopt;
  }
}

Result compare(const Inst& i, Bits a, Bits b, const Result (&operand)[4]) {
  if (i.mods.size() == 0) return std::nullopt;
  const Mod type = i.type();
  Result r;
  if (type == Mod::f32)
    r = compare_float<float>(i.mods[0], a, b);
  else if (type == Mod::f64)
    r = compare_float<double>(i.mods[0], a, b);
  else if (!is_float(type) && exact::is_relation(i.mods[0]))
    r = exact::relate(i.mods[0], exact::extend(std::int64_t(a), type), exact::extend(std::int64_t(b), type),
                      is_signed(type));
  if (!r || i.mods.size() == 2) return r;
  if (i.mods.size() != 3 || !operand[2]) return std::nullopt;
  const Bits with = *operand[2];
  switch (i.mods[1]) {
    case Mod::and_:
      return *r & with;
    case Mod::or_:
      return *r | with;
    case Mod::xor_:
      return *r ^ with;
    default:
      return std::nullopt;
  }
}

// ---------------------------------------------------------------- conversions
template <class F>
Result to_integer(const Inst& i, F v, Mod to) {
  if (!i.has(Mod::rzi) || !only(i, {Mod::rzi, Mod::ftz}) || std::isnan(v)) return std::nullopt;
  v = std::trunc(v);
  const int w = type_bits(to);
  const F top = std::ldexp(F(1), is_signed(to) ? w - 1 : w);  // exact
  if (v >= top || (is_signed(to) ? v < -top : v < 0)) return std::nullopt;
  return is_signed(to) ? low_bits(Bits(std::int64_t(v)), w) : Bits(v);
}

template <class F>
Result from_integer(const Inst& i, Bits a, Mod from) {
  if (!only(i, {Mod::rn}) || !i.has(Mod::rn)) return std::nullopt;
  const int w = type_bits(from);
  return Float<F>::bits(is_signed(from) ? F(sign_extend(a, w)) : F(a));
}

bool is_integer(Mod t) { return !is_float(t) && t != Mod::pred && type_bits(t) <= 64; }

Result convert(const Inst& i, Bits a) {
  const Mod to = i.type(0), from = i.type(1);
  if (to == kNoMod || from == kNoMod) return std::nullopt;
  a = low_bits(a, type_bits(from));
  if (is_integer(to) && is_integer(from)) {
    if (!only(i, {})) return std::nullopt;
    return low_bits(is_signed(from) ? Bits(sign_extend(a, type_bits(from))) : a, type_bits(to));
  }
  if (is_integer(to) && from == Mod::f32) return to_integer(i, Float<float>::of(a), to);
  if (is_integer(to) && from == Mod::f64) return to_integer(i, Float<double>::of(a), to);
  if (to == Mod::f32 && is_integer(from)) return from_integer<float>(i, a, from);
  if (to == Mod::f64 && is_integer(from)) return from_integer<double>(i, a, from);
  if (to == Mod::f64 && from == Mod::f32 && only(i, {}) && !std::isnan(Float<float>::of(a)))
    return Float<double>::bits(double(Float<float>::of(a)));
  if (to == Mod::f32 && from == Mod::f64 && only(i, {Mod::rn}) && i.has(Mod::rn) &&
      !std::isnan(Float<double>::of(a)))
    return Float<float>::bits(float(Float<double>::of(a)));
  return std::nullopt;
}

Result pack(const Inst& i, const OperandValue& value) {
  const Operand& o = i.operands[1];
  const int w = type_bits(i.type());
  if (w > 64 || o.elems.empty()) return std::nullopt;
  const int each = w / int(o.elems.size());
  Bits d = 0;
  for (std::size_t k = 0; k < o.elems.size(); ++k) {
    const auto v = value(o.elems[k]);
    if (!v) return std::nullopt;
    d |= low_bits(*v, each) << (each * int(k));
  }
  return d;
}

Result integer(const Inst& i, const Result (&x)[4]) {
  if (!exact::computes(i)) return std::nullopt;
  std::vector<std::int64_t> in;
  for (const Result& v : x) in.push_back(std::int64_t(v.value_or(0)));
  const auto r = exact::compute(i, in);
  return r ? Result(low_bits(Bits(*r), result_bits(i))) : std::nullopt;
}

}  // namespace

int result_bits(const Inst& i) {
  switch (i.op) {
    case Op::setp:
    case Op::testp:
    case Op::isspacep:
      return 1;
    case Op::popc:
    case Op::clz:
    case Op::bfind:
      return 32;
    case Op::mul:
    case Op::mad:
      return type_bits(i.type()) * (i.has(Mod::wide) ? 2 : 1);
    default:
      return type_bits(i.type());
  }
}

std::optional<std::uint64_t> evaluate(const Inst& i, const OperandValue& value) {
  const std::size_t n = i.operands.size();
  if (n < 2 || n > 5) return std::nullopt;
  if (i.op == Op::mov && i.operands[1].kind == OperandKind::vector) return pack(i, value);
  const Mod type = i.type(0);
  const int w = type_bits(type);
  if (w == 0 || w > 64) return std::nullopt;
  Result x[4];
  for (std::size_t k = 1; k < n; ++k) {
    x[k - 1] = value(i.operands[k]);
    if (!x[k - 1]) return std::nullopt;
    if (i.operands[k].negated) *x[k - 1] ^= 1;
  }
  // Amounts, positions and table numbers have their own width; everything else has the type's.
  const int second = i.op == Op::cvt ? type_bits(i.type(1)) : w;
  x[0] = low_bits(*x[0], second);
  const bool counts = i.op == Op::shl || i.op == Op::shr || i.op == Op::bfe;
  if (x[1] && !counts && i.op != Op::selp) x[1] = low_bits(*x[1], w);
  if (x[2] && (i.op == Op::mad || i.op == Op::lop3)) x[2] = low_bits(*x[2], i.has(Mod::wide) ? 2 * w : w);
  switch (i.op) {
    case Op::mov:
      return x[0];
    case Op::cvt:
      return convert(i, *x[0]);
    case Op::setp:
      return x[1] ? compare(i, *x[0], *x[1], x) : std::nullopt;
    case Op::selp:
      return low_bits(*x[2] & 1 ? *x[0] : *x[1], w);
    default:
      break;
  }
  if (type == Mod::f32) return arithmetic<float>(i, x);
  if (type == Mod::f64) return arithmetic<double>(i, x);
  if (is_float(type) || i.type(1) != kNoMod) return std::nullopt;
  return integer(i, x);
}

}  // namespace cgp::ptx::passes
