// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the softmax kernels share: exponentials, partial (maximum, sum) pairs and how they combine.
#include <limits>

#include "cgp/dsl/arith.h"
#include "cgp/dsl/warp.h"
#include "cgp/kernels/softmax/softmax.h"
#include "cgp/kernels/words.h"

namespace cgp::kernels::softmax_parts {

using dsl::approx, dsl::b32, dsl::bf16, dsl::bf16x2, dsl::bits, dsl::ex2, dsl::f16, dsl::f16x2, dsl::f32,
    dsl::ftz, dsl::Ptr, dsl::shared, dsl::u32, dsl::Val, dsl::Warp;

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline Val<f32> max_of(const std::vector<Val<f32>>& v) {
  std::vector<Val<f32>> level = v;
  while (level.size() > 1) {
    std::vector<Val<f32>> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(dsl::max(level[i], level[i + 1]));
    if (level.size() % 2) next.push_back(level.back());
    level.swap(next);
  }
  return level[0];
}
inline Val<f32> add(Val<f32> a, Val<f32> b) { return a + b; }
inline Val<f32> larger(Val<f32> a, Val<f32> b) { return dsl::max(a, b); }
// The difference first: v * log2(e) would overflow for values that softmax has no trouble with.
inline Val<f32> exp_minus(const Val<f32>& v, const Val<f32>& m) { return ex2<approx, ftz>((v - m) * kLog2e); }
// The reference point of a partial sum: 0 for a part that is all -inf, so that its sum is 0 and not NaN.
inline Val<f32> reference(const Val<f32>& m) { return select(m == -kInf, Val<f32>(0.f), m); }

struct Stat {  // of a row or a part of it: the sum is relative to `max`
  Val<f32> max, sum;
  static auto carried() { return std::tuple(&Stat::max, &Stat::sum); }
};

// One Stat from many held by the lanes of a warp.
inline Stat combine_lanes(Warp& w, const Stat& s, int width) {
  const auto m = reduce(w, s.max, larger, width);
  const auto scaled = s.sum * exp_minus(s.max, reference(m));
  return {m, reduce(w, scaled, add, width)};
}

// The largest element of a thread's words. Halves are compared two at a time where the architecture can.
template <class T, bool Vector>
Val<f32> largest(const std::vector<Val<typename Words<T, Vector>::Word>>& words) {
  using W = Words<T, Vector>;
  using Pair = std::conditional_t<std::is_same_v<T, bf16>, bf16x2, f16x2>;
  std::vector<Val<f32>> candidates;
  if constexpr (Vector && T::bits == 16) {
    if (words[0].kernel()->sm() >= 80) {
      std::vector<Val<Pair>> level;
      for (const auto& w : words) level.push_back(bits<Pair>(w));
      while (level.size() > 1) {
        std::vector<Val<Pair>> next;
        for (std::size_t i = 0; i + 1 < level.size(); i += 2)
          next.push_back(dsl::max(level[i], level[i + 1]));
        if (level.size() % 2) next.push_back(level.back());
        level.swap(next);
      }
      return max_of(W::floats(bits<b32>(level[0])));
    }
  }
  for (const auto& w : words)
    for (const auto& f : W::floats(w)) candidates.push_back(f);
  return max_of(candidates);
}

// The sum of exp(v - base) over a thread's words, in four chains: one would wait four cycles an addition.
// With `keep` the terms are appended to it, lowest address first.
template <class T, bool Vector>
Val<f32> sum_of_exp(const std::vector<Val<typename Words<T, Vector>::Word>>& words, const Val<f32>& base,
                    std::vector<Val<f32>>* keep = nullptr) {
  std::vector<std::vector<Val<f32>>> chain(4);
  std::size_t turn = 0;
  for (const auto& w : words)
    for (const auto& f : Words<T, Vector>::floats(w)) {
      auto& c = chain[turn++ % 4];
      const auto e = exp_minus(f, base);
      if (keep) keep->push_back(e);
      c.push_back(c.empty() ? e : c.back() + e);
    }
  std::vector<Val<f32>> sums{chain[0].back()};
  for (std::size_t i = 1; i < 4; ++i)
    if (!chain[i].empty()) sums.push_back(sums.back() + chain[i].back());
  return sums.back();
}

// The Stat of a row from the pairs (maximum, sum) of its `count` warps at `slots`.
inline Stat combine_slots(Warp& w, const Ptr<shared, f32>& slots, int count) {
  const auto lane = w.lane();
  std::vector<Val<f32>> maxima, sums;
  for (int i = 0; i < count; i += 32) {
    const auto at = lane + std::uint32_t(i);
    const auto have = at < std::uint32_t(count);
    maxima.push_back(slots.ld_if(have, at * 2, Val<f32>(-kInf))[0]);
    sums.push_back(slots.ld_if(have, at * 2 + 1, Val<f32>(0.f))[0]);
  }
  const auto m = max_of(maxima), base = reference(m);
  std::vector<Val<f32>> total{sums[0] * exp_minus(maxima[0], base)};
  for (std::size_t i = 1; i < sums.size(); ++i)
    total.push_back(fma(sums[i], exp_minus(maxima[i], base), total.back()));
  return combine_lanes(w, {m, total.back()}, 32);
}
template <class P>
void put(const P& slots, const Val<u32>& slot, const Stat& s) {
  slots.st(slot * 2, s.max);
  slots.st(slot * 2 + 1, s.sum);
}

}  // namespace cgp::kernels::softmax_parts
