// SPDX-License-Identifier: Apache-2.0
#pragma once
// Conversions: cvt with its words spelled, to<T>(v) for the usual ones, bits<T>(v) (val.h) for the same bits,
// pack/unpack between one wide register and several narrow ones. PTX ISA 9.7.9.
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/core/reg_group.h"

namespace cgp::dsl {

/// cvt<rn, f16>(x), cvt<rzi, s32>(x), cvt<rn, satfinite, e4m3x2>(hi, lo): the last tag is the destination
/// type, the source type follows from the operand. Of two operands the first becomes the upper half.
template <class... Tags, IsVal A>
auto cvt(const A& a, Here at = Here::now()) {
  using To = typename LastTag<Tags...>::type;
  using T = typename A::elem;
  static_assert(Element<To>, "cvt ends with the destination type: cvt<rn, f16>(x)");
  return record_impl::emit<To>(ptx::Op::cvt, record_impl::typed<Tags...>(T::mod), at, Val<T>(a));
}
template <class... Tags, class A, class B>
requires AnyVal<A, B>
auto cvt(const A& a, const B& b, Here at = Here::now()) {
  using To = typename LastTag<Tags...>::type;
  using T = ElemOf<A, B>;
  static_assert(Element<To>, "cvt ends with the destination type: cvt<rn, bf16x2>(hi, lo)");
  return record_impl::emit<To>(ptx::Op::cvt, record_impl::typed<Tags...>(T::mod), at, Val<T>(a), Val<T>(b));
}

namespace record_impl {
Value bf16_to_f32(Kernel& k, const Value& v, Here at);
Value mov_pack(Kernel& k, ptx::Mod to, const std::vector<Value>& parts, Here at);
std::vector<Value> mov_unpack(Kernel& k, const Value& whole, ptx::Mod part, int n, Here at);
constexpr bool is_half(ptx::Mod m) { return m == ptx::Mod::f16 || m == ptx::Mod::bf16; }
}  // namespace record_impl

/// The value as another number type, as a C++ cast would: integers truncate or extend, float to integer
/// rounds toward zero (and saturates), everything to float rounds to nearest even. A predicate becomes 0
/// or 1.
template <class To, IsVal A>
Val<To> to(const A& v, Here at = Here::now()) {
  using T = typename A::elem;
  using M = ptx::Mod;
  static_assert((Integer<To> || Floating<To>)&&kind_of(To::mod) != Kind::packed,
                "to<T>() makes scalar numbers: use cvt for packed types, bits for bit patterns");
  const Val<T> x(v);
  if constexpr (std::is_same_v<To, T>) {
    return x;
  } else if constexpr (T::mod == M::pred) {
    return select(x, Val<To>(1), Val<To>(0), at);
  } else if constexpr (Integer<To> && Integer<T>) {
    if constexpr (To::bits == T::bits)
      return bits<To>(x, at);
    else
      return record_impl::emit<To>(ptx::Op::cvt, {To::mod, T::mod}, at, x);
  } else if constexpr (Integer<To>) {
    if constexpr (T::mod == M::bf16)
      return to<To>(to<f32>(x, at), at);
    else
      return record_impl::emit<To>(ptx::Op::cvt, {M::rzi, To::mod, T::mod}, at, x);
  } else if constexpr (Integer<T>) {
    if constexpr (To::mod == M::bf16)
      return to<To>(to<f32>(x, at), at);
    else
      return record_impl::emit<To>(ptx::Op::cvt, {M::rn, To::mod, T::mod}, at, x);
  } else if constexpr (To::mod == M::f32 && T::mod == M::bf16) {
    return Val<f32>(record_impl::bf16_to_f32(record_impl::owner({x}, ptx::Op::cvt, at), x, at));
  } else if constexpr (record_impl::is_half(To::mod) && record_impl::is_half(T::mod)) {
    return to<To>(to<f32>(x, at), at);  // f32 holds both exactly
  } else if constexpr (T::mod == M::bf16 || (To::mod == M::bf16 && T::mod == M::f64)) {
    return to<To>(to<f32>(x, at), at);
  } else if constexpr (T::bits < To::bits) {
    return record_impl::emit<To>(ptx::Op::cvt, {To::mod, T::mod}, at, x);  // exact
  } else {
    return record_impl::emit<To>(ptx::Op::cvt, {M::rn, To::mod, T::mod}, at, x);
  }
}

/// One wide value from its parts, lowest first: pack<b64>(lo, hi), pack<f16x2>(lo, hi), pack<f32x2>(lo, hi).
template <class To, class A, class... R>
requires AnyVal<A, R...> Val<To> pack(const A& first, const R&... rest) {
  using T = ElemOf<A, R...>;
  static_assert(To::bits == T::bits * (1 + int(sizeof...(R))), "pack: the parts must fill the whole");
  const std::vector<Value> parts{Val<T>(first), Val<T>(rest)...};
  Kernel* k = nullptr;
  for (const Value& v : parts) k = k ? k : v.kernel();
  if (!k)
    throw BuildError("pack of literals belongs to no kernel: pass one literal of the wide type",
                     Here{"pack", 0});
  return Val<To>(record_impl::mov_pack(*k, To::mod, parts, k->here()));
}
/// The parts of a wide value, lowest first: unpack<b32>(v64), unpack<f16>(v_f16x2).
template <class Part, IsVal A>
RegGroup<Part, A::elem::bits / Part::bits> unpack(const A& whole, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(T::bits % Part::bits == 0 && T::bits > Part::bits, "unpack: the parts must fill the whole");
  Kernel& k = record_impl::owner({whole}, ptx::Op::mov, at);
  return RegGroup<Part, T::bits / Part::bits>::from(
      record_impl::mov_unpack(k, Val<T>(whole), Part::mod, T::bits / Part::bits, at));
}

}  // namespace cgp::dsl
