// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every attention kernel does with a score: where a sequence lies, which keys a query may see, and the
// way from q . k to the exponent. Scores are kept in units of log2, so that a probability is ex2((s -
// max) * exponent_scale), one fma.
#include <cmath>
#include <limits>

#include "cgp/dsl/core/derivative.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/attention/attention_params.h"

namespace cgp::kernels::attention_impl {

using namespace dsl;

inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
inline const float kNever = -std::numeric_limits<float>::infinity();

/// One sequence and head of the batch.
struct Sequence {
  Val<u32> batch, head, head_kv;
  Val<u32> n_q, n_kv;
  Val<u32> first_q, first_kv;  ///< rows before it where packed, else 0
};
inline Sequence sequence(const AttentionFeatures& f, const AttentionParams& p, const Val<u32>& batch,
                         const Val<u32>& head) {
  const Val<u32> zero(0);
  const auto word = [&](const Val<u64>& address, int next) {
    return In<u32>(address, 0, true).at(batch).ld(next);
  };
  const auto head_kv = head / p.group;
  if (f.packed) {
    const auto q0 = word(p.cu_seqlens_q, 0), q1 = word(p.cu_seqlens_q, 1), k0 = word(p.cu_seqlens_kv, 0),
               k1 = word(p.cu_seqlens_kv, 1);
    return {batch, head, head_kv, q1 - q0, k1 - k0, q0, k0};
  }
  if (f.key_lengths) return {batch, head, head_kv, p.n_q, dsl::min(word(p.lengths, 0), p.n_kv), zero, zero};
  return {batch, head, head_kv, p.n_q, p.n_kv, zero, zero};
}

/// Of the group's head number `member`.
inline Sequence of_member(const Sequence& s, const Val<u32>& member) {
  return {s.batch, s.head + member, s.head_kv, s.n_q, s.n_kv, s.first_q, s.first_kv};
}
/// Whether scores depend on more than q . k and bounds.
inline bool shapes(const AttentionFeatures& f) {
  return f.modifies_scores() || f.mask != AttentionMask::none;
}

/// Keys first <= j < end of one query, as far as bounds say.
struct Bounds {
  Val<s32> first, end;
};
inline Bounds bounds(const AttentionFeatures& f, const AttentionParams& p, const Sequence& q,
                     const Val<u32>& row) {
  const auto n_kv = bits<s32>(q.n_kv);
  const auto aligned = bits<s32>(row + q.n_kv - q.n_q);
  const auto first = f.window_left ? dsl::max(aligned - p.window_left, Val<s32>(0)) : Val<s32>(0);
  const auto end = f.window_right ? dsl::min(aligned + p.window_right + 1, n_kv) : n_kv;
  return {first, end};
}

/// Kept scores times this are exponents of 2.
inline Val<f32> exponent_scale(const AttentionFeatures& f, const AttentionParams& p) {
  return f.modifies_scores() ? Val<f32>(1.0f) : p.scale_log2;
}
/// What tanh_of() takes for each unit of tanh's argument.
inline constexpr float kTanhUnit = 2 * kLog2e;
/// tanh to fp32 accuracy (tanh.approx has 11 bits): 1 - 2 / (1 + 2^y).
inline Val<f32> tanh_of(const Val<f32>& y) {
  const auto e = ex2<approx, ftz>(y);
  return fma(rcp<approx, ftz>(e + 1.0f), -2.0f, Val<f32>(1.0f));
}
inline Val<f32> tanh_exact(const Val<f32>& x) { return tanh_of(x * kTanhUnit); }

/// From q . k of (row, key) to the kept score; `slope` is this head's, already loaded.
class Shape {
 public:
  Shape(const AttentionFeatures& f, const AttentionParams& p, const Sequence& q, DType type)
      : f_(f), p_(p), q_(q), type_(type) {
    if (f.alibi) slope_.push_back(In<f32>(p.slopes, 0, true).at(q.head).ld());
    if (f.mask != AttentionMask::none)
      mask_base_.push_back(to<u64>(q.batch) * p.mask_batch + to<u64>(q.head) * p.mask_head);
  }
  /// Kept score. Callers apply bounds() themselves; a boolean mask is applied here.
  Val<f32> operator()(const Val<f32>& raw, const Val<u32>& row, const Val<u32>& key) const {
    if (!f_.modifies_scores()) return masked(raw, row, key);
    return masked(natural(raw, row, key) * kLog2e, row, key);
  }
  /// The score in natural units, before masks of the boolean kind.
  Val<f32> natural(const Val<f32>& raw, const Val<u32>& row, const Val<u32>& key) const {
    const auto added = before_modification(raw, row, key);
    return f_.modify.apply ? f_.modify.apply(score(added, row, key)) : added;
  }
  /// d(natural score)/d(scaled q . k) * upstream.
  Val<f32> gradient(const Val<f32>& raw, const Val<u32>& row, const Val<u32>& key,
                    const Val<f32>& upstream) const {
    const auto added =
        f_.modify.apply ? modified(before_modification(raw, row, key), row, key, upstream) : upstream;
    if (!f_.soft_cap) return added;
    const auto t = tanh_exact(raw * p_.scale * p_.inverse_cap);
    return added * fma(-t, t, Val<f32>(1.0f));
  }
  /// A modification's kept score, from one recording of it, and what gradient() makes of the probability that
  /// `probability` makes of that score. Nothing else shapes the score.
  template <class P>
  std::pair<Val<f32>, Val<f32>> weight(const Val<f32>& raw, const Val<u32>& row, const Val<u32>& key,
                                       P&& probability) const {
    const auto scaled = raw * p_.scale;
    if (f_.modify.gradient) {
      const auto p = probability(f_.modify.apply(score(scaled, row, key)) * kLog2e);
      return {p, modified(scaled, row, key, p)};
    }
    const auto [value, slope] = with_slope_of(scaled, row, key);
    const auto p = probability(value * kLog2e);
    return {p, sloped(p, slope)};
  }
  AttentionScore score(const Val<f32>& s, const Val<u32>& row, const Val<u32>& key) const {
    return {s, q_.batch, q_.head, row, key, p_.data};
  }

 private:
  Val<f32> before_modification(const Val<f32>& raw, const Val<u32>& row, const Val<u32>& key) const {
    const auto scaled = raw * p_.scale;
    const auto capped = f_.soft_cap ? tanh_exact(scaled * p_.inverse_cap) * p_.soft_cap : scaled;
    const auto biased = f_.alibi ? fma(-slope_[0], distance(row, key), capped) : capped;
    return f_.mask == AttentionMask::additive ? biased + mask_value(row, key) : biased;
  }
  /// d(modification)/d(score) * upstream, where the slope is asked for.
  Val<f32> modified(const Val<f32>& before, const Val<u32>& row, const Val<u32>& key,
                    const Val<f32>& upstream) const {
    if (f_.modify.gradient) return f_.modify.gradient(score(before, row, key), upstream);
    return sloped(upstream, with_slope_of(before, row, key).slope);
  }
  ValueAndSlope with_slope_of(const Val<f32>& before, const Val<u32>& row, const Val<u32>& key) const {
    return with_slope(before, [&](const Val<f32>& s) { return f_.modify.apply(score(s, row, key)); });
  }
  // Where nothing is left of a probability, the slope may be anything: rows and keys of a tile lie outside.
  static Val<f32> sloped(const Val<f32>& upstream, const Val<f32>& slope) {
    if (slope.is_literal() && slope.bits() == Val<f32>(1.0f).bits()) return upstream;
    return select(upstream == 0.0f, Val<f32>(0), upstream * slope);
  }
  Val<f32> distance(const Val<u32>& row, const Val<u32>& key) const {
    return to<f32>(dsl::abs(bits<s32>(row + q_.n_kv - q_.n_q - key)));
  }
  Val<u64> mask_index(const Val<u32>& row, const Val<u32>& key) const {
    return mask_base_[0] + to<u64>(row) * p_.mask_row + to<u64>(key) * p_.mask_col;
  }
  // Rows and keys of a tile may lie outside the mask: nothing is read there.
  Val<pred> inside(const Val<u32>& row, const Val<u32>& key) const {
    return (row < q_.n_q) & (key < q_.n_kv);
  }
  Val<f32> mask_value(const Val<u32>& row, const Val<u32>& key) const {
    const auto read = [&]<class T>(T) {
      return to<f32>(In<T>(p_.mask, 0, true).ld_if(inside(row, key), mask_index(row, key), Val<T>(0))[0]);
    };
    return type_ == DType::f32 ? read(f32{}) : type_ == DType::f16 ? read(f16{}) : read(bf16{});
  }
  Val<f32> masked(const Val<f32>& s, const Val<u32>& row, const Val<u32>& key) const {
    if (f_.mask != AttentionMask::boolean) return s;
    const auto word = In<u8>(p_.mask, 0, true).ld_if(inside(row, key), mask_index(row, key), Val<u8>(0))[0];
    return select(to<u32>(word) != 0u, s, Val<f32>(kNever));
  }
  AttentionFeatures f_;
  const AttentionParams& p_;
  const Sequence& q_;
  DType type_;
  std::vector<Val<f32>> slope_;
  std::vector<Val<u64>> mask_base_;
};

/// u32 to u64, for what may be a literal.
inline Val<u64> wide_index(const Val<u32>& v) { return v.is_literal() ? Val<u64>(v.bits()) : to<u64>(v); }

/// lse of a row from its kept maximum and its sum; -infinity where the sum is 0.
inline Val<f32> log_sum(const Val<f32>& max, const Val<f32>& exponent_scale, const Val<f32>& sum) {
  const auto natural = fma(max, exponent_scale, lg2<approx, ftz>(sum)) * kLn2;
  return select(sum == 0.0f, Val<f32>(kNever), natural);
}
inline Val<f32> inverse_or_zero(const Val<f32>& sum) {
  return select(sum == 0.0f, Val<f32>(0), rcp<approx, ftz>(sum));
}
/// Where row `row` of the sequence's lse lies.
inline Out<f32> lse_row(const AttentionParams& p, const Sequence& q) {
  return Out<f32>(p.lse).at(to<u64>(q.batch) * p.lse_batch + to<u64>(q.head) * p.lse_head +
                            wide_index(q.first_q));
}
inline Val<u64> rows_of(const Sequence& q, const Val<u32>& head, const Val<u32>& first, const Val<u64>& batch,
                        const Val<u64>& heads, const Val<u64>& row) {
  return to<u64>(q.batch) * batch + to<u64>(head) * heads + wide_index(first) * row;
}

}  // namespace cgp::kernels::attention_impl
