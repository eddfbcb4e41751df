// SPDX-License-Identifier: Apache-2.0
#pragma once
// Atomics: atom<relaxed, gpu, op::add>(p, i, v) returns the old value, red<...> returns nothing. Order and
// scope come first, the operation last, as in PTX; both are optional there (relaxed, gpu) and here. PTX
// ISA 9.7.13.
#include "cgp/dsl/memory/ptr.h"

namespace cgp::dsl {

namespace record_impl {
template <class Op>
inline constexpr bool is_bitwise = has_tag<Op, op::and_, op::or_, op::xor_, exch, cas>;
/// The type word of an atomic: bits for logic, exch and cas; unsigned for 64-bit signed adds.
template <class Op, class T>
constexpr ptx::Mod atomic_mod() {
  if (is_bitwise<Op>) return bits_mod(T::bits);
  if (std::is_same_v<Op, op::add> && T::mod == ptx::Mod::s64) return ptx::Mod::u64;
  return T::mod;
}
template <class Space, class T, class... Tags>
ptx::Mods atomic_mods() {
  using Op = typename LastTag<Tags...>::type;
  static_assert(has_tag<Op, op::add, op::min, op::max, inc, dec, op::and_, op::or_, op::xor_, exch, cas>,
                "an atomic ends with its operation: atom<relaxed, gpu, op::add>");
  static_assert(!std::is_same_v<Op, inc> || T::mod == ptx::Mod::u32, "inc and dec count in u32");
  static_assert(!std::is_same_v<Op, dec> || T::mod == ptx::Mod::u32, "inc and dec count in u32");
  static_assert(T::bits >= 16, "atomics work on 16 bits and more");
  ptx::Mods m;
  const auto before = [&](ptx::Mod t) {
    if (t != Op::mod) m.push_back(t);
  };
  (before(Tags::mod), ...);
  if constexpr (!std::is_same_v<Space, generic>) m.push_back(Space::mod);
  m.push_back(Op::mod);
  if (Op::mod == ptx::Mod::add && T::bits <= 32 && Floating<T> && T::mod != ptx::Mod::f32)
    m.push_back(ptx::Mod::noftz);
  return m;
}
}  // namespace record_impl

/// Old value of element i. cas takes (compare, value); exch, add, ... take one operand.
template <class... Tags, class Space, class T, Index I>
requires(!std::is_const_v<T>) Val<T> atom(const Ptr<Space, T>& p, const I& i,
                                          const std::type_identity_t<Val<T>>& v, Here at = Here::now()) {
  using Op = typename LastTag<Tags...>::type;
  static_assert(!std::is_same_v<Op, cas>, "cas compares: atom<..., cas>(p, i, compare, value)");
  Kernel& k = *p.kernel();
  k.at(at);
  auto m = record_impl::atomic_mods<Space, T, Tags...>();
  m.push_back(record_impl::atomic_mod<Op, T>());
  const auto address = record_impl::address_operand(k, p.indexed(i, p.elem_bytes, at), p.elem_bytes, at);
  const auto value = k.in_register(v);
  const Val<T> old = k.fresh<T>(Uniform::thread);
  k.inst(ptx::Op::atom, m, {ptx::Operand::of(old.reg()), address, value});
  return old;
}
template <class... Tags, class Space, class T, Index I>
requires(!std::is_const_v<T>) Val<T> atom(const Ptr<Space, T>& p, const I& i,
                                          const std::type_identity_t<Val<T>>& compare,
                                          const std::type_identity_t<Val<T>>& v, Here at = Here::now()) {
  static_assert(std::is_same_v<typename LastTag<Tags...>::type, cas>, "only cas takes two operands");
  Kernel& k = *p.kernel();
  k.at(at);
  auto m = record_impl::atomic_mods<Space, T, Tags...>();
  m.push_back(bits_mod(T::bits));
  const auto address = record_impl::address_operand(k, p.indexed(i, p.elem_bytes, at), p.elem_bytes, at);
  const auto expected = k.in_register(compare), value = k.in_register(v);
  const Val<T> old = k.fresh<T>(Uniform::thread);
  k.inst(ptx::Op::atom, m, {ptx::Operand::of(old.reg()), address, expected, value});
  return old;
}
/// The reduction without the old value.
template <class... Tags, class Space, class T, Index I>
requires(!std::is_const_v<T>) void red(const Ptr<Space, T>& p, const I& i,
                                       const std::type_identity_t<Val<T>>& v, Here at = Here::now()) {
  using Op = typename LastTag<Tags...>::type;
  static_assert(!has_tag<Op, cas, exch>, "cas and exch return the old value: use atom");
  Kernel& k = *p.kernel();
  k.at(at);
  auto m = record_impl::atomic_mods<Space, T, Tags...>();
  m.push_back(record_impl::atomic_mod<Op, T>());
  const auto address = record_impl::address_operand(k, p.indexed(i, p.elem_bytes, at), p.elem_bytes, at);
  const auto value = k.in_register(v);
  k.inst(ptx::Op::red, m, {address, value});
}
/// Vector reduction in global memory (sm_90): N neighbouring f32, f16(x2) or bf16(x2) in one instruction.
template <class... Tags, class T, int N, Index I>
requires(!std::is_const_v<T>) void red(const Ptr<global, T>& p, const I& i, const RegGroup<T, N>& v,
                                       Here at = Here::now()) {
  static_assert(N == 2 || N == 4 || N == 8, "vector reductions have 2, 4 or 8 elements");
  static_assert(Floating<T> && N * T::bits <= 128, "vector reductions are for floats, up to 16 bytes");
  Kernel& k = *p.kernel();
  k.needs_sm(90, "a vector red", at);
  k.at(at);
  auto m = record_impl::atomic_mods<global, T, Tags...>();
  m.push_back(N == 2 ? ptx::Mod::v2 : N == 4 ? ptx::Mod::v4 : ptx::Mod::v8);
  m.push_back(T::mod);
  const auto address =
      record_impl::address_operand(k, p.indexed(i, p.elem_bytes * N, at), p.elem_bytes * N, at);
  std::vector<ptx::RegId> regs;
  for (const Value& x : v.values()) regs.push_back(k.register_of(x));
  k.inst(ptx::Op::red, m, {address, ptx::Operand::vec_of(regs)});
}

}  // namespace cgp::dsl
