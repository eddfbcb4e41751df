// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_backward.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/kernels/attention/attention_ref.h"
#include "cgp/testing/assemble.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

// Gradients in double from the oracle's probabilities, element by element.
void check(const runtime::Device& device, AttentionProblem q) {
  const auto p = q.dense();
  AttentionInputs in;
  in.q = random_array(p.type, {p.batch * p.heads_q * p.n_q * p.d_qk}, 1);
  in.k = random_array(p.type, {p.batch * p.heads_kv * p.n_kv * p.d_qk}, 2);
  in.v = random_array(p.type, {p.batch * p.heads_kv * p.n_kv * p.d_v}, 3);
  const auto d_o = random_array(p.type, {p.batch * p.heads_q * p.n_q * p.d_v}, 4);
  if (p.alibi) {
    in.slopes = HostArray(DType::f32, {p.heads_q});
    for (std::uint64_t h = 0; h < p.heads_q; ++h) in.slopes.set(h, 0.1 * double(h + 1));
  }
  if (p.key_lengths)
    for (std::uint64_t b = 0; b < p.batch; ++b) in.lengths.push_back(std::uint32_t(p.n_kv - b));
  using Bytes = runtime::Buffer<std::byte>;
  const auto up = [&](const HostArray& a) {
    Bytes b = device.alloc<std::byte>(std::max<std::size_t>(1, a.bytes.size()));
    if (!a.bytes.empty()) b.upload(a.bytes);
    return b;
  };
  Bytes dq = up(in.q), dk = up(in.k), dv = up(in.v), dd = up(d_o), o = up(d_o), slopes = up(in.slopes);
  Bytes gq = up(in.q), gk = up(in.k), gv = up(in.v);
  gq.fill_bytes(0xff), gk.fill_bytes(0xff), gv.fill_bytes(0xff);
  auto lse = device.zeros<float>(p.batch * p.heads_q * p.n_q), delta = device.zeros<float>(lse.size());
  auto lengths =
      device.upload<std::uint32_t>(in.lengths.empty() ? std::vector<std::uint32_t>{0} : in.lengths);
  AttentionAddresses at;
  at.q = dq.address(), at.k = dk.address(), at.v = dv.address(), at.o = o.address(), at.lse = lse.address();
  at.slopes = slopes.address(), at.lengths = lengths.address();
  runtime::Stream s(device);
  attention(s, p, at);
  attention_backward(s, p, at, {dd.address(), gq.address(), gk.address(), gv.address(), delta.address()});
  s.wait();
  std::vector<double> want_q(in.q.size()), want_k(in.k.size()), want_v(in.v.size());
  for (std::uint64_t b = 0; b < p.batch; ++b)
    for (std::uint64_t h = 0; h < p.heads_q; ++h)
      for (std::uint64_t i = 0; i < p.n_q; ++i) {
        const auto prob = attention_probabilities(p, in, b, h, i);
        const auto hk = h / (p.heads_q / p.heads_kv);
        const auto q0 = ((b * p.heads_q + h) * p.n_q + i) * p.d_qk,
                   o0 = ((b * p.heads_q + h) * p.n_q + i) * p.d_v;
        std::vector<double> dp(prob.size());
        double mean = 0;
        for (std::uint64_t j = 0; j < prob.size(); ++j) {
          const auto v0 = ((b * p.heads_kv + hk) * p.n_kv + j) * p.d_v;
          for (std::uint64_t e = 0; e < p.d_v; ++e) dp[j] += d_o.at(o0 + e) * in.v.at(v0 + e);
          mean += prob[j] * dp[j];
        }
        for (std::uint64_t j = 0; j < prob.size(); ++j) {
          const auto k0 = ((b * p.heads_kv + hk) * p.n_kv + j) * p.d_qk,
                     v0 = ((b * p.heads_kv + hk) * p.n_kv + j) * p.d_v;
          double ds = prob[j] * (dp[j] - mean) * double(p.scale);
          if (p.soft_cap != 0) {
            double dot = 0;
            for (std::uint64_t e = 0; e < p.d_qk; ++e) dot += in.q.at(q0 + e) * in.k.at(k0 + e);
            const double t = std::tanh(dot * double(p.scale) / p.soft_cap);
            ds *= 1 - t * t;
          }
          for (std::uint64_t e = 0; e < p.d_qk; ++e)
            want_q[q0 + e] += ds * in.k.at(k0 + e), want_k[k0 + e] += ds * in.q.at(q0 + e);
          for (std::uint64_t e = 0; e < p.d_v; ++e) want_v[v0 + e] += prob[j] * d_o.at(o0 + e);
        }
      }
  // delta comes from the rounded o: its error is that of o times |d_o|, and enters with the probabilities.
  const auto near = [&](Bytes& got, const std::vector<double>& want, const char* what) {
    HostArray a(p.type, {want.size()});
    got.download(a.bytes);
    double error = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      error += (a.at(i) - want[i]) * (a.at(i) - want[i]), size += want[i] * want[i];
    }
    EXPECT_LE(std::sqrt(error), 4 * unit_roundoff(p.type) * std::sqrt(size) + 1e-6 * std::sqrt(size))
        << what << " " << name(p.type) << " n " << p.n_q << " " << p.n_kv;
  };
  near(gq, want_q, "d_q"), near(gk, want_k, "d_k"), near(gv, want_v, "d_v");
}

AttentionProblem problem(DType t, std::uint64_t n_q, std::uint64_t n_kv, std::uint64_t d) {
  AttentionProblem p;
  p.type = t, p.batch = 2, p.heads_q = 2, p.heads_kv = 1, p.n_q = n_q, p.n_kv = n_kv, p.d_qk = d,
  p.d_v = d + 8;
  return p;
}
void every(const runtime::Device& device) {
  for (DType t : {DType::f32, DType::f16, DType::bf16}) check(device, problem(t, 5, 37, 24));
  auto p = problem(DType::f32, 40, 36, 16);
  p.causal = true;
  check(device, p);  // the first queries see nothing
  p.causal = false, p.window_left = 7, p.window_right = 2;
  check(device, p);
  p = problem(DType::f32, 9, 20, 16), p.soft_cap = 1.5f;
  check(device, p);
  p = problem(DType::f32, 9, 20, 16), p.alibi = p.causal = true;
  check(device, p);
  p = problem(DType::f32, 9, 20, 16), p.key_lengths = true;
  check(device, p);
}

}  // namespace

TEST(attention_backward, gradients_match_the_oracle) { every(runtime::Device::open("emu:sm_90a")); }

TEST(attention_backward, right_on_a_gpu) {
  try {
    every(runtime::Device::open("cuda:0"));
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(attention_backward, every_variant_assembles) {
  if (!cgp::testing::find_ptxas()) GTEST_SKIP() << "ptxas is not installed";
  AttentionFeatures f;
  f.right = f.left = f.soft_cap = f.alibi = true;
  for (const char* arch : {"sm_80", "sm_90a", "sm_120a"})
    for (const auto& i : images(attention_backward_simt(DType::bf16, f), arch)) {
      const auto a = cgp::testing::assemble(*i.ptx, arch);
      EXPECT_TRUE(a.ok && a.spill_bytes == 0) << i.name << " " << arch << "\n" << a.log;
    }
}
