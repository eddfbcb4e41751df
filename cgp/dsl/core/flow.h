// SPDX-License-Identifier: Apache-2.0
#pragma once
// Run-time control flow: k.if_, k.loop, k.while_, grid_stride. Statements are expressions: state goes in, the
// same type comes out. Every statement knows over which threads its condition is uniform.
#include <tuple>

#include "cgp/dsl/core/carry.h"

namespace cgp::dsl {

template <class I>
struct Range {
  Val<I> from, to, step;
};
/// from, from + step, ... below to. The bounds may be Vals or C++ integers (one of them a Val, or all u32).
template <class A, class B>
requires AnyVal<A, B> Range<ElemOf<A, B>> range(const A& from, const B& to) {
  using I = ElemOf<A, B>;
  return {Val<I>(from), Val<I>(to), Val<I>(1)};
}
template <class A, class B, class C>
requires AnyVal<A, B, C> Range<ElemOf<A, B, C>> range(const A& from, const B& to, const C& step) {
  using I = ElemOf<A, B, C>;
  return {Val<I>(from), Val<I>(to), Val<I>(step)};
}
inline Range<u32> range(std::integral auto from, std::integral auto to, std::integral auto step) {
  return {Val<u32>(from), Val<u32>(to), Val<u32>(step)};
}

template <IsVal N>
Range<typename N::elem> to_range(const N& n) {
  using I = typename N::elem;
  static_assert(Integer<I> && I::bits >= 32, "k.loop counts with u32, s32, u64 or s64");
  return {Val<I>(0), n, Val<I>(1)};
}
inline Range<u32> to_range(std::integral auto n) { return {Val<u32>(0), Val<u32>(n), Val<u32>(1)}; }
template <class I>
const Range<I>& to_range(const Range<I>& r) {
  return r;
}

/// An index no other thread of the launch holds. Only grid_stride() and each_thread() mint one; arithmetic on
/// it gives a plain Val, which Disjoint does not take.
template <class I>
class ThreadIndexOf : public Val<I> {
  friend class Kernel;
  explicit ThreadIndexOf(const Val<I>& v) : Val<I>(v) {}
};
using ThreadIndex64 = ThreadIndexOf<u64>;

template <class Body>
void Kernel::if_(Val<pred> p, Body&& body, Here at) {
  here_ = at;
  const auto skip = new_label();
  bra_if(p, false, skip);
  push_region("if_", p.uniform(), at);
  body();
  pop_region();
  place(skip);
}

template <class Then, class Else>
auto Kernel::if_(Val<pred> p, Then&& then, Else&& otherwise, Here at) {
  using S = std::invoke_result_t<Then>;
  static_assert(std::is_same_v<S, std::invoke_result_t<Else>>, "both arms of if_ must return the same type");
  here_ = at;
  const auto other = new_label(), end = new_label();
  HomeMode homes(*this);
  bra_if(p, false, other);
  push_region("if_", p.uniform(), at);
  if constexpr (std::is_void_v<S>) {
    then();
    pop_region();
    bra(end);
    place(other);
    push_region("if_ (else arm)", p.uniform(), at);
    otherwise();
    pop_region();
    place(end);
  } else {
    static_assert(Carryable<S>,
                  "an if_ returns values, tuples, structs with carried(), or typestates with a Carry");
    S first = then();
    homes.merge(true);
    S home = Carry<S>::home(*this, std::move(first));
    homes.merge(false);
    pop_region();
    bra(end);
    place(other);
    push_region("if_ (else arm)", p.uniform(), at);
    S second = otherwise();
    homes.merge(true);
    S out = Carry<S>::settle(*this, home, std::move(second));
    flush_moves();
    homes.merge(false);
    pop_region();
    place(end);
    return out;
  }
}

template <class N, class Body>
void Kernel::loop(const N& n, Body&& body, Here at) {
  loop(
      n, std::tuple<>{},
      [&](const auto& i, std::tuple<>) {
        body(i);
        return std::tuple<>{};
      },
      at);
}

template <class N, class S, class Body>
S Kernel::loop(const N& n, S init, Body&& body, Here at) {
  static_assert(Carryable<S>, "loop state must be a Val, a tuple, a struct with carried(), or have a Carry");
  auto r = to_range(n);
  using I = typename std::remove_const_t<decltype(r.from)>::elem;
  static_assert(
      std::is_same_v<std::invoke_result_t<Body, Val<I>, S>, S>,
      "loop body must hand back the state it received (same type): did an async step stay un-waited?");
  here_ = at;
  const Uniform u = min_of(r.from.uniform(), min_of(r.to.uniform(), r.step.uniform()));
  const bool unit = r.step.is_literal() && r.step.bits() == 1;
  S home = Carry<S>::home(*this, std::move(init));
  const Val<I> i(copy(r.from).with(u));
  const auto top = new_label(), end = new_label();
  const auto none = op(ptx::Op::setp, {ptx::Mod::ge, I::mod}, ptx::Mod::pred, {i, r.to}, at);
  bra_if(none, true, end);
  if (nounroll_) f_.body_pragmas.push_back({"nounroll", std::uint32_t(f_.body.size())});
  nounroll_ = false;
  place(top);
  push_region("loop", u, at);
  S next = body(i, Carry<S>::view(home));
  S out = Carry<S>::settle(*this, home, std::move(next));
  flush_moves();
  here_ = at;
  // With a step, i + step may wrap; what is left (to - i, never 0 here) compared unsigned does not.
  constexpr ptx::Mod unsigned_mod = I::bits == 64 ? ptx::Mod::u64 : ptx::Mod::u32;
  if (unit) {
    mov_op(i, ptx::Op::add, {I::mod}, {i, r.step});
    bra_if(op(ptx::Op::setp, {ptx::Mod::lt, I::mod}, ptx::Mod::pred, {i, r.to}), true, top);
  } else {
    const auto left = op(ptx::Op::sub, {I::mod}, I::mod, {r.to, i});
    const auto more = op(ptx::Op::setp, {ptx::Mod::gt, unsigned_mod}, ptx::Mod::pred, {left, r.step});
    mov_op(i, ptx::Op::add, {I::mod}, {i, r.step});
    bra_if(more, true, top);
  }
  pop_region();
  place(end);
  return out;
}

template <class S, class Cond, class Body>
S Kernel::while_(S init, Cond&& cond, Body&& body, Here at) {
  static_assert(Carryable<S>, "loop state must be a Val, a tuple, a struct with carried(), or have a Carry");
  static_assert(
      std::is_same_v<std::invoke_result_t<Body, S>, S>,
      "loop body must hand back the state it received (same type): did an async step stay un-waited?");
  here_ = at;
  S home = Carry<S>::home(*this, std::move(init));
  const auto top = new_label(), end = new_label();
  if (nounroll_) f_.body_pragmas.push_back({"nounroll", std::uint32_t(f_.body.size())});
  nounroll_ = false;
  place(top);
  push_region("while_", Uniform::thread, at);  // the condition may hold different threads for different turns
  const Val<pred> p = cond(Carry<S>::view(home));
  set_region_uniform(p.uniform());
  bra_if(p, false, end);
  S next = body(Carry<S>::view(home));
  S out = Carry<S>::settle(*this, home, std::move(next));
  flush_moves();
  here_ = at;
  bra(top);
  pop_region();
  place(end);
  return out;
}

template <class I, class Body>
void Kernel::grid_stride(Val<I> n, Body&& body, Here at) {
  static_assert(std::is_same_v<I, u32> || std::is_same_v<I, u64>, "grid_stride counts with u32 or u64");
  here_ = at;
  const auto ntid = special(ptx::Sreg::ntid_x, Uniform::grid),
             nctaid = special(ptx::Sreg::nctaid_x, Uniform::grid);
  const auto ctaid = special(ptx::Sreg::ctaid_x, Uniform::cta),
             tid = special(ptx::Sreg::tid_x, Uniform::thread);
  using M = ptx::Mod;
  // Index and stride in 64 bits first: a launch of 2^32 threads or more must not wrap onto taken indices.
  const auto tid64 = op(ptx::Op::cvt, {M::u64, M::u32}, M::u64, {tid});
  const auto first = op(ptx::Op::mad, {M::wide, M::u32}, M::u64, {ctaid, ntid, tid64});
  const auto stride = op(ptx::Op::mul, {M::wide, M::u32}, M::u64, {nctaid, ntid});
  const auto n64 = I::bits == 64    ? Value(n)
                   : n.is_literal() ? Value::literal(n.bits(), M::u64)
                                    : op(ptx::Op::cvt, {M::u64, M::u32}, M::u64, {n});
  const auto end = new_label(), top = new_label();
  bra_if(op(ptx::Op::setp, {M::ge, M::u64}, M::pred, {first, n64}), true, end);
  push_region("grid_stride", Uniform::thread, at);
  const auto narrow = [&](const Value& v) {  // copies: i is advanced in place
    return I::bits == 64 ? copy(v) : op(ptx::Op::cvt, {M::u32, M::u64}, M::u32, {v});
  };
  const auto step =
      I::bits == 64
          ? stride
          : narrow(op(ptx::Op::min, {M::u64}, M::u64, {stride, Value::literal(0xffffffffull, M::u64)}));
  const Val<I> i(narrow(first).with(Uniform::thread));
  place(top);
  body(ThreadIndexOf<I>(i));
  here_ = at;
  const auto left = op(ptx::Op::sub, {I::mod}, I::mod, {n, i});
  const auto more = op(ptx::Op::setp, {M::gt, I::mod}, M::pred, {left, step});
  mov_op(i, ptx::Op::add, {I::mod}, {i, step});
  bra_if(more, true, top);
  pop_region();
  place(end);
}

template <class Body>
void Kernel::each_thread(Val<u32> n, Body&& body, Here at) {
  here_ = at;
  const auto ntid = special(ptx::Sreg::ntid_x, Uniform::grid);
  const auto ctaid = special(ptx::Sreg::ctaid_x, Uniform::cta),
             tid = special(ptx::Sreg::tid_x, Uniform::thread);
  const Val<u32> i(op(ptx::Op::mad, {ptx::Mod::lo, ptx::Mod::u32}, ptx::Mod::u32, {ctaid, ntid, tid}));
  const auto skip = new_label();
  bra_if(op(ptx::Op::setp, {ptx::Mod::ge, ptx::Mod::u32}, ptx::Mod::pred, {i, n}), true, skip);
  push_region("each_thread", Uniform::thread, at);
  body(ThreadIndex(i));
  pop_region();
  place(skip);
}

}  // namespace cgp::dsl
