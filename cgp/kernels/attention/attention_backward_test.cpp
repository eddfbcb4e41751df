// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_backward_testing.h"
#include "cgp/kernels/attention/attention_formula.h"
#include "cgp/kernels/attention/attention_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::kernels::attention_testing;

namespace {

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
  check(device, small(DType::bf16, more + 70, more + 83, 96, 80), way);
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
  check(device, p, way);  // whole tiles of keys lie behind a length
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
// Modifications whose derivative is recorded from the lambda itself, or given beside it; the oracle's is a
// difference quotient in double.
struct Modified {
  ScoreModification of;
  decltype(AttentionInputs::modify) on_host;
};
Modified capped_by_hand() {
  const auto apply = [](const AttentionScore& s) {
    const auto e = dsl::ex2<dsl::approx>(s.score * (2 * 1.4426950408889634f / 1.5f));
    return dsl::fma(dsl::rcp<dsl::rn>(e + 1.0f), -2.0f, dsl::Val<dsl::f32>(1.0f)) * 1.5f;
  };
  return {{"capped_by_hand", apply, {}},
          [](double s, auto, auto, auto, auto) { return 1.5 * std::tanh(s / 1.5); }};
}
Modified near_and_even() {  // adds, and masks: the derivative is 1
  const auto apply = [](const AttentionScore& s) {
    const auto apart = dsl::max(s.query, s.key) - dsl::min(s.query, s.key);
    return dsl::select((s.query + s.key) % 5u != 0u, s.score - dsl::to<dsl::f32>(apart) * 0.03125f,
                       dsl::Val<dsl::f32>(-INFINITY));
  };
  return {{"near_and_even", apply, {}}, [](double s, auto, auto, std::uint64_t i, std::uint64_t j) {
            return (i + j) % 5 ? s - 0.03125 * std::fabs(double(i) - double(j)) : -INFINITY;
          }};
}
Modified bent() {
  const auto apply = [](const AttentionScore& s) { return s.score + s.score * s.score * 0.05f; };
  const auto gradient = [](const AttentionScore& s, const dsl::Val<dsl::f32>& upstream) {
    return upstream * dsl::fma(s.score, 0.1f, dsl::Val<dsl::f32>(1.0f));
  };
  return {{"bent", apply, gradient}, [](double s, auto, auto, auto, auto) { return s + 0.05 * s * s; }};
}
void modified(const runtime::Device& device, AttentionProblem p, const Modified& m, const Way& way) {
  p.batch = 1, p.modify = m.of;
  check(device, p, way, m.on_host);
}
void every_modified(const runtime::Device& device, std::uint64_t more, const Way& way) {
  auto p = problem(DType::bf16, more + 70, more + 83, 64, 64);
  modified(device, p, capped_by_hand(), way);
  p.causal = true;
  modified(device, p, near_and_even(), way);
  p = problem(DType::f16, more + 40, more + 150, 128, 104), p.window_left = 60, p.window_right = 2;
  modified(device, p, capped_by_hand(), way);
  p = problem(DType::bf16, more + 75, more + 83, 128, 128);
  modified(device, p, bent(), way);
  p = problem(DType::bf16, more + 40, more + 70, 192, 128), p.causal = true;
  modified(device, p, capped_by_hand(), way);
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
    {.order = AddOrder::any, .persistent = false, .rounded = true},
    {.partial = 1, .order = AddOrder::any, .head_swizzle = 2},
    {.partial = 1, .order = AddOrder::ordered, .blocks = 1},
    {.partial = 1, .order = AddOrder::first_stores},
    {.partial = 1, .order = AddOrder::any, .split = true, .splits = 2},
    {.order = AddOrder::ordered, .split = true, .splits = 3},
    {.partial = 1, .order = AddOrder::first_stores, .persistent = false, .split = true, .splits = 16}};
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

TEST(attention_backward, modified_scores_have_their_gradients) {
  const auto device = runtime::Device::open("emu:sm_90a");
  modified(device, problem(DType::f32, 9, 40, 16, 24), capped_by_hand(), AttentionKind::simt);
  modified(device, problem(DType::f32, 9, 20, 16, 24), near_and_even(), AttentionKind::simt);
  modified(device, problem(DType::bf16, 20, 40, 32, 32), bent(), AttentionKind::mma);
  modified(device, problem(DType::bf16, 20, 40, 32, 32), capped_by_hand(), AttentionKind::mma);
}

// Text instead of a lambda.
TEST(attention_backward, formulas_have_their_gradients) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const Modified all[] = {
      {score_formula("1.5 * tanh(score / 1.5)"), capped_by_hand().on_host},
      {score_formula("where((q + k) % 5 != 0, score - 0.03125 * abs(q - k), -inf)"), near_and_even().on_host},
      {score_formula(
           "max(score, -0.25) + score * exp(-score * score) / (1 + 2*h) - min(sigmoid(score), 0.6)"),
       [](double s, auto, std::uint64_t h, auto, auto) {
         return std::max(s, -0.25) + s * std::exp(-s * s) / (1 + 2 * double(h)) -
                std::min(1 / (1 + std::exp(-s)), 0.6);
       }},
      {score_formula("where(not (q // 4 == k // 4 or k < 3) and 2 > 1, sin(score) + cos(floor(score)) - "
                     "sqrt(b + 2.25), score)"),
       [](double s, std::uint64_t b, auto, std::uint64_t i, std::uint64_t j) {
         return i / 4 == j / 4 || j < 3 ? s
                                        : std::sin(s) + std::cos(std::floor(s)) - std::sqrt(double(b) + 2.25);
       }}};
  for (const auto& m : all) modified(device, problem(DType::f32, 9, 20, 16, 24), m, AttentionKind::simt);
  modified(device, problem(DType::bf16, 20, 40, 32, 32), all[1], AttentionKind::mma);
  modified(device, problem(DType::bf16, 70, 83, 64, 64), all[2], AttentionKind::sm90);
}
TEST(attention_backward_sm90, modified_scores_have_their_gradients) {
  every_modified(runtime::Device::open("emu:sm_90a"), 0, AttentionKind::sm90);
}

namespace {

void same_bits_under_every_policy(const AttentionProblem& p) {
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

TEST(attention_backward_sm90, under_every_policy_with_the_same_bits) {
  auto p = problem(DType::bf16, 150, 270, 64, 64);
  p.causal = true, p.batch = 1;
  same_bits_under_every_policy(p);
  p.packed = true, p.batch = 3, p.n_q = 130, p.n_kv = 140;
  same_bits_under_every_policy(p);
  p = problem(DType::bf16, 40, 70, 64, 64), p.batch = 1, p.soft_cap = 1.5f;
  same_bits_under_every_policy(p);
}

TEST(attention_backward_sm90, wide_under_every_policy_with_the_same_bits) {
  auto p = problem(DType::bf16, 150, 140, 192, 128);
  p.causal = true, p.batch = 1;
  same_bits_under_every_policy(p);
  p = problem(DType::bf16, 40, 70, 192, 128), p.batch = 2, p.packed = true;
  same_bits_under_every_policy(p);
}

TEST(attention_backward_sm90, tunings) {
  auto p = problem(DType::f16, 140, 150, 128, 128);
  p.batch = 1, p.causal = true;
  for (const auto& t : kSm90Tunings) check(runtime::Device::open("emu:sm_90a"), p, t);
  p = problem(DType::bf16, 140, 150, 192, 128), p.batch = 1, p.causal = true;
  // Blocks that are not persistent, and one that makes all.
  for (int i : {0, 2}) check(runtime::Device::open("emu:sm_90a"), p, kSm90Tunings[i]);
}

TEST(attention_backward_sm90, blocks_that_share_queries) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto with = [](int splits, AddOrder order) {
    return AttentionBackwardSm90Tuning{
        .partial = order == AddOrder::ordered ? 2 : 1, .order = order, .split = true, .splits = splits};
  };
  // Grouped heads; splits that end inside a tile's heads; more than a late tile of keys has tiles of queries.
  auto p = problem(DType::bf16, 200, 140, 128, 104);
  p.batch = 1, p.heads_q = 6, p.heads_kv = 2, p.causal = true;
  const auto in_order = with(5, AddOrder::ordered), stored = with(5, AddOrder::first_stores);
  check(device, p, in_order), check(device, p, stored);
  p = problem(DType::f16, 300, 150, 40, 64), p.causal = true;
  check(device, p, in_order);
  p.causal = false, p.window_left = 40, p.window_right = 3;
  check(device, p, in_order), check(device, p, with(2, AddOrder::any));
  p = problem(DType::bf16, 140, 300, 128, 128), p.batch = 3, p.key_lengths = p.causal = true;
  check(device, p, in_order);
  p = problem(DType::bf16, 130, 83, 64, 64), p.soft_cap = 1.5f;
  check(device, p, with(3, AddOrder::any));
  p = problem(DType::bf16, 75, 140, 200, 256), p.batch = 1, p.heads_q = 6, p.heads_kv = 2, p.causal = true;
  check(device, p, with(3, AddOrder::any)), check(device, p, with(2, AddOrder::any));
  p.causal = false, p.key_lengths = true, p.batch = 2;
  check(device, p, with(2, AddOrder::any));
}

// Which way is taken is a matter of the problem: one head of keys does not fill the SMs, 64 do.
TEST(attention_backward_sm90, splits_where_tiles_are_few) {
  auto p = problem(DType::bf16, 6000, 6000, 128, 128);
  p.batch = 1, p.heads_q = 8, p.heads_kv = 1;
  EXPECT_GT(tune_attention_backward(p, true).splits, 1);
  p.heads_q = p.heads_kv = 64, p.n_q = p.n_kv = 4224;  // 33 tiles of 64 heads are 16 for each of 132 SMs
  EXPECT_EQ(tune_attention_backward(p, true).splits, 1);
  EXPECT_FALSE(tune_attention_backward(p, true).split);
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
  p.soft_cap = 0, p.modify = near_and_even().of;
  EXPECT_NE(why(p, 256).find("bounds of packed sequences beside a score modification"), std::string::npos);
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
    EXPECT_EQ(why(p, 256), "");
    p.alibi = true;
    EXPECT_NE(why(p, 256).find("a score modification beside"), std::string::npos);
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

namespace {

// Scores, bounds and sequences in every combination that sm90 takes, larger than what the oracle has time
// for: beside simt, which was compared with it, and twice with the same bits.
struct ScoreTerms {
  const char* what;
  float cap;
  bool alibi;
  AttentionMask mask;
};
constexpr ScoreTerms kScoreTerms[] = {
    {"plain", 0, false, AttentionMask::none},   {"cap", 1.5f, false, AttentionMask::none},
    {"alibi", 0, true, AttentionMask::none},    {"cap_alibi", 1.5f, true, AttentionMask::none},
    {"add", 0, false, AttentionMask::additive}, {"bool", 0, false, AttentionMask::boolean}};
constexpr std::uint64_t kWidths[] = {64, 128, 192, 256};

void as_near(const HostArray& a, const HostArray& b, const AttentionProblem& p, const std::string& what) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    apart += (a.at(i) - b.at(i)) * (a.at(i) - b.at(i)), size += b.at(i) * b.at(i);
  EXPECT_LE(std::sqrt(apart), 2 * (4 * unit_roundoff(p.type) + 1e-6) * std::sqrt(size)) << what;
}
void agree(const runtime::Device& device, const AttentionProblem& problem, bool any_order,
           const std::string& what) {
  if (!reject(problem).empty()) return;
  OnDevice on(device, problem);
  if (!on.not_sm90().empty()) return;
  const auto& p = on.problem();
  const auto in_order = on.addresses(true), any = on.addresses(true, false);
  const auto c = on.selected(in_order);
  EXPECT_EQ(c.kind, AttentionKind::sm90) << what;
  const auto got = on.run(c, in_order), again = on.run(c, in_order);
  EXPECT_TRUE(got.q.bytes == again.q.bytes && got.k.bytes == again.k.bytes && got.v.bytes == again.v.bytes)
      << what << " twice";
  const auto simt =
      on.run(choose_attention_backward(AttentionKind::simt, p, device.info().cc()), on.addresses(false));
  as_near(got.q, simt.q, p, what + " d_q"), as_near(got.k, simt.k, p, what + " d_k");
  as_near(got.v, simt.v, p, what + " d_v");
  if (any_order) as_near(on.run(on.selected(any), any).q, simt.q, p, what + " d_q in any order");
}

class AttentionBackwardModified : public ::testing::TestWithParam<int> {};

}  // namespace

TEST_P(AttentionBackwardModified, agrees_with_simt_on_a_gpu) try {
  const auto device = runtime::Device::open("cuda:0");
  if (device.info().arch != "sm_90a") GTEST_SKIP() << "needs sm_90a, this is " << device.info().arch;
  const int shape = GetParam() / 4, width = GetParam() % 4;
  const ScoreTerms& terms = kScoreTerms[shape];
  const std::uint64_t d = kWidths[width];
  for (int layout = 0; layout < 3; ++layout)
    for (bool causal : {true, false}) {
      // Both types, d_v below d_qk, more than 1024 keys and fewer: the order of sums differs.
      const int count = shape + width + 2 * layout + causal;
      auto p = problem(count % 2 ? DType::f16 : DType::bf16, 777, count % 4 < 2 ? 1003 : 1101, d,
                       d == 192 ? 128 : d - 8 * std::uint64_t(count % 3));
      p.heads_q = 4, p.heads_kv = 2, p.batch = layout ? 3 : 2;
      p.packed = layout == 1, p.key_lengths = layout == 2, p.causal = causal;
      if (!causal && count % 4 < 2) p.window_left = 200, p.window_right = 30;
      p.soft_cap = terms.cap, p.alibi = terms.alibi, p.mask = terms.mask;
      agree(device, p, d <= 128 && causal,
            text::cat(terms.what, " d ", d, " layout ", layout,
                      causal               ? " causal"
                      : p.window_left >= 0 ? " window"
                                           : ""));
    }
} catch (const Unsupported& e) {
  GTEST_SKIP() << e.what();
}
INSTANTIATE_TEST_SUITE_P(scores_and_widths, AttentionBackwardModified, ::testing::Range(0, 24));

TEST(attention_backward_sm90, sequences_right_on_a_gpu) { right_on_a_gpu(every_sequence, 200, {2, 3}); }
TEST(attention_backward_sm90, wide_sequences_right_on_a_gpu) {
  right_on_a_gpu(every_wide_sequence, 200, {0, 2});
}
TEST(attention_backward_sm90, modified_right_on_a_gpu) { right_on_a_gpu(every_modified, 200, {0, 3}); }
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
  const auto add = [&](DType t, std::uint64_t d, bool right, bool left, bool ordered) {
    auto p = problem(t, 9, 9, d, d == 192 ? 128 : d);
    p.causal = right, p.window_left = left ? 3 : -1;
    all.push_back(choose_attention_backward_sm90(p, tune_attention_backward(p, ordered)).kernels);
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
  const auto modified = [&](std::uint64_t d, const std::function<void(AttentionProblem&)>& set) {
    auto p = problem(DType::bf16, 9, 9, d, d);
    set(p);
    all.push_back(choose_attention_backward_sm90(p, tune_attention_backward(p, d != 64)).kernels);
  };
  modified(64, [](auto& p) { p.soft_cap = 2, p.causal = true, p.window_left = 3; });
  modified(128, [](auto& p) { p.soft_cap = 2, p.packed = p.causal = true; });
  modified(128, [](auto& p) { p.mask = AttentionMask::additive, p.causal = true; });
  modified(256, [](auto& p) { p.causal = p.alibi = true, p.soft_cap = 2, p.window_left = 3; });
  modified(256, [](auto& p) { p.packed = p.causal = true, p.soft_cap = 2; });
  modified(96, [](auto& p) { p.causal = true; });
  const auto few = [&](std::uint64_t d, const std::function<void(AttentionProblem&)>& set) {
    modified(d, [&](auto& p) { p.heads_q = 8, p.n_q = p.n_kv = 999, set(p); });  // blocks share queries
  };
  for (std::uint64_t d : {64, 128, 256}) {
    few(d, [](auto&) {}), few(d, [](auto& p) { p.causal = true; });
    few(d, [](auto& p) { p.causal = true, p.window_left = 3; });
    few(d, [](auto& p) { p.causal = p.alibi = true; });
    few(d, [](auto& p) { p.soft_cap = 2, p.window_right = 3; });
    few(d, [](auto& p) { p.mask = AttentionMask::boolean, p.causal = true; });
    few(d, [](auto& p) { p.mask = AttentionMask::additive; });
    few(d, [](auto& p) { p.key_lengths = p.causal = true; });
    few(d, [](auto& p) { p.key_lengths = true; });
    few(d, [](auto& p) { p.modify = capped_by_hand().of, p.causal = true; });
  }
  modified(64, [](auto& p) { p.modify = near_and_even().of, p.causal = true; });
  for (std::uint64_t d : {128, 256})
    modified(d, [](auto& p) { p.modify = capped_by_hand().of, p.causal = true; });
  return all;
}

}  // namespace

TEST(attention_backward, every_variant_assembles) {
  std::vector<cgp::testing::ArchImage> wanted;
  AttentionFeatures every;
  every.window_right = every.window_left = every.soft_cap = every.alibi = true;
  for (auto [arch, cc] : {std::pair{"sm_80", 80}, {"sm_90a", 90}, {"sm_120a", 120}}) {
    AttentionBackwardChoice simt;
    simt.configs = attention_backward_simt(DType::bf16, every);
    std::vector<std::vector<Variant>> all{built(simt).kernels};
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
