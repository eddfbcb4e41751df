// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "cgp/kernels/attention/attention_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

// Rows of a sequence in memory: packed sequences lie one after the other, heads inside rows.
std::uint64_t place(const AttentionProblem& p, const AttentionStrides& s,
                    const std::vector<std::uint32_t>& cu, std::uint64_t b, std::uint64_t h,
                    std::uint64_t row) {
  return h * s.head + (p.packed ? (cu[b] + row) * s.row : b * s.batch + row * s.row);
}

struct Wanted {
  std::vector<double> q, k, v;
};
// Gradients in double from the oracle's probabilities, element by element.
Wanted gradients(const AttentionProblem& p, const AttentionInputs& in, const HostArray& d_o) {
  Wanted want{std::vector<double>(in.q.size()), std::vector<double>(in.k.size()),
              std::vector<double>(in.v.size())};
  const auto q = in.q.as_doubles(), k = in.k.as_doubles(), v = in.v.as_doubles(), up = d_o.as_doubles();
  for (std::uint64_t b = 0; b < p.batch; ++b)
    for (std::uint64_t h = 0; h < p.heads_q; ++h)
      for (std::uint64_t i = 0; i < (p.packed ? in.cu_q[b + 1] - in.cu_q[b] : p.n_q); ++i) {
        const auto prob = attention_probabilities(p, in, b, h, i);
        const auto hk = h / (p.heads_q / p.heads_kv);
        const auto q0 = place(p, p.q, in.cu_q, b, h, i), o0 = place(p, p.o, in.cu_q, b, h, i);
        const auto at_k = [&](std::uint64_t j) { return place(p, p.k, in.cu_kv, b, hk, j); };
        const auto at_v = [&](std::uint64_t j) { return place(p, p.v, in.cu_kv, b, hk, j); };
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
          if (p.soft_cap != 0) {
            double dot = 0;
            for (std::uint64_t e = 0; e < p.d_qk; ++e) dot += q[q0 + e] * k[k0 + e];
            const double t = std::tanh(dot * double(p.scale) / p.soft_cap);
            ds *= 1 - t * t;
          }
          for (std::uint64_t e = 0; e < p.d_qk; ++e)
            want.q[q0 + e] += ds * k[k0 + e], want.k[k0 + e] += ds * q[q0 + e];
          for (std::uint64_t e = 0; e < p.d_v; ++e) want.v[v0 + e] += prob[j] * up[o0 + e];
        }
      }
  return want;
}

AttentionInputs inputs(AttentionProblem& p) {
  AttentionInputs in;
  std::uint64_t rows_q = p.batch * p.n_q, rows_kv = p.batch * p.n_kv;
  if (p.packed) {
    in.cu_q = {0}, in.cu_kv = {0};
    for (std::uint64_t b = 0; b < p.batch; ++b) {  // the second sequence has no keys
      in.cu_q.push_back(in.cu_q.back() + std::uint32_t(p.n_q - 3 * b));
      in.cu_kv.push_back(in.cu_kv.back() + std::uint32_t(b == 1 ? 0 : p.n_kv - 5 * b));
    }
    rows_q = in.cu_q.back(), rows_kv = in.cu_kv.back();
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
void near(const HostArray& a, const std::vector<double>& want, const AttentionProblem& p, const char* what) {
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
// Returns d_q as computed.
HostArray check(const runtime::Device& device, const AttentionProblem& problem, const Way& way) {
  auto p = problem.dense();
  const auto in = inputs(p);
  const auto d_o = random_array(p.type, {in.q.size() / p.d_qk * p.d_v}, 4);
  const auto up = [&](const HostArray& a) {
    Bytes b = device.alloc<std::byte>(std::max<std::size_t>(1, a.bytes.size()));
    if (!a.bytes.empty()) b.slice(0, a.bytes.size()).upload(a.bytes);
    return b;
  };
  const auto words = [&](const std::vector<std::uint32_t>& v) {
    return device.upload<std::uint32_t>(v.empty() ? std::vector<std::uint32_t>{0} : v);
  };
  Bytes dq = up(in.q), dk = up(in.k), dv = up(in.v), dd = up(d_o), o = up(d_o), slopes = up(in.slopes),
        mask = up(in.mask);
  Bytes gq = up(in.q), gk = up(in.k), gv = up(in.v);
  gq.fill_bytes(0xff), gk.fill_bytes(0xff), gv.fill_bytes(0xff);
  auto lse = device.zeros<float>(p.batch * p.heads_q * p.n_q), delta = device.zeros<float>(lse.size());
  auto lengths = words(in.lengths), cu_q = words(in.cu_q), cu_kv = words(in.cu_kv);
  AttentionAddresses at;
  at.q = dq.address(), at.k = dk.address(), at.v = dv.address(), at.o = o.address(), at.lse = lse.address();
  at.slopes = slopes.address(), at.lengths = lengths.address(), at.mask = mask.address();
  at.cu_q = cu_q.address(), at.cu_kv = cu_kv.address();
  if (p.packed) at.total_q = in.cu_q.back(), at.total_kv = in.cu_kv.back();
  AttentionGradients g{dd.address(), gq.address(), gk.address(), gv.address(), delta.address()};
  Bytes space = device.alloc<std::byte>(std::max<std::size_t>(1, attention_backward_workspace(p)));
  space.fill_bytes(0xff);
  if (way.kind == AttentionKind::sm90) g.workspace = space.address();
  runtime::Stream s(device);
  attention(s, p, at);
  const auto c = way.sm90   ? choose_attention_backward_sm90(p, *way.sm90)
                 : way.tune ? choose_attention_backward(way.kind, p, device.info().cc(), way.tune)
                            : select_attention_backward(p, at, g, device.info());
  EXPECT_EQ(c.kind, way.kind) << c.why;
  run_attention_backward(s, c, p, at, g);
  s.wait();
  const Wanted want = gradients(p, in, d_o);
  const auto down = [&](Bytes& b, std::size_t elements) {
    HostArray a(p.type, {elements});
    b.slice(0, a.bytes.size()).download(a.bytes);
    return a;
  };
  auto d_q = down(gq, want.q.size());
  near(d_q, want.q, p, "d_q"), near(down(gk, want.k.size()), want.k, p, "d_k");
  near(down(gv, want.v.size()), want.v, p, "d_v");
  return d_q;
}

AttentionProblem problem(DType t, std::uint64_t n_q, std::uint64_t n_kv, std::uint64_t d, std::uint64_t d_v) {
  AttentionProblem p;
  p.type = t, p.batch = 2, p.heads_q = 2, p.heads_kv = 1, p.n_q = n_q, p.n_kv = n_kv, p.d_qk = d, p.d_v = d_v;
  return p;
}
void every(const runtime::Device& device) {
  const Way kind = AttentionKind::simt;
  check(device, problem(DType::f32, 5, 37, 24, 32), kind);
  for (DType t : {DType::f16, DType::bf16}) check(device, problem(t, 5, 37, 20, 28), kind);
  auto p = problem(DType::f32, 40, 36, 16, 24);
  p.causal = true;
  check(device, p, kind);  // the first queries see nothing
  p.causal = false, p.window_left = 7, p.window_right = 2;
  check(device, p, kind);
  p = problem(DType::f32, 9, 40, 16, 24), p.soft_cap = 1.5f;
  check(device, p, kind);
  p = problem(DType::f32, 9, 40, 16, 24), p.alibi = p.causal = true;
  check(device, p, kind);
  p = problem(DType::f32, 9, 40, 16, 24), p.key_lengths = true;
  check(device, p, kind);
}
// Shapes that are no multiple of a tile, each feature once.
void every_mma(const runtime::Device& device, std::uint64_t more) {
  const Way kind = AttentionKind::mma;
  check(device, problem(DType::f16, 5, 37, 24, 32), kind);
  check(device, problem(DType::bf16, more + 70, more + 150, 64, 64), kind);
  check(device, problem(DType::bf16, more + 70, 83, 128, 104), kind);
  auto p = problem(DType::bf16, 90, more + 36, 64, 64);
  p.causal = true;
  check(device, p, kind);  // the first queries see nothing
  p = problem(DType::bf16, more + 75, more + 140, 128, 128), p.causal = true;
  check(device, p, kind);
  p.causal = false, p.window_left = 20, p.window_right = 2;
  check(device, p, kind);
  check(device, problem(DType::bf16, more + 70, 83, 256, 200), kind);
  p = problem(DType::f16, 90, more + 36, 192, 128), p.causal = true;
  check(device, p, kind);
  p = problem(DType::bf16, 20, more + 70, 136, 256), p.window_left = 9, p.soft_cap = 1.5f;
  check(device, p, kind);
  p = problem(DType::bf16, 33, more + 70, 64, 64), p.soft_cap = 1.5f;
  check(device, p, kind);
  p = problem(DType::f16, 33, more + 70, 64, 64), p.alibi = p.causal = true;
  check(device, p, kind);
  p = problem(DType::bf16, 40, more + 70, 32, 32), p.key_lengths = p.causal = true;
  check(device, p, kind);
  p = problem(DType::bf16, 40, more + 70, 32, 64), p.packed = p.causal = true, p.batch = 3;
  check(device, p, kind);
  for (auto m : {AttentionMask::additive, AttentionMask::boolean}) {
    p = problem(DType::bf16, 40, more + 70, 128, 128), p.mask = m;
    check(device, p, kind);
  }
}
// Tails of queries and keys, several tiles of each, grouped heads, bounds; `more` adds tiles.
void every_sm90(const runtime::Device& device, std::uint64_t more, const Way& way) {
  const auto small = [&](DType t, std::uint64_t n_q, std::uint64_t n_kv, std::uint64_t d, std::uint64_t d_v) {
    auto p = problem(t, n_q, n_kv, d, d_v);
    p.batch = more ? 2 : 1;
    return p;
  };
  check(device, small(DType::bf16, more + 150, more + 140, 64, 64), way);
  check(device, small(DType::f16, more + 70, 83, 128, 104), way);
  auto p = small(DType::bf16, more + 200, more + 136, 40, 64);
  p.causal = true, p.scale = 0.3f;
  check(device, p, way);  // the first queries see nothing
  p = small(DType::bf16, more + 75, more + 300, 128, 128), p.causal = true;
  check(device, p, way);
  p.causal = false, p.window_left = 20, p.window_right = 2;  // nobody sees the first keys
  check(device, p, way);
  p = small(DType::bf16, more + 70, more + 83, 64, 64), p.soft_cap = 1.5f, p.causal = true;
  check(device, p, way);
  p = small(DType::f16, more + 70, more + 83, 128, 128), p.soft_cap = 1.5f, p.window_left = 30;
  check(device, p, way);
  p = small(DType::bf16, more + 75, more + 83, 128, 104), p.alibi = p.causal = true;
  check(device, p, way);
  p = small(DType::bf16, more + 40, more + 83, 64, 64), p.mask = AttentionMask::additive;
  check(device, p, way);
  p = small(DType::bf16, more + 70, more + 83, 128, 128), p.mask = AttentionMask::boolean;
  p.window_right = 9;
  check(device, p, way);
}
// Sequences one after the other, the second without keys, and numbers of keys: bounds, grouped heads.
void every_sequence(const runtime::Device& device, std::uint64_t more, const Way& way) {
  auto p = problem(DType::bf16, more + 150, more + 140, 64, 64);
  p.batch = 3, p.packed = p.causal = true;
  check(device, p, way);
  p = problem(DType::f16, more + 70, more + 140, 128, 104), p.batch = 3, p.packed = true;
  check(device, p, way);
  p.window_left = 20, p.window_right = 2;
  check(device, p, way);
  p = problem(DType::bf16, more + 70, more + 300, 128, 128), p.key_lengths = true;
  check(device, p, way);
  p = problem(DType::bf16, more + 140, more + 150, 64, 64), p.key_lengths = p.causal = true, p.batch = 3;
  check(device, p, way);
  p = problem(DType::bf16, more + 70, more + 83, 64, 64), p.packed = p.alibi = true;
  check(device, p, way);
  p = problem(DType::bf16, more + 70, more + 83, 128, 128), p.key_lengths = true, p.soft_cap = 1.5f;
  check(device, p, way);
}
// The same above 128 columns.
void every_wide_sequence(const runtime::Device& device, std::uint64_t more, const Way& way) {
  auto p = problem(DType::bf16, more + 140, more + 40, 256, 200);
  p.batch = 3, p.packed = p.causal = true;
  check(device, p, way);
  p = problem(DType::f16, more + 40, more + 140, 192, 128), p.packed = true, p.window_left = 20;
  p.soft_cap = 1.5f;
  check(device, p, way);
  p = problem(DType::bf16, more + 40, more + 150, 192, 128), p.key_lengths = p.causal = true;
  check(device, p, way);
  p = problem(DType::bf16, more + 40, more + 70, 256, 256), p.key_lengths = p.alibi = true;
  p.soft_cap = 1.5f;
  check(device, p, way);
}
// The same above 128 columns, where each gradient has a kernel.
void every_wide(const runtime::Device& device, std::uint64_t more, const Way& way) {
  const auto small = [&](DType t, std::uint64_t n_q, std::uint64_t n_kv, std::uint64_t d, std::uint64_t d_v) {
    auto p = problem(t, n_q, n_kv, d, d_v);
    p.batch = more ? 2 : 1;
    return p;
  };
  check(device, small(DType::bf16, more + 70, more + 140, 256, 200), way);
  auto p = small(DType::f16, more + 150, more + 83, 192, 128);
  p.causal = true, p.scale = 0.3f;
  check(device, p, way);  // the first queries see nothing
  p = small(DType::bf16, more + 75, more + 200, 136, 256), p.window_left = 20, p.window_right = 2;
  check(device, p, way);  // nobody sees the first keys
  p = small(DType::bf16, more + 40, more + 70, 256, 256), p.soft_cap = 1.5f, p.alibi = p.causal = true;
  check(device, p, way);
  for (auto m : {AttentionMask::additive, AttentionMask::boolean}) {
    p = small(DType::bf16, more + 40, more + 70, 192, 128), p.mask = m;
    check(device, p, way);
  }
}
// Measured against each other: all must be right.
constexpr AttentionBackwardSm90Tuning kSm90Tunings[] = {
    {.turns = false, .persistent = false, .rounded = true},
    {.buffers = 1, .turns = false, .spread = true, .section = 2},
    {.buffers = 1, .turns = true, .blocks = 1},
    {.buffers = 1, .turns = false, .first = true}};
constexpr AttentionBackwardTuning kTunings[] = {{16, 64, 16, 64}, {32, 32, 32, 32}, {16, 48, 32, 64}};

}  // namespace

TEST(attention_backward, gradients_match_the_oracle) { every(runtime::Device::open("emu:sm_90a")); }

TEST(attention_backward_mma, gradients_match_the_oracle) { every_mma(runtime::Device::open("emu:sm_80"), 0); }

TEST(attention_backward_mma, under_every_policy) {
  for (auto [async, schedule] : {std::pair{"late", "adversarial"},
                                 {"random:1", "random:1"},
                                 {"late", "random:2"},
                                 {"eager", "adversarial"}}) {
    auto device = cgp::testing::emulator_under(async, schedule);
    auto p = problem(DType::bf16, 70, 83, 32, 32);
    p.causal = true, p.batch = 1;
    check(device, p, AttentionKind::mma);
  }
}

TEST(attention_backward_mma, wide_heads_fit_where_shared_memory_is_small) {
  for (std::uint64_t d : {192, 256}) {
    auto p = problem(DType::bf16, 20, 30, d, d);
    p.batch = 1;
    check(runtime::Device::open("emu:sm_89"), p, AttentionKind::mma);
  }
}

TEST(attention_backward_mma, tunings) {
  auto p = problem(DType::bf16, 70, 83, 64, 64);
  p.batch = 1, p.causal = true;
  for (const auto& t : kTunings) check(runtime::Device::open("emu:sm_90a"), p, {AttentionKind::mma, &t});
}

TEST(attention_backward_sm90, gradients_match_the_oracle) {
  every_sm90(runtime::Device::open("emu:sm_90a"), 0, AttentionKind::sm90);
}

TEST(attention_backward_sm90, gradients_of_sequences_match_the_oracle) {
  every_sequence(runtime::Device::open("emu:sm_90a"), 0, AttentionKind::sm90);
}

TEST(attention_backward_sm90, wide_gradients_of_sequences_match_the_oracle) {
  every_wide_sequence(runtime::Device::open("emu:sm_90a"), 0, AttentionKind::sm90);
}

TEST(attention_backward_sm90, wide_gradients_match_the_oracle) {
  every_wide(runtime::Device::open("emu:sm_90a"), 0, AttentionKind::sm90);
}

namespace {

void same_sums_under_every_policy(const AttentionProblem& p) {
  std::vector<std::byte> first;
  for (auto [async, schedule] : {std::pair{"late", "adversarial"},
                                 {"random:1", "random:1"},
                                 {"late", "random:2"},
                                 {"eager", "diverge"}}) {
    auto device = cgp::testing::emulator_under(async, schedule);
    const auto d_q = check(device, p, AttentionKind::sm90);
    if (first.empty()) first.assign(d_q.bytes.begin(), d_q.bytes.end());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), d_q.bytes.begin())) << async << " " << schedule;
  }
}

}  // namespace

TEST(attention_backward_sm90, under_every_policy_with_the_same_sums) {
  auto p = problem(DType::bf16, 150, 270, 64, 64);
  p.causal = true, p.batch = 1;
  same_sums_under_every_policy(p);
  p.packed = true, p.batch = 3, p.n_q = 130, p.n_kv = 140;
  same_sums_under_every_policy(p);
  p = problem(DType::bf16, 40, 70, 64, 64), p.batch = 1, p.soft_cap = 1.5f;
  same_sums_under_every_policy(p);
}

TEST(attention_backward_sm90, wide_under_every_policy_with_the_same_sums) {
  auto p = problem(DType::bf16, 150, 140, 192, 128);
  p.causal = true, p.batch = 1;
  same_sums_under_every_policy(p);
  p = problem(DType::bf16, 40, 70, 192, 128), p.batch = 2, p.packed = true;
  same_sums_under_every_policy(p);
}

TEST(attention_backward_sm90, tunings) {
  auto p = problem(DType::f16, 140, 150, 128, 128);
  p.batch = 1, p.causal = true;
  for (const auto& t : kSm90Tunings) check(runtime::Device::open("emu:sm_90a"), p, t);
  p = problem(DType::bf16, 140, 150, 192, 128), p.batch = 1, p.causal = true;
  // Blocks that do not stay, and one that makes all.
  for (int i : {0, 2}) check(runtime::Device::open("emu:sm_90a"), p, kSm90Tunings[i]);
}

TEST(attention_backward_sm90, is_refused_with_the_reason) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto why = [&](const AttentionProblem& p, std::uint64_t workspace) {
    return reject_backward(AttentionKind::sm90, p.dense(), {}, {.workspace = workspace}, device.info());
  };
  auto p = problem(DType::bf16, 9, 9, 64, 64);
  EXPECT_EQ(why(p, 256), "");
  EXPECT_NE(why(p, 0).find("no workspace"), std::string::npos);
  EXPECT_NE(why(p, 128).find("multiple of 256"), std::string::npos);
  EXPECT_EQ(why(problem(DType::bf16, 9, 9, 192, 128), 256), "");
  p.soft_cap = 2;
  EXPECT_EQ(why(p, 256), "");
  p.alibi = true;
  EXPECT_NE(why(p, 256).find("a soft cap beside slopes"), std::string::npos);
  p.alibi = false, p.packed = p.causal = true;
  EXPECT_NE(why(p, 256).find("bounds of packed sequences beside a soft cap"), std::string::npos);
  p = problem(DType::bf16, 9, 9, 256, 256), p.soft_cap = 2, p.alibi = true;
  EXPECT_EQ(why(p, 256), "");
  p.key_lengths = true;
  EXPECT_EQ(why(p, 256), "");
  p.key_lengths = false, p.packed = true;
  EXPECT_NE(why(p, 256).find("a soft cap beside slopes"), std::string::npos);
  p = problem(DType::bf16, 9, 9, 256, 256), p.mask = AttentionMask::boolean, p.key_lengths = true;
  EXPECT_NE(why(p, 256).find("a mask beside key lengths"), std::string::npos);
  for (std::uint64_t d : {64, 256}) {
    p = problem(DType::bf16, 9, 9, d, d), p.packed = true;
    EXPECT_NE(why(p, 256).find("total_q = 0"), std::string::npos);
    p = problem(DType::bf16, 9, 9, d, d),
    p.modify = {"twice", [](const AttentionScore& s) { return s.score * 2.0f; }, {}};
    EXPECT_NE(why(p, 256).find("score modification"), std::string::npos);
  }
  p = problem(DType::bf16, 9, 9, 256, 256), p.soft_cap = 2;
  p.mask = AttentionMask::boolean;
  EXPECT_NE(why(p, 256).find("a mask beside a soft cap"), std::string::npos);
  EXPECT_EQ(attention_backward_workspace(problem(DType::f32, 9, 9, 64, 64)), 0u);
}

TEST(attention_backward_mma, is_refused_with_the_reason) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto why = [&](const AttentionProblem& p, std::uint64_t d_q = 0) {
    return select_attention_backward(p, {}, {.d_q = d_q}, device.info()).why;
  };
  EXPECT_NE(why(problem(DType::f32, 9, 9, 64, 64)).find("not f32"), std::string::npos);
  EXPECT_NE(why(problem(DType::bf16, 9, 9, 60, 64)).find("d_qk = 60"), std::string::npos);
  EXPECT_NE(why(problem(DType::bf16, 9, 9, 64, 64), 8).find("d_q does not begin"), std::string::npos);
}

TEST(attention_backward, right_on_a_gpu) {
  try {
    const auto device = runtime::Device::open("cuda:0");
    every(device);
    every_mma(device, 0), every_mma(device, 300);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

namespace {

// Small and with `more` rows; then small with the tunings given.
void right_on_a_gpu(void (*every_shape)(const runtime::Device&, std::uint64_t, const Way&),
                    std::uint64_t more, std::initializer_list<int> tunings) {
  try {
    const auto device = runtime::Device::open("cuda:0");
    if (device.info().arch != "sm_90a") GTEST_SKIP() << "needs sm_90a, this is " << device.info().arch;
    for (std::uint64_t m : {std::uint64_t(0), more}) every_shape(device, m, AttentionKind::sm90);
    for (int i : tunings) every_shape(device, 0, kSm90Tunings[i]);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

}  // namespace

TEST(attention_backward_sm90, sequences_right_on_a_gpu) { right_on_a_gpu(every_sequence, 200, {2, 3}); }
TEST(attention_backward_sm90, wide_sequences_right_on_a_gpu) {
  right_on_a_gpu(every_wide_sequence, 200, {0, 2});
}
TEST(attention_backward_sm90, right_on_a_gpu) { right_on_a_gpu(every_sm90, 300, {0, 1, 2, 3}); }
TEST(attention_backward_sm90, wide_right_on_a_gpu) { right_on_a_gpu(every_wide, 300, {0, 1, 2, 3}); }

namespace {

std::vector<std::vector<Variant>> other_mma() {
  std::vector<std::vector<Variant>> all;
  const auto add = [&](const std::function<void(AttentionProblem&)>& set) {
    auto p = problem(all.size() % 2 ? DType::f16 : DType::bf16, 9, 9, 32, 32);
    set(p);
    all.push_back(choose_attention_backward(AttentionKind::mma, p, 90).kernels);
  };
  add([](auto& p) { p.packed = p.causal = true; });
  add([](auto& p) { p.key_lengths = true; });
  add([](auto& p) { p.window_left = 3, p.window_right = 2; });
  add([](auto& p) { p.mask = AttentionMask::boolean; });
  return all;
}
std::vector<std::vector<Variant>> all_sm90() {
  std::vector<std::vector<Variant>> all;
  const auto add = [&](DType t, std::uint64_t d, bool right, bool left, bool turns) {
    auto p = problem(t, 9, 9, d, d == 192 ? 128 : d);
    p.causal = right, p.window_left = left ? 3 : -1;
    all.push_back(choose_attention_backward_sm90(p, tune_attention_backward(p, turns)).kernels);
  };
  add(DType::bf16, 64, false, false, true), add(DType::bf16, 64, true, false, false);
  add(DType::bf16, 64, false, false, false), add(DType::bf16, 128, true, false, false);
  add(DType::bf16, 128, true, false, true), add(DType::bf16, 128, true, true, true);
  add(DType::f16, 64, true, true, true), add(DType::f16, 128, false, false, false);
  add(DType::bf16, 256, true, true, true), add(DType::f16, 192, true, false, true);
  for (std::uint64_t d : {64, 128})
    for (bool packed : {true, false}) {
      auto p = problem(DType::bf16, 9, 9, d, d);
      p.causal = true, p.packed = packed, p.key_lengths = !packed;
      all.push_back(
          choose_attention_backward_sm90(p, tune_attention_backward(p, packed == (d == 64))).kernels);
    }
  const auto shaped = [&](std::uint64_t d, const std::function<void(AttentionProblem&)>& set) {
    auto p = problem(DType::bf16, 9, 9, d, d);
    set(p);
    all.push_back(choose_attention_backward_sm90(p, tune_attention_backward(p, d != 64)).kernels);
  };
  shaped(64, [](auto& p) { p.soft_cap = 2, p.causal = true, p.window_left = 3; });
  shaped(128, [](auto& p) { p.soft_cap = 2, p.packed = p.causal = true; });
  shaped(128, [](auto& p) { p.mask = AttentionMask::additive, p.causal = true; });
  shaped(256, [](auto& p) { p.causal = p.alibi = true, p.soft_cap = 2, p.window_left = 3; });
  shaped(256, [](auto& p) { p.packed = p.causal = true, p.soft_cap = 2; });
  return all;
}

}  // namespace

TEST(attention_backward, every_variant_assembles) {
  std::vector<cgp::testing::ArchImage> wanted;
  AttentionFeatures every;
  every.right = every.left = every.soft_cap = every.alibi = true;
  for (auto [arch, cc] : {std::pair{"sm_80", 80}, {"sm_90a", 90}, {"sm_120a", 120}}) {
    std::vector<std::vector<Variant>> all{attention_backward_simt(DType::bf16, every)};
    const bool here = arch == std::string_view("sm_90a");
    for (std::uint64_t d : {64, 128, 192, 256})
      for (bool bounded : {false, true}) {
        if (((!here || d > 128) && !bounded) || (!here && d == 192)) continue;
        auto p = problem(d == 64 ? DType::f16 : DType::bf16, 9, 9, d, d);
        p.causal = bounded;
        all.push_back(choose_attention_backward(AttentionKind::mma, p, cc).kernels);
      }
    for (std::uint64_t d : {128, 256}) {
      auto p = problem(DType::bf16, 9, 9, d, d);
      p.causal = p.alibi = true, p.soft_cap = 2, p.window_left = 3, p.mask = AttentionMask::additive;
      all.push_back(choose_attention_backward(AttentionKind::mma, p, cc).kernels);
    }
    if (here) {  // one narrow width each for what else changes the code of mma; both types of sm90
      for (auto& kernels : other_mma()) all.push_back(std::move(kernels));
      for (auto& kernels : all_sm90()) all.push_back(std::move(kernels));
    }
    std::set<std::string> seen;
    for (const auto& kernels : all)
      for (auto& i : images(kernels, arch))
        if (seen.insert(i.name).second) wanted.push_back({std::string(arch), std::move(i)});
  }
  cgp::testing::expect_assemble(
      wanted, [](const auto&, const auto& a) { return a.spill_bytes == 0 && !a.serialised; });
}
