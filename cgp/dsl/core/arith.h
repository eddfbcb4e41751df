// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic with its PTX words spelled: add<rz>(a, b), mul<wide>(a, b), fma<rn, ftz>(a, b, c),
// ex2<approx>(x). The first dotted word is the function, the rest are template tags in PTX order; the type
// follows from the operands. C++ numbers may stand for any operand but one. Combinations that PTX lacks are
// refused when the kernel is built. PTX ISA 9.7.1 to 9.7.5.
#include "cgp/dsl/core/flow.h"

namespace cgp::dsl {

namespace record_impl {
/// The kernel of the first operand that has one.
Kernel& owner(Values in, ptx::Op op, Here at);

template <class R, class... V>
Val<R> emit(ptx::Op op, ptx::Mods m, Here at, const V&... v) {
  return Val<R>(owner({v...}, op, at).op(op, m, R::mod, {v...}, at));
}
template <class... Tags>
ptx::Mods typed(ptx::Mod type) {
  ptx::Mods m = mods_of<Tags...>();
  m.push_back(type);
  return m;
}
template <class T>
struct Wider;
template <>
struct Wider<u16> {
  using type = u32;
};
template <>
struct Wider<s16> {
  using type = s32;
};
template <>
struct Wider<u32> {
  using type = u64;
};
template <>
struct Wider<s32> {
  using type = s64;
};
}  // namespace record_impl

#define CGP_DSL_UNARY(function, opcode, constraint, message)                                          \
  template <class... Tags, IsVal A>                                                                   \
  auto function(const A& a, Here at = Here::now()) {                                                  \
    using T = typename A::elem;                                                                       \
    static_assert(constraint, message);                                                               \
    return record_impl::emit<T>(ptx::Op::opcode, record_impl::typed<Tags...>(T::mod), at, Val<T>(a)); \
  }
#define CGP_DSL_BINARY(function, opcode, constraint, message)                                        \
  template <class... Tags, class A, class B>                                                         \
  requires AnyVal<A, B>                                                                              \
  auto function(const A& a, const B& b, Here at = Here::now()) {                                     \
    using T = ElemOf<A, B>;                                                                          \
    static_assert(constraint, message);                                                              \
    return record_impl::emit<T>(ptx::Op::opcode, record_impl::typed<Tags...>(T::mod), at, Val<T>(a), \
                                Val<T>(b));                                                          \
  }
#define CGP_DSL_TERNARY(function, opcode, constraint, message)                                       \
  template <class... Tags, class A, class B, class C>                                                \
  requires AnyVal<A, B, C>                                                                           \
  auto function(const A& a, const B& b, const C& c, Here at = Here::now()) {                         \
    using T = ElemOf<A, B, C>;                                                                       \
    static_assert(constraint, message);                                                              \
    return record_impl::emit<T>(ptx::Op::opcode, record_impl::typed<Tags...>(T::mod), at, Val<T>(a), \
                                Val<T>(b), Val<T>(c));                                               \
  }

// ---------------------------------------------------------------- integers and floats
CGP_DSL_BINARY(add, add, Arithmetic<T>, "add works on 16, 32 and 64-bit numbers")
CGP_DSL_BINARY(sub, sub, Arithmetic<T>, "sub works on 16, 32 and 64-bit numbers")
CGP_DSL_BINARY(rem, rem, Integer<T>&& T::bits >= 16, "rem works on integers")
CGP_DSL_BINARY(min, min, Arithmetic<T>, "min works on 16, 32 and 64-bit numbers")
CGP_DSL_BINARY(max, max, Arithmetic<T>, "max works on 16, 32 and 64-bit numbers")
CGP_DSL_UNARY(abs, abs, Arithmetic<T> && !Unsigned<T>, "abs works on signed integers and floats")
CGP_DSL_UNARY(neg, neg, Arithmetic<T> && !Unsigned<T>, "neg works on signed integers and floats")
/// Three-input minimum and maximum: f32, sm_100 and newer.
CGP_DSL_TERNARY(min, min, T::mod == ptx::Mod::f32, "three-input min is f32 only")
CGP_DSL_TERNARY(max, max, T::mod == ptx::Mod::f32, "three-input max is f32 only")

/// mul<lo>, mul<hi>, mul<wide> for integers (wide: twice the bits); mul<rn, ftz, sat> for floats.
template <class... Tags, class A, class B>
requires AnyVal<A, B>
auto mul(const A& a, const B& b, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  static_assert(Arithmetic<T>, "mul works on 16, 32 and 64-bit numbers");
  static_assert(!Integer<T> || has_tag<lo, Tags...> || has_tag<hi, Tags...> || has_tag<wide, Tags...>,
                "an integer mul names the half it keeps: mul<lo>, mul<hi> or mul<wide>");
  const auto m = record_impl::typed<Tags...>(T::mod);
  if constexpr (has_tag<wide, Tags...>)
    return record_impl::emit<typename record_impl::Wider<T>::type>(ptx::Op::mul, m, at, Val<T>(a), Val<T>(b));
  else
    return record_impl::emit<T>(ptx::Op::mul, m, at, Val<T>(a), Val<T>(b));
}
/// a * b + c; with mad<wide> c and the result have twice the bits.
template <class... Tags, class A, class B, class C>
requires AnyVal<A, B>
auto mad(const A& a, const B& b, const C& c, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  static_assert(Integer<T> && T::bits >= 16, "mad is for integers: use fma<rn> for floats");
  static_assert(has_tag<lo, Tags...> || has_tag<hi, Tags...> || has_tag<wide, Tags...>,
                "mad names the half it keeps: mad<lo>, mad<hi> or mad<wide>");
  const auto m = record_impl::typed<Tags...>(T::mod);
  if constexpr (has_tag<wide, Tags...>) {
    using W = typename record_impl::Wider<T>::type;
    return record_impl::emit<W>(ptx::Op::mad, m, at, Val<T>(a), Val<T>(b), Val<W>(c));
  } else {
    return record_impl::emit<T>(ptx::Op::mad, m, at, Val<T>(a), Val<T>(b), Val<T>(c));
  }
}
/// div<approx>, div<full>, div<rn> ... for f32; no tag for integers.
template <class... Tags, class A, class B>
requires AnyVal<A, B>
auto div(const A& a, const B& b, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  static_assert(Arithmetic<T>, "div works on numbers");
  static_assert(Integer<T> || sizeof...(Tags) > 0,
                "a float division names its rounding: div<rn>, div<approx> or div<full>");
  return record_impl::emit<T>(ptx::Op::div, record_impl::typed<Tags...>(T::mod), at, Val<T>(a), Val<T>(b));
}
/// fma(a, b, c) is fma.rn; fma<rz, ftz>(a, b, c) spells it.
template <class... Tags, class A, class B, class C>
requires AnyVal<A, B, C>
auto fma(const A& a, const B& b, const C& c, Here at = Here::now()) {
  using T = ElemOf<A, B, C>;
  static_assert(Floating<T>, "fma is for floats: use mad<lo> for integers");
  ptx::Mods m;
  if constexpr (sizeof...(Tags) == 0)
    m = {ptx::Mod::rn, T::mod};
  else
    m = record_impl::typed<Tags...>(T::mod);
  return record_impl::emit<T>(ptx::Op::fma, m, at, Val<T>(a), Val<T>(b), Val<T>(c));
}

#define CGP_DSL_FUNCTION(function)                                                                      \
  template <class... Tags, IsVal A>                                                                     \
  auto function(const A& a, Here at = Here::now()) {                                                    \
    using T = typename A::elem;                                                                         \
    static_assert(Floating<T>, #function " works on floats");                                           \
    static_assert(sizeof...(Tags) > 0,                                                                  \
                  "name the precision: " #function "<approx>(x), or <rn> where PTX has it");            \
    return record_impl::emit<T>(ptx::Op::function, record_impl::typed<Tags...>(T::mod), at, Val<T>(a)); \
  }
CGP_DSL_FUNCTION(rcp)
CGP_DSL_FUNCTION(sqrt)
CGP_DSL_FUNCTION(rsqrt)
CGP_DSL_FUNCTION(sin)
CGP_DSL_FUNCTION(cos)
CGP_DSL_FUNCTION(lg2)
CGP_DSL_FUNCTION(ex2)
CGP_DSL_FUNCTION(tanh)
#undef CGP_DSL_FUNCTION
CGP_DSL_BINARY(copysign, copysign, T::mod == ptx::Mod::f32 || T::mod == ptx::Mod::f64,
               "copysign: f32 and f64")
/// testp<mod::finite>(x), infinite, number, notanumber, normal, subnormal.
template <class Tag, IsVal A>
Val<pred> testp(const A& a, Here at = Here::now()) {
  using T = typename A::elem;
  return record_impl::emit<pred>(ptx::Op::testp, {Tag::mod, T::mod}, at, Val<T>(a));
}

// ---------------------------------------------------------------- integer bit operations
#define CGP_DSL_COUNT(function, ...)                                                               \
  template <class... Tags, IsVal A>                                                                \
  Val<u32> function(const A& a, Here at = Here::now()) {                                           \
    using T = typename A::elem;                                                                    \
    static_assert(Logical<T> && T::bits >= 32, #function " works on 32 and 64 bits");              \
    return record_impl::emit<u32>(ptx::Op::function, record_impl::typed<Tags...>(__VA_ARGS__), at, \
                                  Val<T>(a));                                                      \
  }
CGP_DSL_COUNT(popc, bits_mod(T::bits))
CGP_DSL_COUNT(clz, bits_mod(T::bits))
CGP_DSL_COUNT(bfind, T::mod)
#undef CGP_DSL_COUNT
template <IsVal A>
auto brev(const A& a, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(Logical<T> && T::bits >= 32, "brev works on 32 and 64 bits");
  return record_impl::emit<T>(ptx::Op::brev, {bits_mod(T::bits)}, at, Val<T>(a));
}
/// Position of the n-th set bit of mask from `base`.
Val<u32> fns(const Val<u32>& mask, const Val<u32>& base, const Val<s32>& n, Here at = Here::now());
/// `length` bits of a from `position`, zero- or sign-extended by the type.
template <IsVal A>
auto bfe(const A& a, const Val<u32>& position, const Val<u32>& length, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(Integer<T> && T::bits >= 32,
                "bfe works on u32, u64, s32, s64: the type decides the extension");
  return record_impl::emit<T>(ptx::Op::bfe, {T::mod}, at, Val<T>(a), position, length);
}
/// b with `length` bits from `position` replaced by the low bits of a.
template <class A, class B>
requires AnyVal<A, B>
auto bfi(const A& a, const B& b, const Val<u32>& position, const Val<u32>& length, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  static_assert(Logical<T> && T::bits >= 32, "bfi works on 32 and 64 bits");
  return record_impl::emit<T>(ptx::Op::bfi, {bits_mod(T::bits)}, at, Val<T>(a), Val<T>(b), position, length);
}
/// A mask of `width` ones from `position`: bmsk<clamp> or bmsk<wrap>.
template <class Tag>
Val<u32> bmsk(const Val<u32>& position, const Val<u32>& width, Here at = Here::now()) {
  return record_impl::emit<u32>(ptx::Op::bmsk, {Tag::mod, ptx::Mod::b32}, at, position, width);
}
/// Sign- or zero-extends the low n bits: szext<clamp> or szext<wrap>.
template <class Tag, IsVal A>
auto szext(const A& a, const Val<u32>& n, Here at = Here::now()) {
  using T = typename A::elem;
  return record_impl::emit<T>(ptx::Op::szext, {Tag::mod, T::mod}, at, Val<T>(a), n);
}
/// |a - b| + c.
CGP_DSL_TERNARY(sad, sad, Integer<T>&& T::bits >= 16, "sad works on integers")
/// c plus the dot product of four 8-bit lanes; signedness of the lanes and of c from the types of a, b and c.
template <IsVal A, IsVal B, class C>
auto dp4a(const A& a, const B& b, const C& c, Here at = Here::now()) {
  using TA = typename A::elem;
  using TB = typename B::elem;
  using R = std::conditional_t<Signed<TA> || Signed<TB>, s32, u32>;
  static_assert(Integer<TA> && Integer<TB> && TA::bits == 32 && TB::bits == 32,
                "dp4a: u32 or s32 words of four bytes");
  return record_impl::emit<R>(ptx::Op::dp4a, {TA::mod, TB::mod}, at, Val<TA>(a), Val<TB>(b), Val<R>(c));
}
/// c plus the dot product of two 16-bit lanes of a with the low or high two bytes of b: dp2a<lo>, dp2a<hi>.
template <class Tag, IsVal A, IsVal B, class C>
auto dp2a(const A& a, const B& b, const C& c, Here at = Here::now()) {
  using TA = typename A::elem;
  using TB = typename B::elem;
  using R = std::conditional_t<Signed<TA> || Signed<TB>, s32, u32>;
  return record_impl::emit<R>(ptx::Op::dp2a, {Tag::mod, TA::mod, TB::mod}, at, Val<TA>(a), Val<TB>(b),
                              Val<R>(c));
}
/// Extended precision: each reads the carry that the instruction right before it wrote.
#define CGP_DSL_CARRY(function)                                  \
  CGP_DSL_BINARY(function, function, Integer<T>&& T::bits >= 32, \
                 "extended precision works on 32 and 64-bit integers")
CGP_DSL_CARRY(add_cc)
CGP_DSL_CARRY(addc)
CGP_DSL_CARRY(addc_cc)
CGP_DSL_CARRY(sub_cc)
CGP_DSL_CARRY(subc)
CGP_DSL_CARRY(subc_cc)
#undef CGP_DSL_CARRY

// ---------------------------------------------------------------- logic and shifts
#define CGP_DSL_LOGIC(function)                                                                    \
  template <class A, class B>                                                                      \
  requires AnyVal<A, B>                                                                            \
  auto function(const A& a, const B& b, Here at = Here::now()) {                                   \
    using T = ElemOf<A, B>;                                                                        \
    static_assert(Logical<T>, #function " works on bits and predicates");                          \
    return record_impl::emit<T>(ptx::Op::function, {bits_mod(T::bits)}, at, Val<T>(a), Val<T>(b)); \
  }
CGP_DSL_LOGIC(and_)
CGP_DSL_LOGIC(or_)
CGP_DSL_LOGIC(xor_)
#undef CGP_DSL_LOGIC
template <IsVal A>
auto not_(const A& a, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(Logical<T>, "not_ works on bits and predicates");
  return record_impl::emit<T>(ptx::Op::not_, {bits_mod(T::bits)}, at, Val<T>(a));
}
template <IsVal A>
auto cnot(const A& a, Here at = Here::now()) {  ///< a == 0 ? 1 : 0
  using T = typename A::elem;
  return record_impl::emit<T>(ptx::Op::cnot, {bits_mod(T::bits)}, at, Val<T>(a));
}
/// Any function of three bits: Lut is f(0xf0, 0xcc, 0xaa). lop3<0x96> is a ^ b ^ c.
template <int Lut, class A, class B, class C>
requires AnyVal<A, B, C>
auto lop3(const A& a, const B& b, const C& c, Here at = Here::now()) {
  using T = ElemOf<A, B, C>;
  static_assert(Lut >= 0 && Lut <= 255, "lop3: the table has 8 bits");
  static_assert(Logical<T> && T::bits == 32, "lop3 works on 32 bits");
  return record_impl::emit<T>(ptx::Op::lop3, {ptx::Mod::b32}, at, Val<T>(a), Val<T>(b), Val<T>(c),
                              Val<u32>(Lut));
}
/// Funnel shift of {high, low}: shf<mod::l, clamp>(low, high, n), shf<mod::r, wrap>(low, high, n).
template <class... Tags, class A, class B>
requires AnyVal<A, B>
auto shf(const A& low, const B& high, const Val<u32>& n, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  static_assert(sizeof...(Tags) == 2, "shf names direction and mode: shf<mod::l, clamp>");
  return record_impl::emit<T>(ptx::Op::shf, record_impl::typed<Tags...>(ptx::Mod::b32), at, Val<T>(low),
                              Val<T>(high), n);
}
template <IsVal A>
auto shl(const A& a, const Val<u32>& n, Here at = Here::now()) {
  using T = typename A::elem;
  return record_impl::emit<T>(ptx::Op::shl, {bits_mod(T::bits)}, at, Val<T>(a), n);
}
template <IsVal A>
auto shr(const A& a, const Val<u32>& n, Here at = Here::now()) {
  using T = typename A::elem;
  return record_impl::emit<T>(ptx::Op::shr, {T::mod}, at, Val<T>(a), n);
}
/// Byte permute of {b, a}: each nibble of the selector picks a byte; prmt<f4e> ... for the other modes.
template <class... Tags, class A, class B>
requires AnyVal<A, B>
auto prmt(const A& a, const B& b, const Val<u32>& selector, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  static_assert(T::bits == 32, "prmt works on 32 bits");
  ptx::Mods m{ptx::Mod::b32};
  (m.push_back(Tags::mod), ...);
  return record_impl::emit<T>(ptx::Op::prmt, m, at, Val<T>(a), Val<T>(b), selector);
}

// ---------------------------------------------------------------- comparisons
/// setp<ltu>(a, b), setp<eq, ftz>(a, b): comparisons that have no operator.
template <class... Tags, class A, class B>
requires(AnyVal<A, B> && sizeof...(Tags) > 0) Val<pred> setp(const A& a, const B& b, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  return record_impl::emit<pred>(ptx::Op::setp, record_impl::typed<Tags...>(T::mod), at, Val<T>(a),
                                 Val<T>(b));
}
/// setp with a predicate folded in: setp<lt, op::and_>(a, b, p) is (a < b) & p.
template <class... Tags, class A, class B>
requires(AnyVal<A, B> && sizeof...(Tags) > 1) Val<pred> setp(const A& a, const B& b, const Val<pred>& p,
                                                             Here at = Here::now()) {
  using T = ElemOf<A, B>;
  return record_impl::emit<pred>(ptx::Op::setp, record_impl::typed<Tags...>(T::mod), at, Val<T>(a), Val<T>(b),
                                 p);
}
/// All ones (or 1.0f) where the comparison holds, else 0: set<u32, lt>(a, b), set<f32, ge>(a, b).
template <class To, class... Tags, class A, class B>
requires(AnyVal<A, B> && sizeof...(Tags) > 0) Val<To> set(const A& a, const B& b, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  ptx::Mods m = mods_of<Tags...>();
  m.push_back(To::mod);
  m.push_back(T::mod);
  return record_impl::emit<To>(ptx::Op::set, m, at, Val<T>(a), Val<T>(b));
}
/// a where c >= 0, else b.
template <class A, class B, IsVal C>
requires AnyVal<A, B>
auto slct(const A& a, const B& b, const C& c, Here at = Here::now()) {
  using T = ElemOf<A, B>;
  using S = typename C::elem;
  static_assert(S::mod == ptx::Mod::s32 || S::mod == ptx::Mod::f32, "slct decides by an s32 or f32");
  return record_impl::emit<T>(ptx::Op::slct, {T::mod, S::mod}, at, Val<T>(a), Val<T>(b), Val<S>(c));
}

#undef CGP_DSL_UNARY
#undef CGP_DSL_BINARY
#undef CGP_DSL_TERNARY

}  // namespace cgp::dsl
