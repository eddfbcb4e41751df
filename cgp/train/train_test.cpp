// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/kernels/optimizer/optimizer_ref.h"
#include "cgp/train/checkpoint.h"
#include "cgp/train/reference_test_kit.h"
#include "cgp/train/token_batches.h"
#include "cgp/train/trainer.h"

namespace cgp::train {
namespace {

/// One for all tests: kernels are built once.
const runtime::Device& emulator() {
  static const auto device = runtime::Device::open("emu:sm_80");
  return device;
}
TransformerShape tiny(Family f) {
  TransformerShape s{
      .family = f, .layers = 2, .width = 16, .heads = 4, .hidden = 24, .vocab = 11, .positions = 6};
  if (f == Family::llama) s.kv_heads = 2, s.tied = false;
  return s.checked();
}
TrainOptions tiny_options() {
  TrainOptions o;
  o.batch = 2, o.sequence = 5;
  return o;
}
std::vector<int> tokens(std::size_t n, std::uint64_t seed, std::uint64_t vocab = 11) {
  SplitMix64 random(seed);
  std::vector<int> t(n);
  for (int& v : t) v = int(random.next() % vocab);
  return t;
}
/// First values far from the ones that hide mistakes: no bias is 0, no norm 1.
void scatter(Trainer& t) {
  SplitMix64 random(5);
  for (std::size_t i = 0; i < t.parameters().size(); ++i) {
    auto w = t.weight(i);
    const float factor = t.parameters()[i].deviation > 0 ? 8 : 1;
    for (float& v : w) v = v * factor + float(random.uniform(-0.1, 0.1));
    t.set_weight(i, w);
  }
}
reference::Weights<double> weights_of(const Trainer& t) {
  reference::Weights<double> w;
  for (std::size_t i = 0; i < t.parameters().size(); ++i) {
    const auto v = t.weight(i);
    w[t.parameters()[i].name].assign(v.begin(), v.end());
  }
  return w;
}
double largest(const std::vector<double>& v) {
  double most = 0;
  for (double x : v) most = std::max(most, std::fabs(x));
  return most;
}
template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want, double relative,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double bound = relative * largest(want);
  EXPECT_GT(bound, 0) << what;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::fabs(double(got[i]) - want[i]));
  EXPECT_LE(worst, bound) << what;
}

class Families : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(All, Families, testing::Values(Family::gpt2, Family::llama));

TEST_P(Families, GradientsOfTheReferenceAreFiniteDifferences) {
  const auto s = tiny(GetParam());
  Trainer t(emulator(), s, tiny_options(), 1);
  scatter(t);
  const auto w = weights_of(t);
  const auto in = tokens(5, 1), out = tokens(5, 2);
  const auto r = reference::gradients(s, w, in, out, 5);
  const double h = 1e-5;
  for (const auto& [name, g] : r.gradients)
    for (std::size_t i : {std::size_t(0), g.size() / 2}) {
      auto up = w, down = w;
      up[name][i] += h, down[name][i] -= h;
      const double slope =
          (reference::Model<double>{s, up}.loss(in, out) - reference::Model<double>{s, down}.loss(in, out)) /
          (10 * h);
      EXPECT_NEAR(g[i], slope, 1e-7 * (1 + std::fabs(slope))) << name << " " << i;
    }
}

TEST_P(Families, EveryGradientIsTheReferences) {
  const auto s = tiny(GetParam());
  Trainer t(emulator(), s, tiny_options(), 1);
  scatter(t);
  const auto in = tokens(10, 1), out = tokens(10, 2);
  const auto r = reference::gradients(s, weights_of(t), in, out, 5);
  EXPECT_NEAR(t.gradients(in, out), r.loss, 1e-6 * r.loss);
  for (std::size_t i = 0; i < t.parameters().size(); ++i)
    expect_near(t.gradient(i), r.gradients.at(t.parameters()[i].name), 2e-5, t.parameters()[i].name);
}

/// Steps of AdamW with clipping in double.
struct ReferenceTrainer {
  TransformerShape shape;
  TrainOptions options;
  reference::Weights<double> weights;
  std::map<std::string, bool> decays{};
  reference::Weights<kernels::OptimizerElement> states{};
  std::uint32_t steps = 0;

  double step(const std::vector<int>& in, const std::vector<int>& out, double rate, double& norm) {
    const auto r = reference::gradients(shape, weights, in, out, options.sequence);
    norm = 0;
    for (const auto& [name, g] : r.gradients)
      for (double x : g) norm += x * x;
    norm = std::sqrt(norm);
    const double factor = std::min(1.0, options.max_norm / (norm + 1e-6));
    ++steps;
    for (auto& [name, w] : weights) {
      kernels::OptimizerGroup group{rate, options.beta1, options.beta2, options.eps,
                                    decays.at(name) ? options.weight_decay : 0.0};
      auto& state = states[name];
      state.resize(w.size());
      for (std::size_t i = 0; i < w.size(); ++i) {
        state[i].w = w[i];
        state[i] = kernels::optimizer_ref(kernels::OptimizerRule::adamw, group, state[i],
                                          r.gradients.at(name)[i] * factor, steps);
        w[i] = state[i].w;
      }
    }
    return r.loss;
  }
};

TEST_P(Families, TenStepsAreTheReferencesStepByStep) {
  const auto s = tiny(GetParam());
  TrainOptions o = tiny_options();
  // A gradient that is 0 but for rounding (of the bias of k) must not become a step: eps is above the rounding.
  if (GetParam() == Family::llama) o.batch = 1, o.micro_batches = 2;
  o.max_norm = 0.5, o.eps = 1e-4, o.weight_decay = 0.1;
  const Schedule schedule{.peak = 0.02, .floor = 0.002, .warmup = 3, .steps = 10};
  Trainer t(emulator(), s, o, 1);
  scatter(t);
  ReferenceTrainer want{s, o, weights_of(t)};
  for (const auto& p : t.parameters()) want.decays[p.name] = p.shape.size() == 2;
  for (std::uint64_t step = 0; step < 10; ++step) {
    SCOPED_TRACE(step);
    const auto in = tokens(10, step), out = tokens(10, step + 100);
    const auto got = t.step(in, out, schedule.rate(step));
    double norm = 0;
    const double loss = want.step(in, out, schedule.rate(step), norm);
    EXPECT_NEAR(got.loss, loss, 2e-6 * loss);
    EXPECT_NEAR(got.gradient_norm, norm, 2e-5 * norm);
    EXPECT_GT(norm, o.max_norm) << "the test is to clip";
    for (std::size_t i = 0; i < t.parameters().size(); ++i)
      expect_near(t.weight(i), want.weights.at(t.parameters()[i].name), 2e-5, t.parameters()[i].name);
  }
  EXPECT_EQ(t.steps(), 10u);
}

std::vector<std::vector<float>> all_weights(const Trainer& t) {
  std::vector<std::vector<float>> w;
  for (std::size_t i = 0; i < t.parameters().size(); ++i) w.push_back(t.weight(i));
  return w;
}

TEST_P(Families, CheckpointedLayersGiveTheSameBits) {
  auto o = tiny_options();
  const auto in = tokens(10, 1), out = tokens(10, 2);
  std::vector<std::vector<float>> gradients[2];
  std::uint64_t bytes[2];
  for (int kept = 0; kept < 2; ++kept) {
    o.checkpoint_layers = kept == 0;
    Trainer t(emulator(), tiny(GetParam()), o, 1);
    scatter(t);
    t.gradients(in, out);
    for (std::size_t i = 0; i < t.parameters().size(); ++i) gradients[kept].push_back(t.gradient(i));
    bytes[kept] = t.memory_bytes();
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_LT(bytes[0], bytes[1]);
}

TEST_P(Families, Bf16StepsOnMastersInF32) {
  const auto s = tiny(GetParam());
  auto o = tiny_options();
  o.type = DType::bf16;
  Trainer t(emulator(), s, o, 1);
  scatter(t);
  const auto in = tokens(10, 1), out = tokens(10, 2);
  auto w = weights_of(t);
  for (auto& [name, v] : w)
    for (double& x : v) x = double(float(bfloat16(float(x))));
  const auto r = reference::gradients(s, w, in, out, 5);
  EXPECT_NEAR(t.gradients(in, out), r.loss, 0.01 * r.loss);
  for (std::size_t i = 0; i < t.parameters().size(); ++i)
    expect_near(t.gradient(i), r.gradients.at(t.parameters()[i].name), 0.05, t.parameters()[i].name);
  // A step below half a unit of bf16 is kept in the master.
  const auto before = t.weight(0);
  t.step(in, out, 1e-6);
  EXPECT_NE(t.weight(0), before);
}

TEST(Trainer, EvaluationIsTheLossAndChangesNothing) {
  Trainer t(emulator(), tiny(Family::gpt2), tiny_options(), 1);
  scatter(t);
  const auto in = tokens(10, 1), out = tokens(10, 2);
  const double loss = t.gradients(in, out);
  const auto gradient = t.gradient(0);
  EXPECT_EQ(t.evaluate(in, out), loss);
  EXPECT_EQ(t.gradient(0), gradient);
  EXPECT_EQ(t.steps(), 0u);
}

TEST(Trainer, FastProductsRoundToTf32) {
  auto o = tiny_options();
  o.fast_f32 = true;
  Trainer fast(emulator(), tiny(Family::gpt2), o, 1),
      exact(emulator(), tiny(Family::gpt2), tiny_options(), 1);
  scatter(fast), scatter(exact);
  const auto in = tokens(10, 1), out = tokens(10, 2);
  const double loss = exact.gradients(in, out);
  EXPECT_NEAR(fast.gradients(in, out), loss, 0.005 * loss);
  const auto g = exact.gradient(0);
  EXPECT_NE(fast.gradient(0), g);
  expect_near(fast.gradient(0), {g.begin(), g.end()}, 0.01, "wte.weight");
}

TEST(Trainer, AResumedRunGivesTheSameBits) {
  auto o = tiny_options();
  o.type = DType::bf16;
  const std::string path = testing::TempDir() + "/run.safetensors";
  TokenBatches data(tokens(40, 3), 5, 7);
  Trainer whole(emulator(), tiny(Family::gpt2), o, 1);
  const auto step = [&](Trainer& t, std::uint64_t n) {
    const auto b = data.batch(n, 2);
    return t.step(b.inputs, b.targets, 0.01).loss;
  };
  step(whole, 0), step(whole, 1);
  save_checkpoint(path, whole, {{"text", "of mine"}});
  const double third = step(whole, 2);
  Trainer resumed(emulator(), tiny(Family::gpt2), o, 99);
  EXPECT_EQ(load_checkpoint(path, resumed), (std::map<std::string, std::string>{{"text", "of mine"}}));
  EXPECT_EQ(resumed.steps(), 2u);
  EXPECT_EQ(step(resumed, resumed.steps()), third);
  EXPECT_EQ(all_weights(resumed), all_weights(whole));
}

TEST(Trainer, WeightsGoToHuggingFacesNamesAndBack) {
  const auto& device = emulator();
  const std::string path = testing::TempDir() + "/weights.safetensors";
  Trainer a(device, tiny(Family::llama), tiny_options(), 1),
      b(device, tiny(Family::llama), tiny_options(), 2);
  EXPECT_NE(all_weights(a), all_weights(b));
  save_weights(path, a);
  load_weights(path, b);
  EXPECT_EQ(all_weights(a), all_weights(b));
  Trainer other(device, tiny(Family::gpt2), tiny_options(), 1);
  try {
    load_weights(path, other);
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("wte.weight"));
  }
  EXPECT_THROW(load_checkpoint(path, b), ArgumentError);
}

TEST(Trainer, RefusesWhatItCannotTrain) {
  const auto& device = emulator();
  auto s = tiny(Family::gpt2);
  auto o = tiny_options();
  Trainer t(device, s, o);
  EXPECT_THROW(t.step(tokens(9, 1), tokens(9, 1), 0.1), ArgumentError);
  EXPECT_THROW(t.step(tokens(10, 1), std::vector<int>(10, 11), 0.1), ArgumentError);
  EXPECT_THROW(t.set_weight(0, std::vector<float>(3)), ArgumentError);
  o.sequence = 7;
  EXPECT_THROW(Trainer(device, s, o), ArgumentError);
  o = tiny_options(), o.graph = true;
  EXPECT_THROW(Trainer(device, s, o), Unsupported);
  s.heads = 3;
  EXPECT_THROW(s.checked(), ArgumentError);
}

TEST(Trainer, ANaNSkipsTheStep) {
  Trainer t(emulator(), tiny(Family::gpt2), tiny_options(), 1);
  auto w = t.weight(1);
  w[0] = NAN;
  t.set_weight(1, w);
  const auto before = t.weight(0);
  const auto r = t.step(tokens(10, 1), tokens(10, 2), 0.1);
  EXPECT_TRUE(r.skipped);
  EXPECT_EQ(t.weight(0), before);
  EXPECT_EQ(t.steps(), 0u);
}

TEST(TokenBatches, AnEpochVisitsEachWindowOnce) {
  std::vector<std::int32_t> counted(41);
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = std::int32_t(i);
  TokenBatches data(counted, 5, 7);
  EXPECT_EQ(data.windows(), 8u);
  std::vector<std::int32_t> first, second;
  for (std::uint64_t step = 0; step < 8; ++step) {
    const auto b = data.batch(step, 2);
    for (std::size_t i = 0; i < b.inputs.size(); ++i) EXPECT_EQ(b.targets[i], b.inputs[i] + 1);
    for (std::size_t i : {0, 5}) (step < 4 ? first : second).push_back(b.inputs[i]);
  }
  EXPECT_NE(first, second);
  EXPECT_THAT(first, testing::UnorderedElementsAre(0, 5, 10, 15, 20, 25, 30, 35));
  EXPECT_THAT(second, testing::UnorderedElementsAre(0, 5, 10, 15, 20, 25, 30, 35));
  EXPECT_EQ(TokenBatches(counted, 5, 7).batch(5, 2).inputs, data.batch(5, 2).inputs);
  EXPECT_NE(TokenBatches(counted, 5, 8).batch(5, 2).inputs, data.batch(5, 2).inputs);
  EXPECT_THROW(TokenBatches(counted, 41, 7), ArgumentError);
}

TEST(Schedule, WarmsUpAndFollowsACosine) {
  const Schedule s{.peak = 1, .floor = 0.1, .warmup = 4, .steps = 12};
  EXPECT_DOUBLE_EQ(s.rate(0), 0.25);
  EXPECT_DOUBLE_EQ(s.rate(3), 1);
  EXPECT_DOUBLE_EQ(s.rate(8), 0.55);
  EXPECT_DOUBLE_EQ(s.rate(12), 0.1);
  EXPECT_DOUBLE_EQ((Schedule{.peak = 1}).rate(1000), 1);
}

TEST(Transformer, Gpt2Has124MillionParameters) {
  const auto s = gpt2_124m().checked();
  std::uint64_t n = 0;
  for (const auto& p : parameters(s)) n += p.elements();
  EXPECT_EQ(n, 124439808u);
  EXPECT_NEAR(training_flops_per_token(s, 1024), 7.98e8, 0.005e8);
}

}  // namespace
}  // namespace cgp::train
