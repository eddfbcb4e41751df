// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/text.h"
#include "cgp/kernels/common/comparisons.h"

namespace cgp::kernels {
namespace {

struct Scores {
  std::uint64_t first_q = 0, first_kv = 0, n_q = 0, n_kv = 0;
  std::vector<double> score;  // -inf where not allowed
  double size = 0;
};

// The scale of one sequence and head of an e4m3 operand.
double scale_of(const HostArray& scales, const AttentionScaleStrides& s, std::uint64_t b, std::uint64_t h) {
  return scales.bytes.empty() ? 1 : scales.at(b * s.batch + h * s.head);
}

Scores scores(const AttentionProblem& p, const AttentionInputs& in, std::uint64_t b, std::uint64_t h,
              std::uint64_t i) {
  Scores s;
  s.n_q = p.n_q, s.n_kv = p.n_kv;
  if (p.packed) {
    s.first_q = in.cu_seqlens_q[b], s.n_q = in.cu_seqlens_q[b + 1] - in.cu_seqlens_q[b];
    s.first_kv = in.cu_seqlens_kv[b], s.n_kv = in.cu_seqlens_kv[b + 1] - in.cu_seqlens_kv[b];
  }
  if (p.key_lengths) s.n_kv = std::min<std::uint64_t>(in.lengths[b], p.n_kv);
  if (i >= s.n_q) return s;
  const std::uint64_t batch = p.packed ? 0 : b, hk = h / (p.heads_q / p.heads_kv);
  const std::uint64_t q0 = batch * p.q.batch + h * p.q.head + (s.first_q + i) * p.q.row;
  const double scale =
      double(p.scale) * scale_of(in.q_scale, p.q_scale, b, h) * scale_of(in.k_scale, p.k_scale, b, hk);
  const std::int64_t aligned = std::int64_t(i) + std::int64_t(s.n_kv) - std::int64_t(s.n_q);
  s.score.assign(s.n_kv, -std::numeric_limits<double>::infinity());
  for (std::uint64_t j = 0; j < s.n_kv; ++j) {
    const auto key = std::int64_t(j);
    if (p.causal && key > aligned) continue;
    if (p.window_left >= 0 && key < aligned - p.window_left) continue;
    if (p.window_right >= 0 && key > aligned + p.window_right) continue;
    const std::uint64_t m = b * p.mask_batch + h * p.mask_head + i * p.mask_row + j * p.mask_col;
    if (p.mask == AttentionMask::boolean && in.mask.at(m) == 0) continue;
    const std::uint64_t k0 = batch * p.k.batch + hk * p.k.head + (s.first_kv + j) * p.k.row;
    double dot = 0, size = 0;
    for (std::uint64_t d = 0; d < p.d_qk; ++d) {
      const double x = in.q.at(q0 + d) * in.k.at(k0 + d);
      dot += x, size += std::fabs(x);
    }
    double score = dot * scale;
    if (p.soft_cap != 0) score = p.soft_cap * std::tanh(score / p.soft_cap);
    if (p.alibi) score -= in.slopes.at(h) * std::fabs(double(aligned - key));
    if (p.mask == AttentionMask::additive) score += in.mask.at(m);
    if (in.modify) score = in.modify(score, b, h, i, j);
    s.score[j] = score;
    s.size = std::max(s.size, size * scale + std::fabs(score));
  }
  return s;
}

double softmax_in_place(std::vector<double>& s) {  // returns lse
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double x : s) max = std::max(max, x);
  if (max == -std::numeric_limits<double>::infinity()) {
    std::fill(s.begin(), s.end(), 0.0);
    return max;
  }
  for (double& x : s) sum += x = std::exp(x - max);
  for (double& x : s) x /= sum;
  return max + std::log(sum);
}

}  // namespace

std::vector<double> attention_probabilities(const AttentionProblem& p, const AttentionInputs& in,
                                            std::uint64_t b, std::uint64_t h, std::uint64_t i) {
  auto s = scores(p, in, b, h, i);
  softmax_in_place(s.score);
  return std::move(s.score);
}

AttentionRow attention_ref(const AttentionProblem& p, const AttentionInputs& in, std::uint64_t b,
                           std::uint64_t h, std::uint64_t i) {
  AttentionRow r;
  auto s = scores(p, in, b, h, i);
  r.exists = i < s.n_q;
  if (!r.exists) return r;
  r.row = s.first_q + i, r.score_size = s.size;
  r.lse = softmax_in_place(s.score);
  r.o.assign(p.d_v, 0), r.weight.assign(p.d_v, 0), r.size.assign(p.d_v, 0);
  const std::uint64_t batch = p.packed ? 0 : b, hk = h / (p.heads_q / p.heads_kv);
  const double scale = scale_of(in.v_scale, p.v_scale, b, hk);
  const double most = s.score.empty() ? 0 : *std::max_element(s.score.begin(), s.score.end());
  for (std::uint64_t j = 0; j < s.n_kv; ++j) {
    if (s.score[j] == 0) continue;
    const std::uint64_t v0 = batch * p.v.batch + hk * p.v.head + (s.first_kv + j) * p.v.row;
    for (std::uint64_t d = 0; d < p.d_v; ++d) {
      const double v = in.v.at(v0 + d) * scale;
      r.o[d] += s.score[j] * v, r.weight[d] += s.score[j] * std::fabs(v), r.size[d] += most * std::fabs(v);
    }
  }
  return r;
}

// A probability carries the error of its score (d + 8 roundings of f32 relative to sum |q||k|, and as much
// again for the change of base), 2 ulp of ex2, and the rounding to the type before the second product. With
// e4m3 the tensor core keeps 13 bits behind the point of its sums, 32 terms at a time, and probabilities
// below 2^-6 are rounded to multiples of 2^-9, where the largest of the row is at least 2^5.
Check check_attention(const AttentionProblem& q, const AttentionInputs& in, const HostArray& o,
                      const HostArray& lse) {
  const auto p = q.dense();
  Check c;
  c.pass = true;
  const std::uint64_t rows = p.batch * p.heads_q * p.n_q;
  const double work = double(rows) * double(p.n_kv) * double(p.d_qk + p.d_v);
  const std::uint64_t step = std::max<std::uint64_t>(1, std::uint64_t(work / 4e8));
  if (step > 1) c.note = text::cat("every ", step, "th row");
  const bool fp8 = p.type == DType::e4m3;
  const double f32 = unit_roundoff(DType::f32), type = unit_roundoff(p.type);
  const double out = unit_roundoff(p.o_type()), summation = fp8 ? std::exp2(-13) : 0;
  auto* kept = Comparisons::current();
  const auto keep = [&](const HostArray& of) {
    if (kept)
      kept->all.push_back({of, std::vector<double>(of.size()), std::vector<double>(of.size(), INFINITY)});
  };
  keep(o);
  if (!lse.bytes.empty()) keep(lse);
  const auto compare_one = [&](const HostArray& of, double want, double allowed, std::uint64_t index) {
    const double got = of.at(index);
    ++c.compared;
    if (kept) {
      auto& one = *(kept->all.end() - (&of == &o && !lse.bytes.empty() ? 2 : 1));
      one.want[index] = want, one.tolerance[index] = allowed;
    }
    const bool equal = got == want || (std::isnan(got) && std::isnan(want));
    const double error = equal ? 0 : std::fabs(got - want), ratio = equal ? 0 : error / allowed;
    if (!equal && !(error <= allowed)) {
      ++c.wrong, c.pass = false;
    }
    if (!equal && std::isfinite(error)) c.max_error = std::max(c.max_error, error);
    if (!(ratio <= c.worst_ratio)) {
      c.worst_ratio = ratio, c.worst_index = index, c.worst_got = got, c.worst_want = want;
      c.worst_tolerance = allowed;
    }
  };
  for (std::uint64_t r = 0; r < rows; r += step) {
    const std::uint64_t i = r % p.n_q, h = r / p.n_q % p.heads_q, b = r / p.n_q / p.heads_q;
    const auto want = attention_ref(p, in, b, h, i);
    if (!want.exists) continue;
    const double score = f32 * (double(p.d_qk) + 16) * (want.score_size + 1) +
                         summation * (double(p.d_qk) / 32 + 1) * want.score_size;
    const double rounded = type + 2 * score + 8 * f32 + summation * (double(p.n_kv) / 32 + 2);
    const std::uint64_t o0 = (p.packed ? 0 : b) * p.o.batch + h * p.o.head + want.row * p.o.row;
    for (std::uint64_t d = 0; d < p.d_v; ++d)
      compare_one(o, want.o[d],
                  out * std::fabs(want.o[d]) + rounded * want.weight[d] +
                      (fp8 ? std::exp2(-15) * want.size[d] : 0) + 1e-30,
                  o0 + d);
    if (!lse.bytes.empty()) {
      const std::uint64_t at =
          p.packed ? h * in.cu_seqlens_q.back() + want.row : (b * p.heads_q + h) * p.n_q + i;
      compare_one(lse, want.lse, 2 * score + 1e-6 * (1 + std::fabs(want.lse)), at);
    }
  }
  if (!c.pass) c.pattern = text::cat(c.wrong, " elements differ");
  return c;
}

}  // namespace cgp::kernels
