// SPDX-License-Identifier: Apache-2.0
#pragma once
// State that crosses the back edge of a loop or leaves the arms of an if_. A body is recorded once and runs
// many times, so what it carries must sit in the same registers at the bottom as at the top. Every carried
// type says how; the primary template is undefined on purpose: a typestate that is passed through by default
// is silently wrong.
//   home    move the initial state into registers the statement owns
//   view    what the body is given
//   settle  take the body's result back to the home registers (moves are parallel, done at flush_moves())
#include <array>
#include <tuple>
#include <vector>

#include "cgp/dsl/core/val.h"

namespace cgp::dsl {

template <class S>
struct Carry;

template <class S>
concept Carryable = requires {
  sizeof(Carry<S>);
};

template <class T>
struct Carry<Val<T>> {
  static Val<T> home(Kernel& k, Val<T> s) { return Val<T>(k.carry_home(s)); }
  static Val<T> settle(Kernel& k, const Val<T>& home, Val<T> next) {
    return Val<T>(k.carry_settle(home, next));
  }
  static Val<T> view(const Val<T>& home) { return home; }
};
template <class... S>
struct Carry<std::tuple<S...>> {
  using Tuple = std::tuple<S...>;
  using Indices = std::index_sequence_for<S...>;
  static Tuple home(Kernel& k, Tuple s) { return home(k, s, Indices{}); }
  static Tuple settle(Kernel& k, Tuple& home, Tuple next) { return settle(k, home, next, Indices{}); }
  static Tuple view(Tuple& home) { return view(home, Indices{}); }

 private:
  template <std::size_t... I>
  static Tuple home(Kernel& k, Tuple& s, std::index_sequence<I...>) {
    return Tuple{Carry<S>::home(k, std::move(std::get<I>(s)))...};
  }
  template <std::size_t... I>
  static Tuple settle(Kernel& k, Tuple& home, Tuple& next, std::index_sequence<I...>) {
    return Tuple{Carry<S>::settle(k, std::get<I>(home), std::move(std::get<I>(next)))...};
  }
  template <std::size_t... I>
  static Tuple view(Tuple& home, std::index_sequence<I...>) {
    return Tuple{Carry<S>::view(std::get<I>(home))...};
  }
};
template <>
struct Carry<std::tuple<>> {
  static std::tuple<> home(Kernel&, std::tuple<>) { return {}; }
  static std::tuple<> settle(Kernel&, std::tuple<>&, std::tuple<>) { return {}; }
  static std::tuple<> view(std::tuple<>&) { return {}; }
};
template <class A, class B>
struct Carry<std::pair<A, B>> {
  using Pair = std::pair<A, B>;
  static Pair home(Kernel& k, Pair s) {
    return Pair{Carry<A>::home(k, std::move(s.first)), Carry<B>::home(k, std::move(s.second))};
  }
  static Pair settle(Kernel& k, Pair& home, Pair next) {
    return Pair{Carry<A>::settle(k, home.first, std::move(next.first)),
                Carry<B>::settle(k, home.second, std::move(next.second))};
  }
  static Pair view(Pair& home) { return Pair{Carry<A>::view(home.first), Carry<B>::view(home.second)}; }
};
/// A build-time number of carried values (accumulators whose count is a tuning choice).
template <class S>
struct Carry<std::vector<S>> {
  using Vector = std::vector<S>;
  static Vector home(Kernel& k, Vector s) {
    Vector r;
    r.reserve(s.size());
    for (auto& v : s) r.push_back(Carry<S>::home(k, std::move(v)));
    return r;
  }
  static Vector settle(Kernel& k, Vector& home, Vector next) {
    if (home.size() != next.size())
      throw BuildError("the body must hand back as many carried values as it received", k.here(),
                       text::cat(home.size(), " received, ", next.size(), " handed back"));
    Vector r;
    r.reserve(home.size());
    for (std::size_t i = 0; i < home.size(); ++i)
      r.push_back(Carry<S>::settle(k, home[i], std::move(next[i])));
    return r;
  }
  static Vector view(Vector& home) {
    Vector r;
    r.reserve(home.size());
    for (auto& v : home) r.push_back(Carry<S>::view(v));
    return r;
  }
};
template <class S, std::size_t N>
struct Carry<std::array<S, N>> {
  using Array = std::array<S, N>;
  static Array home(Kernel& k, Array s) {
    return each([&](std::size_t i) { return Carry<S>::home(k, std::move(s[i])); },
                std::make_index_sequence<N>{});
  }
  static Array settle(Kernel& k, Array& home, Array next) {
    return each([&](std::size_t i) { return Carry<S>::settle(k, home[i], std::move(next[i])); },
                std::make_index_sequence<N>{});
  }
  static Array view(Array& home) {
    return each([&](std::size_t i) { return Carry<S>::view(home[i]); }, std::make_index_sequence<N>{});
  }

 private:
  template <class F, std::size_t... I>
  static Array each(F&& f, std::index_sequence<I...>) {
    return Array{f(I)...};
  }
};

/// A struct of carried values lists its members once:
///   struct Best { Val<f32> value; Val<u32> index;
///                 static auto carried() { return std::tuple(&Best::value, &Best::index); } };   (in this
///                 order)
template <class S>
concept CarriedStruct = requires {
  S::carried();
}
&&std::is_class_v<S>;
template <CarriedStruct S>
struct Carry<S> {
  static S home(Kernel& k, S s) {
    return std::apply([&](auto... m) { return S{Carry<Member<decltype(m)>>::home(k, std::move(s.*m))...}; },
                      S::carried());
  }
  static S settle(Kernel& k, S& home, S next) {
    return std::apply(
        [&](auto... m) { return S{Carry<Member<decltype(m)>>::settle(k, home.*m, std::move(next.*m))...}; },
        S::carried());
  }
  static S view(S& home) {
    return std::apply([&](auto... m) { return S{Carry<Member<decltype(m)>>::view(home.*m)...}; },
                      S::carried());
  }

 private:
  template <class M>
  struct MemberOf;
  template <class C, class T>
  struct MemberOf<T C::*> {
    using type = T;
  };
  template <class M>
  using Member = typename MemberOf<M>::type;
};

}  // namespace cgp::dsl
