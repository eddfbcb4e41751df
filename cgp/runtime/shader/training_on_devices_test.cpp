// SPDX-License-Identifier: Apache-2.0
// Steps of training on devices that run translated kernels: normalisation, product, SiLU, rotary embedding, attention, cross-entropy,
// the gradients of all of them, AdamW. The losses are those of the emulator, and they fall.
#include <gtest/gtest.h>

#include <set>

#include "cgp/base/error.h"
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/cross_entropy/cross_entropy.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/optimizer/adamw.h"
#include "cgp/kernels/rope/rope.h"
#include "cgp/kernels/vecadd/vecadd.h"

namespace cgp::runtime {
namespace {

constexpr std::uint64_t kTokens = 7, kHeads = 2, kHead = 10, kWidth = kHeads * kHead, kAll = kTokens * kWidth;

std::vector<float> numbers(std::size_t n, float scale, float middle = 0) {
  std::vector<float> v(n);
  std::uint32_t state = 12345;
  for (float& x : v) {
    state = state * 1664525u + 1013904223u;
    x = middle + scale * (float(state >> 8) / float(1 << 23) - 1);
  }
  return v;
}

/// A weight with its gradient and its moments.
struct Trained {
  Trained(const Device& d, const std::vector<float>& start)
      : weight(d.upload<float>(start)),
        gradient(d.zeros<float>(start.size())),
        m(d.zeros<float>(start.size())),
        v(d.zeros<float>(start.size())) {}
  void step(Stream& s, std::uint64_t number) {
    kernels::AdamW a;
    a.weight = weight, a.m = m, a.v = v, a.gradient = gradient;
    a.count = weight.size(), a.rate = 0.02, a.step = number;
    kernels::adamw(s, a);
  }
  Buffer<float> weight, gradient, m, v;
};

std::vector<float> train(const Device& d, int steps) {
  using namespace kernels;
  Stream s(d);
  const auto x = d.upload<float>(numbers(kAll, 1));
  std::vector<std::int32_t> labels(kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) labels[i] = std::int32_t(i * 5 % kWidth);
  const auto targets = d.upload<std::int32_t>(labels);
  Trained w(d, numbers(kWidth * kWidth, 0.4f)), gamma(d, numbers(kWidth, 0.1f, 1));
  auto buffer = [&](std::size_t n = kAll) { return d.zeros<float>(n); };
  auto normed = buffer(), rstd = buffer(kTokens), product = buffer(), active = buffer(), rotated = buffer(),
       out = buffer(), lse = buffer(kHeads * kTokens), losses = buffer(kTokens), scale = buffer(1),
       loss = buffer(1), d_out = buffer(), delta = buffer(kHeads * kTokens), d_q = buffer(), d_k = buffer(),
       d_v = buffer(), d_rotated = buffer(), d_back = buffer(), d_active = buffer(), d_product = buffer(),
       d_normed = buffer(), d_x = buffer();
  AttentionProblem p;
  p.type = DType::f32, p.heads_q = kHeads, p.n_q = p.n_kv = kTokens, p.d_qk = kHead, p.causal = true;
  p.q = p.k = p.v = p.o = {kAll, kHead, kWidth};
  AttentionAddresses at;
  at.q = at.k = rotated.address(), at.v = active.address(), at.o = out.address(), at.lse = lse.address();
  Rope rope_forward;
  rope_forward.x = active, rope_forward.y = rotated;
  rope_forward.tokens = kTokens, rope_forward.heads = kHeads, rope_forward.dim = kHead;
  Rope rope_back = rope_forward;
  rope_back.x = d_rotated, rope_back.y = d_back, rope_back.inverse = true;
  Norm norm;
  norm.x = x, norm.y = normed, norm.weight = gamma.weight, norm.rstd = rstd, norm.rows = kTokens,
  norm.cols = kWidth;
  NormBackward norm_back;
  norm_back.x = x, norm_back.dy = d_normed, norm_back.weight = gamma.weight, norm_back.rstd = rstd;
  norm_back.dx = d_x, norm_back.dweight = gamma.gradient, norm_back.rows = kTokens, norm_back.cols = kWidth;
  auto workspace = buffer(std::max<std::uint64_t>(1, norm_backward_workspace(norm_back, false, d.info())));
  norm_back.workspace = workspace;
  GemmProblem g;
  g.type = DType::f32, g.precision = GemmPrecision::strict;
  const auto multiply = [&](bool ta, bool tb, std::uint64_t m, std::uint64_t n, std::uint64_t k,
                            const Buffer<float>& a, const Buffer<float>& b, Buffer<float>& c) {
    g.trans_a = ta, g.trans_b = tb, g.m = m, g.n = n, g.k = k;
    gemm<float>(s, g, a.all(), b.all(), c.all());
  };
  count_targets(s, targets, -100, scale);

  std::vector<float> history;
  for (int step = 1; step <= steps; ++step) {
    rms_norm(s, norm);
    multiply(false, false, kTokens, kWidth, kWidth, normed, w.weight, product);
    activate(s, {.x = product, .y = active, .bias = {}, .rows = kTokens, .cols = kWidth});
    rope(s, rope_forward);
    attention(s, p, at);
    CrossEntropy ce;
    ce.logits = out, ce.targets = targets, ce.loss = losses, ce.dlogits = d_out, ce.scale = scale;
    ce.rows = kTokens, ce.cols = kWidth;
    cross_entropy(s, ce);
    mean_loss(s, losses, targets, -100, scale, loss);

    attention_backward(s, p, at,
                       {.d_o = d_out.address(),
                        .d_q = d_q.address(),
                        .d_k = d_k.address(),
                        .d_v = d_v.address(),
                        .delta = delta.address()});
    vecadd<float>(s, d_q.all(), d_k.all(), d_rotated.all());
    rope(s, rope_back);
    vecadd<float>(s, d_back.all(), d_v.all(), d_active.all());
    activate_backward(
        s, {.x = product, .dy = d_active, .dx = d_product, .bias = {}, .rows = kTokens, .cols = kWidth});
    multiply(true, false, kWidth, kWidth, kTokens, normed, d_product, w.gradient);
    multiply(false, true, kTokens, kWidth, kWidth, d_product, w.weight, d_normed);
    rms_norm_backward(s, norm_back);
    w.step(s, std::uint64_t(step));
    gamma.step(s, std::uint64_t(step));
    history.push_back(0);
    s.download(loss, std::span(&history.back(), 1)).wait();
  }
  return history;
}

TEST(TrainingOnDevices, LossesAreThoseOfTheEmulatorAndFall) {
  std::vector<std::string> specs;
  std::set<DeviceKind> kinds;
  for (const DeviceInfo& i : shader_devices())
    if (kinds.insert(i.kind).second) specs.push_back(i.spec);
  if (specs.empty())
    GTEST_SKIP() << "there is no Vulkan driver (Debian: mesa-vulkan-drivers) and no wgpu-native";
  const auto want = train(Device::open("emu:sm_75"), 4);
  EXPECT_LT(want.back(), want.front() - 0.05f);
  for (const std::string& spec : specs) {
    const auto got = train(Device::open(spec), 4);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << spec << ", step " << i + 1;
  }
}

}  // namespace
}  // namespace cgp::runtime
