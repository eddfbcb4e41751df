// SPDX-License-Identifier: Apache-2.0
#pragma once
// Val<T>: an immutable run-time value. An operator is one PTX instruction with default rounding, recorded
// when C++ evaluates it. There is no assignment and no conversion to bool: state is carried through k.loop /
// k.if_, and a Val<pred> steers k.if_ or select(). Read record.h first, flow.h next.
#include <bit>
#include <cmath>
#include <limits>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/record.h"

namespace cgp::dsl {

/// The bit pattern of a C++ number as a literal of element type T; BuildError when an integer does not fit.
template <class T, class H>
Value literal_of(H c) {
  constexpr ptx::Mod t = T::mod;
  if constexpr (std::is_same_v<H, bool>) {
    return Value::literal(c ? 1 : 0, t);
  } else if constexpr (t == ptx::Mod::f32) {
    return Value::literal(std::bit_cast<std::uint32_t>(float(c)), t);
  } else if constexpr (t == ptx::Mod::f64) {
    return Value::literal(std::bit_cast<std::uint64_t>(double(c)), t);
  } else if constexpr (t == ptx::Mod::f16) {
    return Value::literal(half(double(c)).bits, t);
  } else if constexpr (t == ptx::Mod::bf16) {
    return Value::literal(bfloat16(double(c)).bits, t);
  } else if constexpr (t == ptx::Mod::f16x2) {
    return Value::literal(half(double(c)).bits * 0x10001u, t);
  } else if constexpr (t == ptx::Mod::bf16x2) {
    return Value::literal(bfloat16(double(c)).bits * 0x10001u, t);
  } else if constexpr (t == ptx::Mod::f32x2) {
    return Value::literal(std::bit_cast<std::uint32_t>(float(c)) * 0x100000001ull, t);
  } else {
    constexpr int bits = T::bits > 64 ? 64 : T::bits;
    const auto pattern = std::uint64_t(std::int64_t(c));
    if constexpr (bits < 64) {
      const std::int64_t v = std::int64_t(c);
      const bool is_signed = kind_of(t) == Kind::signed_int;
      const std::int64_t low = is_signed ? -(std::int64_t(1) << (bits - 1)) : 0;
      const std::int64_t high =
          is_signed ? (std::int64_t(1) << (bits - 1)) - 1 : (std::int64_t(1) << bits) - 1;
      const bool above_s64 = std::is_unsigned_v<H> && v < 0;
      if (v < low || v > high || above_s64)
        throw BuildError(text::cat("a literal must fit its type: ", c, " is no ", ptx::name(t)),
                         Here{"literal", 0}, text::cat(ptx::name(t), " holds ", low, " to ", high));
      return Value::literal(pattern & ((std::uint64_t(1) << bits) - 1), t);
    } else {
      return Value::literal(pattern, t);
    }
  }
}

/// C++ numbers that may stand for a Val<T>: integers for integer types, any number for floats, bool for pred.
template <class H, class T>
concept LiteralFor = std::is_arithmetic_v<H> &&
    (T::mod == ptx::Mod::pred ? std::is_same_v<H, bool>
                              : !std::is_same_v<H, bool> && (Floating<T> || std::is_integral_v<H>));

/// An operand and the C++ line it was written on.
template <class T>
struct At {
  Val<T> v;
  Here at;
  At(const Val<T>& v, Here at = Here::now()) : v(v), at(at) {}  // NOLINT: implicit by design
  template <LiteralFor<T> H>
  At(H c, Here at = Here::now()) : v(c), at(at) {}  // NOLINT: implicit by design
};

namespace record_impl {
Value binary(ptx::Op op, ptx::Mods mods, ptx::Mod type, const Value& a, const Value& b, Here at);
Value unary(ptx::Op op, ptx::Mods mods, ptx::Mod type, const Value& a, Here at);
}  // namespace record_impl

template <class T>
class Val : public Value {
  static_assert(Element<T>, "Val<T>: T is an element type of PTX (f32, u32, bf16x2, pred, ...)");
  using M = ptx::Mod;
  using O = ptx::Op;
  static constexpr bool is_int = Integer<T>;
  static constexpr M bits_type = bits_mod(T::bits);
  static Val make(O op, ptx::Mods m, const At<T>& a, const Val& b) {
    return Val(record_impl::binary(op, m, T::mod, a.v, b, a.at));
  }
  static Val<mod::pred> compare(M relation, const At<T>& a, const Val& b);

 public:
  using elem = T;
  template <LiteralFor<T> H>
  Val(H c) : Value(literal_of<T>(c)) {}  // NOLINT: a C++ number is a literal operand
  explicit Val(const Value& v) : Value(v) {}
  Val(const Val&) = default;
  Val& operator=(const Val&) =
      delete;  ///< a run-time value cannot be re-bound: carry it through loop()/if_()
  explicit operator bool() const =
      delete;  ///< a run-time predicate cannot steer C++: use k.if_() or select()

  friend Val operator+(At<T> a, Val b) requires Arithmetic<T> { return make(O::add, {T::mod}, a, b); }
  friend Val operator-(At<T> a, Val b) requires Arithmetic<T> { return make(O::sub, {T::mod}, a, b); }
  friend Val operator*(At<T> a, Val b) requires Arithmetic<T> {
    return make(O::mul, is_int ? ptx::Mods{M::lo, T::mod} : ptx::Mods{T::mod}, a, b);
  }
  friend Val operator/(At<T> a,
                       Val b) requires((Arithmetic<T> && is_int) || T::mod == M::f32 || T::mod == M::f64) {
    return make(O::div, is_int ? ptx::Mods{T::mod} : ptx::Mods{M::rn, T::mod}, a, b);
  }
  friend Val operator%(At<T> a, Val b) requires(is_int&& Arithmetic<T>) {
    return make(O::rem, {T::mod}, a, b);
  }
  friend Val operator-(At<T> a) requires(Arithmetic<T> && !Unsigned<T> && T::mod != M::f32x2) {
    return Val(record_impl::unary(O::neg, {T::mod}, T::mod, a.v, a.at));
  }
  friend Val operator&(At<T> a, Val b) requires Logical<T> { return make(O::and_, {bits_type}, a, b); }
  friend Val operator|(At<T> a, Val b) requires Logical<T> { return make(O::or_, {bits_type}, a, b); }
  friend Val operator^(At<T> a, Val b) requires Logical<T> { return make(O::xor_, {bits_type}, a, b); }
  friend Val operator~(At<T> a) requires(Logical<T>&& T::mod != M::pred) {
    return Val(record_impl::unary(O::not_, {bits_type}, T::mod, a.v, a.at));
  }
  friend Val operator!(const Val& a) requires(T::mod == M::pred) {  // exact match: bool is a candidate too
    return Val(record_impl::unary(O::not_, {M::pred}, T::mod, a, Here{}));
  }
  /// Shift amounts above the width give 0 (or the sign), as PTX clamps them.
  friend Val operator<<(At<T> a, const Val<mod::u32>& n) requires(Logical<T>&& T::mod != M::pred) {
    return Val(record_impl::binary(O::shl, {bits_type}, T::mod, a.v, n, a.at));
  }
  friend Val operator>>(At<T> a, const Val<mod::u32>& n) requires(Logical<T>&& T::mod != M::pred) {
    return Val(record_impl::binary(O::shr, {T::mod}, T::mod, a.v, n, a.at));
  }
  friend Val<mod::pred> operator<(At<T> a, Val b) requires Arithmetic<T> { return compare(M::lt, a, b); }
  friend Val<mod::pred> operator<=(At<T> a, Val b) requires Arithmetic<T> { return compare(M::le, a, b); }
  friend Val<mod::pred> operator>(At<T> a, Val b) requires Arithmetic<T> { return compare(M::gt, a, b); }
  friend Val<mod::pred> operator>=(At<T> a, Val b) requires Arithmetic<T> { return compare(M::ge, a, b); }
  friend Val<mod::pred> operator==(At<T> a, At<T> b) requires(Arithmetic<T> || Bits<T>) {
    return compare(M::eq, a, b.v);
  }
  // == and != take both sides alike: C++20 would otherwise prefer the reversed operator.
  /// Unordered for floats (NaN != NaN holds), as in C++.
  friend Val<mod::pred> operator!=(At<T> a, At<T> b) requires(Arithmetic<T> || Bits<T>) {
    return compare(Floating<T> ? M::neu : M::ne, a, b.v);
  }
};

template <class T>
Val<mod::pred> Val<T>::compare(M relation, const At<T>& a, const Val& b) {
  static_assert(kind_of(T::mod) != Kind::packed, "compare packed values lane by lane: unpack them first");
  return Val<mod::pred>(record_impl::binary(O::setp, {relation, T::mod}, M::pred, a.v, b, a.at));
}

template <class T>
Val<T> Kernel::fresh(Uniform u) {
  return Val<T>(fresh(T::mod, u));
}

// ---------------------------------------------------------------- which element type do these arguments have
template <class A>
concept IsVal = requires {
  typename A::elem;
}
&&std::derived_from<A, Val<typename A::elem>>;
template <class... A>
struct ElemOfFirst {};
template <class A, class... R>
struct ElemOfFirst<A, R...> : ElemOfFirst<R...> {};
template <IsVal A, class... R>
struct ElemOfFirst<A, R...> {
  using type = typename A::elem;
};
/// The element type of the first Val among the arguments; the others may be C++ numbers.
template <class... A>
using ElemOf = typename ElemOfFirst<A...>::type;
template <class... A>
concept AnyVal = requires {
  typename ElemOfFirst<A...>::type;
};

// ---------------------------------------------------------------- basic functions on values
/// selp: x where p holds, else y. Both are evaluated.
template <class A, class B>
requires AnyVal<A, B> Val<ElemOf<A, B>> select(const Val<pred>& p, const A& x, const B& y,
                                               Here at = Here::now());

/// Promises that v is the same for all threads of the block (or of `over`): the emulator checks nothing here,
/// the collectives below do deadlock if the promise is broken.
template <class T>
Val<T> assume_uniform(const Val<T>& v, Uniform over = Uniform::cta) {
  return Val<T>(v.with(over));
}
/// Carry v through k.loop as uniform: the body must hand back an equally uniform value, which is checked.
template <class T>
Val<T> keep_uniform(const Val<T>& v) {
  return Val<T>(v.with(v.uniform(), true));
}

/// The same bits as another type of the same width: mov.b32.
template <class To, class T>
Val<To> bits(const Val<T>& v, Here at = Here::now()) {
  static_assert(To::bits == T::bits,
                "bits<To>(v) reinterprets: both types must have the same width; to<To>(v) converts");
  if (v.is_literal()) return Val<To>(Value::literal(v.bits(), To::mod));
  if constexpr (reg_class(To::mod, To::bits) == reg_class(T::mod, T::bits))
    return Val<To>(v.as(To::mod));  // one register class: the same register, no instruction
  else
    return Val<To>(v.kernel()->op(ptx::Op::mov, {bits_mod(T::bits)}, To::mod, {v}, at));
}

template <class A, class B>
requires AnyVal<A, B> Val<ElemOf<A, B>> select(const Val<pred>& p, const A& x, const B& y, Here at) {
  using T = ElemOf<A, B>;
  const Val<T> a(x), b(y);
  Kernel* k = p.kernel() ? p.kernel() : a.kernel() ? a.kernel() : b.kernel();
  if (!k) throw BuildError("select of literals belongs to no kernel: choose in C++", at);
  if constexpr (T::mod == ptx::Mod::pred) {
    const auto yes = k->op(ptx::Op::and_, {ptx::Mod::pred}, T::mod, {p, a}, at);
    const auto inverted = k->op(ptx::Op::not_, {ptx::Mod::pred}, T::mod, {p});
    const auto no = k->op(ptx::Op::and_, {ptx::Mod::pred}, T::mod, {inverted, b});
    return Val<T>(k->op(ptx::Op::or_, {ptx::Mod::pred}, T::mod, {yes, no}));
  } else {
    constexpr bool is_float = T::mod == ptx::Mod::f32 || T::mod == ptx::Mod::f64;
    constexpr ptx::Mod type = is_float ? T::mod : bits_mod(T::bits);
    return Val<T>(k->op(ptx::Op::selp, {type}, T::mod, {a, b, p}, at));
  }
}

}  // namespace cgp::dsl
