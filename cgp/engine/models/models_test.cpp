// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cgp/base/error.h"
#include "cgp/engine/cpu/cpu_backend.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/tiny_model_test_kit.h"

namespace cgp::engine {
namespace {

std::vector<float> logits_of(const TinyModel& m, std::span<const std::int32_t> tokens, BackendOptions o) {
  o.pages = 8;
  const auto backend = make_cpu_backend(build(*m.file), m.file, o);
  const std::vector<std::int32_t> pages{5, 2, 7, 0, 1, 3};
  std::vector<std::int32_t> outputs(tokens.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = std::int32_t(i);
  std::vector<float> logits(tokens.size() * kTinyVocabulary);
  const BatchSequence s{0, std::int32_t(tokens.size()), 0, pages};
  backend->run({tokens, {&s, 1}, outputs}, {logits, {}});
  return logits;
}

/// Of all logits, over the greatest magnitude of one.
double greatest_difference(const std::vector<float>& logits, const std::vector<std::vector<double>>& want) {
  double worst = 0, most = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double w = want[i / kTinyVocabulary][i % kTinyVocabulary];
    if (!std::isfinite(logits[i])) return 1e9;
    worst = std::max(worst, std::abs(logits[i] - w)), most = std::max(most, std::abs(w));
  }
  return worst / most;
}

std::vector<TinyOptions> all_models() {
  std::vector<TinyOptions> out;
  for (const std::string& a : tiny_architectures()) out.push_back({.architecture = a});
  out.push_back({.experts = true});
  for (const char* scaling : {"linear", "yarn", "longrope", "llama3"})
    out.push_back({.rope_scaling = scaling});
  out.push_back({.architecture = "gemma3", .rope_scaling = "linear"});
  return out;
}

TEST(engine_models, LogitsAreThoseInDouble) {
  const auto tokens = tiny_prompt(45, 1);
  for (const TinyOptions& o : all_models()) {
    const TinyModel m = tiny_model(o);
    const auto want = oracle_logits(*m.file, tokens);
    const BackendOptions exact{.page_tokens = 8, .cache = CacheType::f32, .activations = ActivationType::f32};
    EXPECT_LE(greatest_difference(logits_of(m, tokens, exact), want), 2e-5)
        << o.architecture << o.rope_scaling << o.experts;
  }
}

TEST(engine_models, LogitsOfPackedWeightsAreWithinTheirBounds) {
  const auto tokens = tiny_prompt(45, 2);
  for (const std::string& a : tiny_architectures()) {
    const TinyModel m = tiny_model({.architecture = a, .format = "Q8_0"});
    const auto want = oracle_logits(*m.file, tokens);
    EXPECT_LE(greatest_difference(logits_of(m, tokens, {.page_tokens = 8, .cache = CacheType::f32}), want),
              2e-3)
        << a;
    if (a == "qwen3moe") continue;  // a rounding may change the choice of an expert
    EXPECT_LE(greatest_difference(
                  logits_of(m, tokens, {.page_tokens = 8, .activations = ActivationType::int8}), want),
              0.2)
        << a;
  }
}

std::string error_of(const TinyOptions& o) {
  try {
    build(*tiny_model(o).file);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(engine_models, ErrorsNameTheKeyOrTensor) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of({.without = "blk.1.ffn_up.weight"}), HasSubstr("blk.1.ffn_up.weight"));
  EXPECT_THAT(error_of({.without = "llama.block_count"}), HasSubstr("llama.block_count"));
  EXPECT_THAT(error_of({.architecture = "qwen2", .without = "blk.0.attn_k.bias"}),
              HasSubstr("blk.0.attn_k.bias"));
  EXPECT_THAT(error_of({.with = "blk.0.ffn_sub_norm.weight"}), HasSubstr("blk.0.ffn_sub_norm.weight"));
  EXPECT_THAT(error_of({.misshaped = "blk.2.attn_q.weight"}),
              testing::AllOf(HasSubstr("blk.2.attn_q.weight"), HasSubstr("64 x 96"), HasSubstr("64 x 64")));
  EXPECT_THAT(error_of({.rope_scaling = "su"}), HasSubstr("it is su"));
  EXPECT_THAT(error_of({.architecture = "qwen3", .experts = true}), HasSubstr("qwen3 has no experts"));
  EXPECT_THROW(architecture_named("mamba"), Unsupported);
}

/// Any byte of the file may be another one: what loads must run, the rest must say why.
TEST(engine_models, DamagedFilesAreErrorsOrRun) {
  std::mt19937 random(3);
  int ran = 0, refused = 0;
  for (const std::string& a : tiny_architectures()) {
    const std::string whole = tiny_model({.architecture = a, .format = "F16"}).bytes;
    const std::size_t header = whole.size() - 4096 > 6000 ? 6000 : whole.size();
    for (int i = 0; i < 60; ++i) {
      std::string damaged = whole;
      for (int n = 1 + int(random() % 3); n > 0; --n) {
        char& byte = damaged[random() % header];
        byte = random() % 2 ? char(random()) : char(byte ^ (1 << random() % 8));
      }
      try {
        const auto file = std::make_shared<const model::Gguf>(
            model::Gguf::parse(std::as_bytes(std::span(damaged)), "damaged.gguf"));
        Program program = build(*file);
        if (program.steps.size() > 1000) continue;
        const BackendOptions o{
            .pages = 2, .page_tokens = 8, .max_rows = 4, .max_sequences = 1, .max_outputs = 1};
        if (cpu_memory(program, *file, o).total() > 100 << 20) continue;
        const auto backend = make_cpu_backend(std::move(program), file, o);
        const std::vector<std::int32_t> tokens{1, 2}, pages{0}, outputs{1};
        std::vector<std::int32_t> greedy(1);
        const BatchSequence s{0, 2, 0, pages};
        backend->run({tokens, {&s, 1}, outputs}, {{}, greedy});
        ++ran;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(ran, 20);
  EXPECT_GT(refused, 100);
}

TEST(engine_models, ProgramsAreRefusedWithTheirReason) {
  using testing::HasSubstr;
  const Program good = build(*tiny_model({}).file);
  EXPECT_EQ(reject(good), "");
  EXPECT_THAT(text_of(good), HasSubstr("normed[64] = rms_norm residual[64] blk.0.attn_norm.weight\n"));
  const auto broken = [&](auto change) {
    Program p = good;
    change(p);
    return reject(p);
  };
  EXPECT_THAT(broken([](Program& p) { p.steps.erase(p.steps.begin()); }),
              HasSubstr("residual is read before it is written"));
  EXPECT_THAT(broken([](Program& p) { p.weights[1].cols = 63; }),
              HasSubstr("blk.0.attn_norm.weight is 1 x 63"));
  EXPECT_THAT(broken([](Program& p) { p.logits = 0; }), HasSubstr("no outputs"));
  EXPECT_THAT(broken([](Program& p) { p.kv_heads = 3; }), HasSubstr("layer is one of the cache"));
  EXPECT_THAT(broken([](Program& p) { p.rope_tables.clear(); }), HasSubstr("table of frequencies"));
}

}  // namespace
}  // namespace cgp::engine
