// SPDX-License-Identifier: Apache-2.0
// Element-wise handlers over the 32 lanes of a row. Included inside isa_begin.h / isa_end.h, so that each
// copy belongs to one instruction set. Functions compute all lanes and blend, which the compiler turns into
// vector code; they must therefore be total (no trap for any input).
template <class T>
struct CellOf {
  using Type = std::uint32_t;
};
template <>
struct CellOf<std::uint64_t> {
  using Type = std::uint64_t;
};
template <>
struct CellOf<std::int64_t> {
  using Type = std::uint64_t;
};
template <>
struct CellOf<double> {
  using Type = std::uint64_t;
};
template <class T>
using Cell = typename CellOf<T>::Type;

template <class T>
static inline T from_cell(Cell<T> c) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<T>(c);
  else
    return T(c);
}
template <class T>
static inline Cell<T> to_cell(T v) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<Cell<T>>(v);
  else if constexpr (sizeof(T) < 4)
    return std::uint32_t(std::int32_t(v));
  else
    return Cell<T>(v);
}

template <class C>
static inline void put(C* __restrict to, const C* __restrict from, Mask m) {
  if (m == ~Mask(0)) {
    for (int l = 0; l < kLanes; ++l) to[l] = from[l];
  } else {
    for (int l = 0; l < kLanes; ++l) to[l] = (m >> l & 1) ? from[l] : to[l];
  }
}

// One struct per operation: static D apply(A...). The handler for it:
template <class F, class D, class A>
static void unary(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<A>>(op.a);
  alignas(64) Cell<D> t[kLanes];
  for (int l = 0; l < kLanes; ++l) t[l] = to_cell<D>(F::apply(from_cell<A>(a[l])));
  put(w.row<Cell<D>>(op.d), t, w.active);
}
template <class F, class D, class A, class B>
static void binary(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<A>>(op.a);
  const auto* b = w.row<Cell<B>>(op.b);
  alignas(64) Cell<D> t[kLanes];
  for (int l = 0; l < kLanes; ++l) t[l] = to_cell<D>(F::apply(from_cell<A>(a[l]), from_cell<B>(b[l])));
  put(w.row<Cell<D>>(op.d), t, w.active);
}
template <class F, class D, class A, class B, class C>
static void ternary(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<A>>(op.a);
  const auto* b = w.row<Cell<B>>(op.b);
  const auto* c = w.row<Cell<C>>(op.c);
  alignas(64) Cell<D> t[kLanes];
  for (int l = 0; l < kLanes; ++l)
    t[l] = to_cell<D>(F::apply(from_cell<A>(a[l]), from_cell<B>(b[l]), from_cell<C>(c[l])));
  put(w.row<Cell<D>>(op.d), t, w.active);
}
// Lane masks of a comparison.
template <class F, class A>
static inline Mask compare_mask(const Cell<A>* a, const Cell<A>* b) {
  alignas(64) std::uint32_t t[kLanes];
  for (int l = 0; l < kLanes; ++l) t[l] = F::apply(from_cell<A>(a[l]), from_cell<A>(b[l])) ? 1u << l : 0u;
  Mask m = 0;
  for (int l = 0; l < kLanes; ++l) m |= t[l];
  return m;
}
