// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations, written once over a vector type V: Reg, kLanes; load, store, load_some and store_some (the first `count`
// lanes; others are `fill`), all, add, subtract, multiply, divide, multiply_add, negative_multiply_add (c - a b), max, min,
// where_less (a < b ? c : d), round (to an integer), power_of_two (2^n), square_root, sum, store_sums (of four), largest, first (lane 0), load_f16,
// load_bf16, store_f16, store_bf16, swap_pairs.
#include "cgp/cpu/ops/ops_impl.h"

namespace cgp::cpu {
namespace {

using ops_versions::Group;
using std::int64_t;

constexpr float kInfinity = __builtin_inff();

/// f(i, load) for every vector: load(p, fill) reads at i what there is of p; store(p, v) likewise.
template <class V, class F>
inline void for_vectors(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes)
    f([i](const float* p, float = 0) { return V::load(p + i); },
      [i](float* p, typename V::Reg v) { V::store(p + i, v); });
  if (i < n)
    f([i, n](const float* p, float fill = 0) { return V::load_some(p + i, n - i, fill); },
      [i, n](float* p, typename V::Reg v) { V::store_some(p + i, n - i, v); });
}

/// e^x: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (the coefficients of Cephes' expf). 0 below -87.3, about 2.4e38 from
/// 88.3 on; NaN for NaN.
template <class V>
inline typename V::Reg exp_of(typename V::Reg x) {
  const auto c = [](float v) { return V::all(v); };
  const auto limited = V::min(c(88.3f), x);  // NaN if x is
  const auto n = V::round(V::multiply(limited, c(1.44269504088896341f)));
  auto r = V::negative_multiply_add(n, c(0.693359375f), limited);
  r = V::negative_multiply_add(n, c(-2.12194440e-4f), r);
  auto p = c(1.9875691500e-4f);
  for (float k : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = V::multiply_add(p, r, c(k));
  p = V::add(V::multiply_add(p, V::multiply(r, r), r), c(1));
  return V::where_less(x, c(-87.3f), c(0), V::multiply(p, V::power_of_two(n)));
}

template <class V>
void rms_norm_of(const float* x, const float* weight, float epsilon, int64_t n, float* y) {
  auto sum = V::all(0), sum2 = V::all(0);
  for_vectors<V>(n, [&](auto load, auto) {
    const auto v = load(x);
    sum2 = V::multiply_add(v, v, sum2);
    const auto keep = sum;
    sum = sum2, sum2 = keep;  // two sums in turns: the next add need not wait
  });
  const float mean = V::sum(V::add(sum, sum2)) / float(n);
  const auto factor = V::divide(V::all(1), V::square_root(V::all(mean + epsilon)));
  for_vectors<V>(
      n, [&](auto load, auto store) { store(y, V::multiply(V::multiply(load(x), factor), load(weight))); });
}

template <class V>
void layer_norm_of(const float* x, const float* weight, const float* bias, float epsilon, int64_t n,
                   float* y) {
  auto sum = V::all(0), squares = V::all(0);
  for_vectors<V>(n, [&](auto load, auto) { sum = V::add(sum, load(x)); });
  const float mean = V::sum(sum) / float(n);
  const auto all = V::all(mean);
  for_vectors<V>(n, [&](auto load, auto) {
    const auto off = V::subtract(load(x, mean), all);
    squares = V::multiply_add(off, off, squares);
  });
  const auto factor = V::divide(V::all(1), V::square_root(V::all(V::sum(squares) / float(n) + epsilon)));
  for_vectors<V>(n, [&](auto load, auto store) {
    const auto v = V::multiply(V::subtract(load(x), all), factor);
    store(y, V::multiply_add(v, load(weight), bias ? load(bias) : V::all(0)));
  });
}

template <class V>
void softmax_of(const float* x, float scale, int64_t n, float* y) {
  const auto by = V::all(scale);
  auto most = V::all(-kInfinity), sum = V::all(0);
  // max() gives its second operand when one is NaN, which the difference below shows again
  for_vectors<V>(n, [&](auto load, auto store) {
    const auto v = V::multiply(load(x), by);
    store(y, v);
  });
  for_vectors<V>(n, [&](auto load, auto) { most = V::max(load(y, -kInfinity), most); });
  const auto all = V::all(V::largest(most));
  for_vectors<V>(n, [&](auto load, auto store) { store(y, exp_of<V>(V::subtract(load(y), all))); });
  for_vectors<V>(n, [&](auto load, auto) { sum = V::add(sum, load(y)); });
  const auto factor = V::divide(V::all(1), V::all(V::sum(sum)));
  for_vectors<V>(n, [&](auto load, auto store) { store(y, V::multiply(load(y), factor)); });
}

/// x / (1 + exp(-u))
template <class V>
inline typename V::Reg times_sigmoid(typename V::Reg x, typename V::Reg u) {
  return V::divide(x, V::add(V::all(1), exp_of<V>(V::subtract(V::all(0), u))));
}
struct Silu {
  template <class V>
  static typename V::Reg of(typename V::Reg x) {
    return times_sigmoid<V>(x, x);
  }
};
struct GeluTanh {  // (1 + tanh u) / 2 is the sigmoid of 2u
  template <class V>
  static typename V::Reg of(typename V::Reg x) {
    const auto cubic =
        V::multiply_add(V::multiply(x, x), V::all(0.044715f * 1.5957691216f), V::all(1.5957691216f));
    return times_sigmoid<V>(x, V::multiply(x, cubic));
  }
};
struct Gelu {
  // erfc(z) for z >= 0: Abramowitz, Stegun: Handbook of Mathematical Functions, 7.1.26; off by at most 1.5e-7
  template <class V>
  static typename V::Reg of(typename V::Reg x) {
    const auto c = [](float v) { return V::all(v); };
    const auto minus = V::subtract(c(0), x), z = V::multiply(V::max(x, minus), c(0.70710678118654752f));
    const auto t = V::divide(c(1), V::multiply_add(z, c(0.3275911f), c(1)));
    auto p = c(1.061405429f);
    for (float k : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
      p = V::multiply_add(p, t, c(k));
    const auto half_erfc = V::multiply(
        V::multiply(V::multiply(p, t), exp_of<V>(V::multiply(minus, V::multiply(x, c(0.5f))))), c(0.5f));
    return V::multiply(x, V::where_less(x, c(0), half_erfc, V::subtract(c(1), half_erfc)));
  }
};
template <class V, class F>
void activate_of(const float* x, const float* up, int64_t n, float* y) {
  for_vectors<V>(n, [&](auto load, auto store) {
    const auto v = F::template of<V>(load(x));
    store(y, up ? V::multiply(v, load(up)) : v);
  });
}

template <class V>
void rope_halves_of(float* head, const float* cosines, const float* sines, int64_t half) {
  for_vectors<V>(half, [&](auto load, auto store) {
    const auto a = load(head), b = load(head + half), c = load(cosines), s = load(sines);
    store(head, V::negative_multiply_add(b, s, V::multiply(a, c)));
    store(head + half, V::multiply_add(a, s, V::multiply(b, c)));
  });
}
/// cosines[2i] = cosines[2i + 1]; sines[2i] = -sines[2i + 1].
template <class V>
void rope_neighbours_of(float* head, const float* cosines, const float* sines, int64_t half) {
  if constexpr (V::kLanes == 1) {
    for (int64_t i = 0; i < 2 * half; i += 2) {
      const float a = head[i], b = head[i + 1];
      head[i] = a * cosines[i] + b * sines[i], head[i + 1] = b * cosines[i + 1] + a * sines[i + 1];
    }
  } else {
    for_vectors<V>(2 * half, [&](auto load, auto store) {
      const auto v = load(head);
      store(head, V::multiply_add(V::swap_pairs(v), load(sines), V::multiply(v, load(cosines))));
    });
  }
}

template <class V>
void to_f16_of(const float* x, int64_t n, std::uint16_t* y) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store_f16(y + i, V::load(x + i));
  if (i == n) return;
  std::uint16_t last[V::kLanes];
  V::store_f16(last, V::load_some(x + i, n - i, 0));
  for (int64_t j = 0; i + j < n; ++j) y[i + j] = last[j];
}
template <class V>
void to_bf16_of(const float* x, int64_t n, std::uint16_t* y) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store_bf16(y + i, V::load(x + i));
  if (i == n) return;
  std::uint16_t last[V::kLanes];
  V::store_bf16(last, V::load_some(x + i, n - i, 0));
  for (int64_t j = 0; i + j < n; ++j) y[i + j] = last[j];
}

struct F32Cache {
  using Element = float;
  template <class V>
  static typename V::Reg load(const float* p) {
    return V::load(p);
  }
};
struct F16Cache {
  using Element = std::uint16_t;
  template <class V>
  static typename V::Reg load(const std::uint16_t* p) {
    return V::load_f16(p);
  }
};
struct Bf16Cache {
  using Element = std::uint16_t;
  template <class V>
  static typename V::Reg load(const std::uint16_t* p) {
    return V::load_bf16(p);
  }
};
/// `tokens` rows of n as f32, each with zeros up to `row`.
template <class V, class C>
inline void widen(const typename C::Element* from, int64_t stride, int64_t tokens, int64_t n, int64_t row,
                  float* to) {
  for (int64_t t = 0; t < tokens; ++t, from += stride, to += row) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::store(to + i, C::template load<V>(from + i));
    if (i < n) {
      typename C::Element last[V::kLanes] = {};
      for (int64_t j = 0; i + j < n; ++j) last[j] = from[i + j];
      V::store(to + i, C::template load<V>(last));
      i += V::kLanes;
    }
    for (; i < row; i += V::kLanes) V::store(to + i, V::all(0));
  }
}

/// w[t] = q . row t, for a multiple of 4 of them.
template <class V>
inline void scores(const float* q, const float* rows, int64_t tokens, int64_t row, float* w) {
  for (int64_t t = 0; t < tokens; t += 4, rows += 4 * row) {
    typename V::Reg sums[4] = {V::all(0), V::all(0), V::all(0), V::all(0)};
    for (int64_t i = 0; i < row; i += V::kLanes) {
      const auto v = V::load(q + i);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[k] = V::multiply_add(v, V::load(rows + k * row + i), sums[k]);
    }
    V::store_sums(w + t, sums);
  }
}
/// kRegisters vectors of out = factor * out + sum over t of w[t] * row t.
template <class V, int kRegisters>
inline void mix(const float* w, const float* rows, int64_t tokens, int64_t row, float factor, float* out) {
  typename V::Reg sums[kRegisters];
#pragma GCC unroll 4
  for (int k = 0; k < kRegisters; ++k) sums[k] = V::multiply(V::load(out + k * V::kLanes), V::all(factor));
  for (int64_t t = 0; t < tokens; ++t, rows += row) {
    const auto by = V::all(w[t]);
#pragma GCC unroll 4
    for (int k = 0; k < kRegisters; ++k)
      sums[k] = V::multiply_add(by, V::load(rows + k * V::kLanes), sums[k]);
  }
#pragma GCC unroll 4
  for (int k = 0; k < kRegisters; ++k) V::store(out + k * V::kLanes, sums[k]);
}

/// w = cap * tanh(w / cap), tanh u = 1 - 2 / (e^2u + 1).
template <class V>
inline void soften(float* w, int64_t n, float cap) {
  for (int64_t t = 0; t < n; t += V::kLanes) {
    const auto e = exp_of<V>(V::multiply(V::load(w + t), V::all(2 / cap)));
    V::store(w + t,
             V::negative_multiply_add(V::divide(V::all(2), V::add(e, V::all(1))), V::all(cap), V::all(cap)));
  }
}

template <class V, class C>
void attend_of(const Group& g, const void* keys, const void* values, int64_t stride, int64_t tokens,
               float* scratch) {
  using Element = typename C::Element;
  const int64_t n = g.head_dim, row = g.row(), fours = (tokens + 3) / 4 * 4;
  const int64_t padded = (tokens + V::kLanes - 1) / V::kLanes * V::kLanes;
  constexpr int64_t kHeads = 16;  // whose weights of these tokens are kept while the values are widened once
  float weights[kHeads][ops_versions::kAttendTokens], factors[kHeads];
  for (int64_t first = 0; first < g.heads; first += kHeads) {
    const int64_t heads = g.heads - first < kHeads ? g.heads - first : kHeads;
    widen<V, C>(static_cast<const Element*>(keys), stride, tokens, n, row, scratch);
    for (int64_t i = tokens * row; i < fours * row; i += V::kLanes) V::store(scratch + i, V::all(0));
    for (int64_t h = 0; h < heads; ++h) {
      float *w = weights[h], &max = g.max[first + h];
      scores<V>(g.q + (first + h) * row, scratch, fours, row, w);
      for (int64_t t = 0; t < tokens; ++t) w[t] *= g.scale;
      if (g.softcap > 0) soften<V>(w, padded, g.softcap);
      for (int64_t t = tokens; t < padded; ++t) w[t] = -kInfinity;
      auto most = V::all(max);
      for (int64_t t = 0; t < padded; t += V::kLanes) most = V::max(V::load(w + t), most);
      const float largest = V::largest(most);
      factors[h] = V::first(exp_of<V>(V::all(max - largest)));
      auto sum = V::all(0);
      for (int64_t t = 0; t < padded; t += V::kLanes) {
        const auto p = exp_of<V>(V::subtract(V::load(w + t), V::all(largest)));
        V::store(w + t, p);
        sum = V::add(sum, p);
      }
      g.sum[first + h] = g.sum[first + h] * factors[h] + V::sum(sum);
      max = largest;
    }
    widen<V, C>(static_cast<const Element*>(values), stride, tokens, n, row, scratch);
    for (int64_t h = 0; h < heads; ++h) {
      float* out = g.out + (first + h) * row;
      int64_t i = 0;
      for (; i + 4 * V::kLanes <= row; i += 4 * V::kLanes)
        mix<V, 4>(weights[h], scratch + i, tokens, row, factors[h], out + i);
      for (; i < row; i += V::kLanes) mix<V, 1>(weights[h], scratch + i, tokens, row, factors[h], out + i);
    }
  }
}

template <class V>
constexpr ops_versions::Ops ops_of() {
  return {rms_norm_of<V>,
          layer_norm_of<V>,
          softmax_of<V>,
          {activate_of<V, Silu>, activate_of<V, Gelu>, activate_of<V, GeluTanh>},
          {rope_halves_of<V>, rope_neighbours_of<V>},
          to_f16_of<V>,
          to_bf16_of<V>,
          {attend_of<V, F32Cache>, attend_of<V, F16Cache>, attend_of<V, Bf16Cache>}};
}

}  // namespace
}  // namespace cgp::cpu
