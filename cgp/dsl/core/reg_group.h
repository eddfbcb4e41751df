// SPDX-License-Identifier: Apache-2.0
#pragma once
// RegGroup<T, N>: N values in registers, indexed only by C++ integers, so the group never lands in local
// memory. Vec<T, N> is the same type, named as what ld<N>/st<N> move.
#include "cgp/dsl/core/carry.h"

namespace cgp::dsl {

template <class T, int N>
class RegGroup {
  static_assert(N >= 1 && N <= 512, "a register group has 1 to 512 values");

 public:
  using elem_type = T;
  static constexpr int size = N;

  template <class... V>
  requires(sizeof...(V) == N && (std::is_convertible_v<V, Val<T>> && ...)) explicit(N == 1)
      RegGroup(const V&... v)
      : v_{Val<T>(v)...} {}
  explicit RegGroup(std::array<Val<T>, N> v) : v_(std::move(v)) {}
  static RegGroup from(const std::vector<Value>& v) {
    return generate([&](int i) { return Val<T>(v[std::size_t(i)]); });
  }
  /// f(i) for i = 0 .. N-1, in order.
  template <class F>
  static RegGroup generate(F&& f) {
    return generate(f, std::make_index_sequence<N>{});
  }
  static RegGroup splat(const Val<T>& v) {
    return generate([&](int) { return v; });
  }

  template <int I>
  const Val<T>& get() const {
    static_assert(I >= 0 && I < N, "register group index out of range");
    return v_[I];
  }
  const Val<T>& operator[](int i) const {
    if (i < 0 || i >= N)
      throw BuildError("register group index out of range", Here{"RegGroup", 0}, text::cat(i, " of ", N));
    return v_[std::size_t(i)];
  }
  template <IsVal I>
  const Val<T>& operator[](const I&) const {
    static_assert(!IsVal<I>,
                  "registers cannot be indexed at run time: use a C++ integer, or k.local_array / k.shared");
    return v_[0];
  }
  /// A copy with element i replaced.
  RegGroup with(int i, const Val<T>& v) const {
    return generate([&](int j) { return j == i ? v : (*this)[j]; });
  }
  template <class F>
  auto map(F&& f) const {  ///< f(value)
    using R = typename std::invoke_result_t<F, Val<T>>::elem;
    return RegGroup<R, N>::generate([&](int i) { return f(v_[std::size_t(i)]); });
  }
  template <class U, class F>
  auto zip(const RegGroup<U, N>& o, F&& f) const {  ///< f(mine, other)
    using R = typename std::invoke_result_t<F, Val<T>, Val<U>>::elem;
    return RegGroup<R, N>::generate([&](int i) { return f(v_[std::size_t(i)], o[i]); });
  }
  /// Pairwise tree: f(f(v0, v1), f(v2, v3)), whose depth is log2 N.
  template <class F>
  Val<T> fold(F&& f) const {
    std::vector<Val<T>> level(v_.begin(), v_.end());
    while (level.size() > 1) {
      std::vector<Val<T>> next;
      for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(f(level[i], level[i + 1]));
      if (level.size() % 2) next.push_back(level.back());
      level.swap(next);
    }
    return level[0];
  }
  /// Elements From .. From+M-1.
  template <int From, int M>
  RegGroup<T, M> slice() const {
    static_assert(From >= 0 && From + M <= N, "slice out of range");
    return RegGroup<T, M>::generate([&](int i) { return v_[std::size_t(From + i)]; });
  }
  auto begin() const { return v_.begin(); }
  auto end() const { return v_.end(); }
  std::vector<Value> values() const { return {v_.begin(), v_.end()}; }

  friend RegGroup operator+(const RegGroup& a, const RegGroup& b) requires Arithmetic<T> {
    return generate([&](int i) { return a[i] + b[i]; });
  }
  friend RegGroup operator-(const RegGroup& a, const RegGroup& b) requires Arithmetic<T> {
    return generate([&](int i) { return a[i] - b[i]; });
  }
  friend RegGroup operator*(const RegGroup& a, const RegGroup& b) requires Arithmetic<T> {
    return generate([&](int i) { return a[i] * b[i]; });
  }
  friend RegGroup operator*(const RegGroup& a, const Val<T>& b) requires Arithmetic<T> {
    return generate([&](int i) { return a[i] * b; });
  }
  friend RegGroup operator+(const RegGroup& a, const Val<T>& b) requires Arithmetic<T> {
    return generate([&](int i) { return a[i] + b; });
  }

 private:
  template <class F, std::size_t... I>
  static RegGroup generate(F& f, std::index_sequence<I...>) {
    return RegGroup(std::array<Val<T>, N>{Val<T>(f(int(I)))...});
  }
  std::array<Val<T>, N> v_;
};
template <class T, int N>
using Vec = RegGroup<T, N>;

template <class T, int N>
struct Carry<RegGroup<T, N>> {
  using S = RegGroup<T, N>;
  static S home(Kernel& k, S s) {
    return S::generate([&](int i) { return Carry<Val<T>>::home(k, s[i]); });
  }
  static S settle(Kernel& k, const S& home, S next) {
    return S::generate([&](int i) { return Carry<Val<T>>::settle(k, home[i], next[i]); });
  }
  static S view(const S& home) { return home; }
};

}  // namespace cgp::dsl
