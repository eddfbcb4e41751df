// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of one problem against the oracle, computed in any way.
#include <gtest/gtest.h>

#include <cmath>

#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_ref.h"
#include "cgp/testing/kernel_test.h"

namespace cgp::kernels::attention_testing {

// Rows of a sequence in memory: packed sequences lie one after the other, heads inside rows.
inline std::uint64_t place(const AttentionProblem& p, const AttentionStrides& s,
                           const std::vector<std::uint32_t>& cu, std::uint64_t b, std::uint64_t h,
                           std::uint64_t row) {
  return h * s.head + (p.packed ? (cu[b] + row) * s.row : b * s.batch + row * s.row);
}

struct Wanted {
  std::vector<double> q, k, v;
};
// Gradients in double from the oracle's probabilities, element by element.
inline Wanted gradients(const AttentionProblem& p, const AttentionInputs& in, const HostArray& d_o) {
  Wanted want{std::vector<double>(in.q.size()), std::vector<double>(in.k.size()),
              std::vector<double>(in.v.size())};
  const auto q = in.q.as_doubles(), k = in.k.as_doubles(), v = in.v.as_doubles(), up = d_o.as_doubles();
  for (std::uint64_t b = 0; b < p.batch; ++b)
    for (std::uint64_t h = 0; h < p.heads_q; ++h)
      for (std::uint64_t i = 0; i < (p.packed ? in.cu_seqlens_q[b + 1] - in.cu_seqlens_q[b] : p.n_q); ++i) {
        const auto prob = attention_probabilities(p, in, b, h, i);
        const auto hk = h / (p.heads_q / p.heads_kv);
        const auto q0 = place(p, p.q, in.cu_seqlens_q, b, h, i), o0 = place(p, p.o, in.cu_seqlens_q, b, h, i);
        const auto at_k = [&](std::uint64_t j) { return place(p, p.k, in.cu_seqlens_kv, b, hk, j); };
        const auto at_v = [&](std::uint64_t j) { return place(p, p.v, in.cu_seqlens_kv, b, hk, j); };
        std::vector<double> dp(prob.size());
        double mean = 0;
        for (std::uint64_t j = 0; j < prob.size(); ++j) {
          const auto v0 = at_v(j);
          for (std::uint64_t e = 0; e < p.d_v; ++e) dp[j] += up[o0 + e] * v[v0 + e];
          mean += prob[j] * dp[j];
        }
        for (std::uint64_t j = 0; j < prob.size(); ++j) {
          if (prob[j] == 0) continue;
          const auto k0 = at_k(j), v0 = at_v(j);
          double ds = prob[j] * (dp[j] - mean) * double(p.scale);
          double score = 0;
          for (std::uint64_t e = 0; e < p.d_qk; ++e) score += q[q0 + e] * k[k0 + e] * double(p.scale);
          if (p.soft_cap != 0) {
            const double t = std::tanh(score / p.soft_cap);
            ds *= 1 - t * t;
          }
          if (in.modify) {
            const double step = 1e-5;
            ds *= (in.modify(score + step, b, h, i, j) - in.modify(score - step, b, h, i, j)) / (2 * step);
          }
          for (std::uint64_t e = 0; e < p.d_qk; ++e)
            want.q[q0 + e] += ds * k[k0 + e], want.k[k0 + e] += ds * q[q0 + e];
          for (std::uint64_t e = 0; e < p.d_v; ++e) want.v[v0 + e] += prob[j] * up[o0 + e];
        }
      }
  return want;
}

inline AttentionInputs inputs(AttentionProblem& p) {
  AttentionInputs in;
  std::uint64_t rows_q = p.batch * p.n_q, rows_kv = p.batch * p.n_kv;
  if (p.packed) {
    in.cu_seqlens_q = {0}, in.cu_seqlens_kv = {0};
    for (std::uint64_t b = 0; b < p.batch; ++b) {  // the second sequence has no keys
      in.cu_seqlens_q.push_back(in.cu_seqlens_q.back() + std::uint32_t(p.n_q - 3 * b));
      in.cu_seqlens_kv.push_back(in.cu_seqlens_kv.back() + std::uint32_t(b == 1 ? 0 : p.n_kv - 5 * b));
    }
    rows_q = in.cu_seqlens_q.back(), rows_kv = in.cu_seqlens_kv.back();
    p.q = {0, p.d_qk, p.heads_q * p.d_qk}, p.o = {0, p.d_v, p.heads_q * p.d_v};
    p.k = {0, p.d_qk, p.heads_kv * p.d_qk}, p.v = {0, p.d_v, p.heads_kv * p.d_v};
  }
  in.q = random_array(p.type, {rows_q * p.heads_q * p.d_qk}, 1);
  in.k = random_array(p.type, {rows_kv * p.heads_kv * p.d_qk}, 2);
  in.v = random_array(p.type, {rows_kv * p.heads_kv * p.d_v}, 3);
  if (p.alibi) {
    in.slopes = HostArray(DType::f32, {p.heads_q});
    for (std::uint64_t h = 0; h < p.heads_q; ++h) in.slopes.set(h, 0.1 * double(h + 1));
  }
  if (p.mask != AttentionMask::none) {  // a boolean one forbids all keys to the first query
    p.mask_head = p.n_q * p.n_kv, p.mask_row = p.n_kv, p.mask_col = 1;
    const bool additive = p.mask == AttentionMask::additive;
    in.mask = random_array(additive ? p.type : DType::u8, {p.heads_q * p.n_q * p.n_kv}, 5);
    for (std::uint64_t i = 0; !additive && i < in.mask.size(); ++i)
      in.mask.set(i, i % (p.n_q * p.n_kv) >= p.n_kv && in.mask.at(i) > 3);
  }
  const auto nan = [&](HostArray& x, const AttentionStrides& strides, std::uint64_t d, std::uint64_t b,
                       std::uint64_t row) {  // what lies behind a sequence may be anything
    for (std::uint64_t h = 0; h < p.heads_kv; ++h)
      for (std::uint64_t e = 0; e < d; ++e) x.set(place(p, strides, {}, b, h, row) + e, std::nan(""));
  };
  for (std::uint64_t b = 0; p.key_lengths && b < p.batch; ++b) {
    in.lengths.push_back(std::uint32_t(p.n_kv - 30 * b));
    for (std::uint64_t row = in.lengths.back(); row < p.n_kv; ++row)
      nan(in.k, p.k, p.d_qk, b, row), nan(in.v, p.v, p.d_v, b, row);
  }
  return in;
}

using Bytes = runtime::Buffer<std::byte>;

// The root of the sum of squared errors, relative. delta comes from the rounded o: its error is that of o
// times |d_o|, and enters with the probabilities; tensor cores also round p and ds.
inline void near(const HostArray& a, const std::vector<double>& want, const AttentionProblem& p,
                 const char* what) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    error += (a.at(i) - want[i]) * (a.at(i) - want[i]), size += want[i] * want[i];
  EXPECT_LE(std::sqrt(error), (4 * unit_roundoff(p.type) + 1e-6) * std::sqrt(size))
      << what << " " << name(p.type) << " n " << p.n_q << " " << p.n_kv << " d " << p.d_qk;
}

// How the gradients are computed: without tunings as selected, which must be `kind`.
struct Way {
  AttentionKind kind;
  const AttentionBackwardTuning* tune = nullptr;
  const AttentionBackwardSm90Tuning* sm90 = nullptr;
  Way(AttentionKind k, const AttentionBackwardTuning* t = nullptr) : kind(k), tune(t) {}  // NOLINT
  Way(const AttentionBackwardSm90Tuning& t) : kind(AttentionKind::sm90), sm90(&t) {}      // NOLINT
};
struct Computed {
  HostArray q, k, v;
};
// A problem after its forward pass, and its gradients in any way.
class OnDevice {
 public:
  OnDevice(const runtime::Device& device, const AttentionProblem& problem,
           const decltype(AttentionInputs::modify)& modify = {})
      : device_(device),
        p_(problem.dense()),
        in_(inputs(p_)),
        d_o_(random_array(p_.type, {in_.q.size() / p_.d_qk * p_.d_v}, 4)),
        dq_(up(in_.q)),
        dk_(up(in_.k)),
        dv_(up(in_.v)),
        dd_(up(d_o_)),
        o_(up(d_o_)),
        slopes_(up(in_.slopes)),
        mask_(up(in_.mask)),
        gq_(up(in_.q)),
        gk_(up(in_.k)),
        gv_(up(in_.v)),
        space_(device.alloc<std::byte>(std::max<std::size_t>(1, attention_backward_workspace(p_, 0, 16)))),
        lse_(device.zeros<float>(p_.batch * p_.heads_q * p_.n_q)),
        delta_(device.zeros<float>(lse_.size())),
        lengths_(words(in_.lengths)),
        cu_q_(words(in_.cu_seqlens_q)),
        cu_kv_(words(in_.cu_seqlens_kv)) {
    at_.q = dq_.address(), at_.k = dk_.address(), at_.v = dv_.address(), at_.o = o_.address();
    at_.lse = lse_.address(), at_.slopes = slopes_.address(), at_.lengths = lengths_.address();
    at_.mask = mask_.address(), at_.cu_seqlens_q = cu_q_.address(), at_.cu_seqlens_kv = cu_kv_.address();
    if (p_.packed) at_.total_q = in_.cu_seqlens_q.back(), at_.total_kv = in_.cu_seqlens_kv.back();
    in_.modify = modify;
    runtime::Stream s(device_);
    attention(s, p_, at_);
    s.wait();
  }
  const AttentionProblem& problem() const { return p_; }
  AttentionGradients addresses(bool workspace, bool deterministic = true) const {
    AttentionGradients g{dd_.address(), gq_.address(), gk_.address(), gv_.address(), delta_.address()};
    g.workspace = workspace ? space_.address() : 0, g.deterministic = deterministic;
    return g;
  }
  /// "" where sm90 takes it.
  std::string not_sm90() const {
    return reject_backward(AttentionKind::sm90, p_, at_, addresses(true), device_.info());
  }
  AttentionBackwardChoice selected(const AttentionGradients& g) const {
    return select_attention_backward(p_, at_, g, device_.info());
  }
  Computed run(const AttentionBackwardChoice& c, const AttentionGradients& g) {
    for (Bytes* b : {&gq_, &gk_, &gv_, &space_}) b->fill_bytes(0xff);
    runtime::Stream s(device_);
    run_attention_backward(s, c, p_, at_, g);
    s.wait();
    return {down(gq_, in_.q.size()), down(gk_, in_.k.size()), down(gv_, in_.v.size())};
  }
  Wanted wanted() const { return gradients(p_, in_, d_o_); }

 private:
  Bytes up(const HostArray& a) const {
    Bytes b = device_.alloc<std::byte>(std::max<std::size_t>(1, a.bytes.size()));
    if (!a.bytes.empty()) b.slice(0, a.bytes.size()).upload(a.bytes);
    return b;
  }
  HostArray down(const Bytes& b, std::size_t elements) const {
    HostArray a(p_.type, {elements});
    b.slice(0, a.bytes.size()).download(a.bytes);
    return a;
  }
  runtime::Buffer<std::uint32_t> words(const std::vector<std::uint32_t>& v) const {
    return device_.upload<std::uint32_t>(v.empty() ? std::vector<std::uint32_t>{0} : v);
  }
  runtime::Device device_;
  AttentionProblem p_;
  AttentionInputs in_;
  HostArray d_o_;
  Bytes dq_, dk_, dv_, dd_, o_, slopes_, mask_, gq_, gk_, gv_, space_;
  runtime::Buffer<float> lse_, delta_;
  runtime::Buffer<std::uint32_t> lengths_, cu_q_, cu_kv_;
  AttentionAddresses at_;
};
// Returns d_q as computed.
inline HostArray check(const runtime::Device& device, const AttentionProblem& problem, const Way& way,
                       const decltype(AttentionInputs::modify)& modify = {}) {
  OnDevice on(device, problem, modify);
  const auto& p = on.problem();
  const auto g = on.addresses(way.kind == AttentionKind::sm90);
  const auto c = way.sm90   ? choose_attention_backward_sm90(p, *way.sm90)
                 : way.tune ? choose_attention_backward(way.kind, p, device.info().cc(), way.tune)
                            : on.selected(g);
  EXPECT_EQ(c.kind, way.kind) << c.why;
  const auto got = on.run(c, g);
  const Wanted want = on.wanted();
  near(got.q, want.q, p, "d_q"), near(got.k, want.k, p, "d_k"), near(got.v, want.v, p, "d_v");
  return got.q;
}

inline AttentionProblem problem(DType t, std::uint64_t n_q, std::uint64_t n_kv, std::uint64_t d,
                                std::uint64_t d_v) {
  AttentionProblem p;
  p.type = t, p.batch = 2, p.heads_q = 2, p.heads_kv = 1, p.n_q = n_q, p.n_kv = n_kv, p.d_qk = d, p.d_v = d_v;
  return p;
}

}  // namespace cgp::kernels::attention_testing
