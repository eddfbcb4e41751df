// SPDX-License-Identifier: Apache-2.0
#pragma once
// Warp collectives. Each takes the Warp as proof that all 32 threads are there; the member mask is therefore
// always full. Results of votes and reductions are uniform over the warp. PTX ISA 9.7.9 (shfl), 9.7.13 (vote,
// match, redux, elect).
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/core/scope.h"

namespace cgp::dsl {

namespace record_impl {
/// shfl.sync of a 32-bit register; `valid` gets the source-in-range predicate when asked for.
Value shuffle32(Warp& w, ptx::Mod mode, const Value& v, const Value& lane, int width, Value* valid, Here at);
Value warp_op(Warp& w, ptx::Op op, ptx::Mods m, ptx::Mod result, const Value& in, std::string_view what,
              Here at);
int check_width(int width, Here at);
void check_offset(ptx::Mod mode, const Value& lane, Here at);
}  // namespace record_impl

/// shfl<bfly>(warp, v, 16), shfl<down>(...), shfl<up>(...), shfl<idx>(warp, v, lane). `width` splits the warp
/// into segments of 1, 2, 4 ... 32 lanes. 16-bit values travel widened, 64-bit ones as two halves. A lane out
/// of range gives the thread's own value.
template <class Mode, IsVal A, class L>
auto shfl(Warp& w, const A& v, const L& lane_or_offset, int width = 32, Here at = Here::now()) {
  static_assert(has_tag<Mode, up, down, bfly, idx>, "shfl<up>, shfl<down>, shfl<bfly> or shfl<idx>");
  using T = typename A::elem;
  static_assert(T::mod != ptx::Mod::pred, "a predicate is shared with vote<...>(warp, p)");
  const Val<T> x(v);
  const Val<u32> lane(lane_or_offset);
  record_impl::check_offset(Mode::mod, lane, at);
  // Reading one lane gives every thread of the segment the same value.
  const bool same = Mode::mod == ptx::Mod::idx && width == 32 && lane.uniform() >= Uniform::warp;
  const auto mark = [&](const Value& r) {
    return Val<T>(same ? r.with(Uniform::warp) : r.with(Uniform::thread));
  };
  if constexpr (T::bits == 32) {
    return mark(
        record_impl::shuffle32(w, Mode::mod, x, lane, width, nullptr, at).as(T::mod).with(Uniform::thread));
  } else if constexpr (T::bits == 64) {
    const auto half = unpack<b32>(x, at);
    const auto lo_half = record_impl::shuffle32(w, Mode::mod, half[0], lane, width, nullptr, at);
    const auto hi_half = record_impl::shuffle32(w, Mode::mod, half[1], lane, width, nullptr, at);
    return mark(pack<T>(Val<b32>(lo_half), Val<b32>(hi_half)));
  } else {
    static_assert(T::bits <= 16, "shfl moves values of up to 64 bits");
    // 8- and 16-bit registers: widened to 32 bits, moved, narrowed.
    constexpr ptx::Mod part = T::bits == 16 ? ptx::Mod::b16 : ptx::Mod::b8;
    std::vector<Value> parts{x};
    while (parts.size() * T::bits < 32) parts.push_back(Value::literal(0, part));
    const Value word = record_impl::mov_pack(w.k, ptx::Mod::b32, parts, at);
    const Value moved = record_impl::shuffle32(w, Mode::mod, word, lane, width, nullptr, at);
    return mark(record_impl::mov_unpack(w.k, moved, part, int(parts.size()), at)[0].as(T::mod));
  }
}

/// A shuffle and whether the source lane was inside the segment.
template <class T>
struct Shuffled {
  Val<T> value;
  Val<pred> in_range;
};
/// shfl_valid<up>(warp, v, 1): 32-bit values.
template <class Mode, IsVal A, class L>
auto shfl_valid(Warp& w, const A& v, const L& lane_or_offset, int width = 32, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(T::bits == 32, "shfl_valid moves 32-bit values");
  const Val<u32> lane(lane_or_offset);
  record_impl::check_offset(Mode::mod, lane, at);
  Value valid = w.k.fresh(ptx::Mod::pred, Uniform::thread);
  const Value d = record_impl::shuffle32(w, Mode::mod, Val<T>(v), lane, width, &valid, at);
  return Shuffled<T>{Val<T>(d), Val<pred>(valid)};
}

/// vote<all>(warp, p), vote<any>, vote<uni>.
template <class Mode>
requires(has_tag<Mode, all, any, uni>) Val<pred> vote(Warp& w, const Val<pred>& p, Here at = Here::now()) {
  return Val<pred>(record_impl::warp_op(w, ptx::Op::vote_sync, {Mode::mod, ptx::Mod::pred}, ptx::Mod::pred, p,
                                        "vote", at));
}
/// vote<ballot>(warp, p): bit i is lane i's predicate.
template <class Mode>
requires(std::is_same_v<Mode, ballot>) Val<u32> vote(Warp& w, const Val<pred>& p, Here at = Here::now()) {
  return Val<u32>(record_impl::warp_op(w, ptx::Op::vote_sync, {ptx::Mod::ballot, ptx::Mod::b32},
                                       ptx::Mod::u32, p, "vote.ballot", at));
}
/// The lanes that hold the same value.
template <IsVal A>
Val<u32> match_any(Warp& w, const A& v, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(T::bits == 32 || T::bits == 64, "match compares 32 or 64 bits");
  return Val<u32>(record_impl::warp_op(w, ptx::Op::match_any_sync, {bits_mod(T::bits)}, ptx::Mod::u32,
                                       Val<T>(v), "match.any", at)
                      .with(Uniform::thread));
}
struct MatchAll {
  Val<u32> mask;  ///< all ones when every lane holds the same value, else 0
  Val<pred> same;
};
namespace record_impl {
MatchAll match_all(Warp& w, const Value& v, int bits, Here at);
}
template <IsVal A>
MatchAll match_all(Warp& w, const A& v, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(T::bits == 32 || T::bits == 64, "match compares 32 or 64 bits");
  return record_impl::match_all(w, Val<T>(v), T::bits, at);
}
/// The lanes that are converged here; needs no proof. Not a substitute for one.
Val<u32> activemask(Kernel& k, Here at = Here::now());

/// redux<op::add>(warp, v): one instruction for 32-bit integers (sm_80); and_, or_, xor_ on bits; f32 min/max
/// on sm_100a.
template <class... Tags, IsVal A>
auto redux(Warp& w, const A& v, Here at = Here::now()) {
  using T = typename A::elem;
  static_assert(sizeof...(Tags) > 0, "redux names its operation: redux<op::add>(warp, v)");
  static_assert(T::bits == 32 && (Integer<T> || Bits<T> || T::mod == ptx::Mod::f32),
                "redux reduces 32-bit values: use reduce(warp, v, f) for others");
  w.k.needs_sm(80, "redux.sync", at);
  constexpr bool logic =
      has_tag<op::and_, Tags...> || has_tag<op::or_, Tags...> || has_tag<op::xor_, Tags...>;
  ptx::Mods m = mods_of<Tags...>();
  m.push_back(logic ? ptx::Mod::b32 : T::mod);
  return Val<T>(record_impl::warp_op(w, ptx::Op::redux_sync, m, T::mod, Val<T>(v), "redux.sync", at));
}

/// Butterfly over `width` lanes: every lane of a segment ends with f over all of them. f(a, b) is associative
/// and commutative; the order of combination is fixed (offsets width/2 ... 1), so results are reproducible.
template <IsVal A, class F>
auto reduce(Warp& w, const A& v, F&& f, int width = 32, Here at = Here::now()) {
  using T = typename A::elem;
  record_impl::check_width(width, at);
  std::vector<Val<T>> steps{Val<T>(v)};
  for (int offset = width / 2; offset > 0; offset /= 2)
    steps.push_back(f(steps.back(), shfl<bfly>(w, steps.back(), offset, 32, at)));
  return Val<T>(steps.back().with(width == 32 ? Uniform::warp : Uniform::thread));
}
/// Lane i ends with f over lanes 0 .. i of its segment.
template <IsVal A, class F>
auto inclusive_scan(Warp& w, const A& v, F&& f, int width = 32, Here at = Here::now()) {
  using T = typename A::elem;
  record_impl::check_width(width, at);
  std::vector<Val<T>> steps{Val<T>(v)};
  const auto lane = w.lane() & std::uint32_t(width - 1);
  for (int offset = 1; offset < width; offset *= 2) {
    const auto below = shfl<up>(w, steps.back(), offset, width, at);
    steps.push_back(select(lane >= std::uint32_t(offset), f(below, steps.back()), steps.back(), at));
  }
  return steps.back();
}

}  // namespace cgp::dsl
