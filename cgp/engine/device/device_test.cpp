// SPDX-License-Identifier: Apache-2.0
// The device's backend beside the straight-line program in double and the processor's backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/engine/cpu/cpu_backend.h"
#include "cgp/engine/device/device_backend.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/engine/scheduler/scheduler.h"

namespace cgp::engine {
namespace {

using ::testing::HasSubstr;

/// The emulator, and a GPU where there is one.
std::vector<runtime::Device> devices() {
  std::vector<runtime::Device> all{runtime::Device::open("emu:sm_90a")};
  try {
    all.push_back(runtime::Device::open("cuda:0"));
  } catch (const Unsupported&) {
  }
  return all;
}

/// Architectures and formats of weights; Q8_0 and Q4_0 are packed.
std::vector<TinyOptions> models() {
  return {{.architecture = "llama", .format = "F32"},
          {.architecture = "llama", .format = "Q4_1"},
          {.architecture = "llama", .format = "Q4_0", .rope_scaling = "yarn"},
          {.architecture = "gpt2", .format = "Q8_0"},
          {.architecture = "qwen2", .format = "Q8_0"},
          {.architecture = "qwen3", .format = "Q8_0"},
          {.architecture = "gemma2", .format = "Q8_0"},
          {.architecture = "gemma3", .format = "Q8_0"},
          {.architecture = "phi3", .format = "Q8_0"},
          {.architecture = "qwen3moe", .format = "F32"},
          {.architecture = "llama", .format = "Q8_0", .experts = true}};
}

std::unique_ptr<Backend> backend_of(const TinyModel& m, const runtime::Device& device,
                                    BackendOptions o = {}) {
  o.pages = 24, o.page_tokens = 16, o.max_rows = 64, o.max_sequences = 4, o.max_outputs = 64;
  return make_device_backend(build(*m.file), m.file, device, o);
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

// A prompt in chunks of 20, 17 and 3 rows, then one token at a time: every way that attention goes.
TEST(engine_device, LogitsAreThoseInDouble) {
  const auto tokens = tiny_prompt(42, 1);
  const std::vector<std::int32_t> pages{5, 2, 7};
  for (const auto& device : devices())
    for (const TinyOptions& o : models()) {
      const TinyModel m = tiny_model(o);
      const auto backend = backend_of(m, device);
      std::vector<float> logits(tokens.size() * kTinyVocabulary);
      std::vector<std::int32_t> greedy(tokens.size());
      for (std::int32_t first = 0, rows; first < std::int32_t(tokens.size()); first += rows) {
        rows = first == 0 ? 20 : first == 20 ? 17 : first == 37 ? 3 : 1;
        std::vector<std::int32_t> outputs;
        for (std::int32_t i = 0; i < rows; ++i) outputs.push_back(i);
        const BatchSequence s{0, rows, first, pages};
        const auto part = [&](auto& all, std::size_t width) {
          return std::span(all).subspan(std::size_t(first) * width, std::size_t(rows) * width);
        };
        backend->run({std::span(tokens).subspan(std::size_t(first), std::size_t(rows)), {&s, 1}, outputs},
                     {part(logits, kTinyVocabulary), part(greedy, 1)});
      }
      const auto want = oracle_logits(*m.file, tokens);
      EXPECT_LE(greatest_difference(logits, want), 1e-2)
          << device.info().name << " " << o.architecture << o.rope_scaling << (o.experts ? " experts " : " ")
          << o.format;
      for (std::size_t i = 0; i < greedy.size(); ++i) {
        const auto row = logits.begin() + std::ptrdiff_t(i * kTinyVocabulary);
        EXPECT_EQ(greedy[i], std::max_element(row, row + kTinyVocabulary) - row);
      }
    }
}

// A router whose experts are nearly alike may choose another one in f16 than in double: from there on a sequence goes another way.
// Up to there it is as close as any model.
TEST(engine_device, ExpertsAreOthersOnlyWhereTheyAreNearlyAlike) {
  const std::vector<std::int32_t> pages{0, 1, 2};
  const TinyModel m = tiny_model({.architecture = "qwen3moe", .format = "Q8_0"});
  for (const auto& device : devices()) {
    const auto backend = backend_of(m, device);
    std::size_t compared = 0;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      const auto tokens = tiny_prompt(16, seed);
      std::vector<std::int32_t> outputs(tokens.size());
      std::iota(outputs.begin(), outputs.end(), 0);
      std::vector<float> logits(tokens.size() * kTinyVocabulary);
      const BatchSequence s{0, std::int32_t(tokens.size()), 0, pages};
      backend->run({tokens, {&s, 1}, outputs}, {logits, {}});
      std::vector<double> margins;
      auto want = oracle_logits(*m.file, tokens, &margins);
      const auto tie = std::find_if(margins.begin(), margins.end(), [](double v) { return v < 0.01; });
      const auto rows = std::size_t(tie - margins.begin());
      logits.resize(rows * kTinyVocabulary), want.resize(rows);
      compared += rows;
      if (rows == 0) continue;
      EXPECT_LE(greatest_difference(logits, want), 1e-2) << device.info().name << seed;
    }
    EXPECT_GE(compared, 8u) << device.info().name;
  }
}

// Keys and values of three bits of mantissa.
TEST(engine_device, ACacheOfEightBits) {
  const auto tokens = tiny_prompt(30, 1);
  const std::vector<std::int32_t> pages{5, 2};
  for (const auto& device : devices()) {
    const TinyModel m = tiny_model({.format = "Q8_0"});
    const auto wide = backend_of(m, device), backend = backend_of(m, device, {.cache = CacheType::e4m3});
    EXPECT_EQ(backend->memory().cache * 2, wide->memory().cache);
    std::vector<std::int32_t> outputs;
    std::vector<float> logits(tokens.size() * kTinyVocabulary);
    for (std::int32_t first : {0, 20, 29}) {
      const std::int32_t rows = (first == 0 ? 20 : first == 20 ? 29 : 30) - first;
      outputs.resize(std::size_t(rows));
      std::iota(outputs.begin(), outputs.end(), 0);
      const BatchSequence s{0, rows, first, pages};
      backend->run({std::span(tokens).subspan(std::size_t(first), std::size_t(rows)), {&s, 1}, outputs},
                   {std::span(logits).subspan(std::size_t(first) * kTinyVocabulary,
                                              std::size_t(rows) * kTinyVocabulary),
                    {}});
    }
    const double off = greatest_difference(logits, oracle_logits(*m.file, tokens));
    EXPECT_LE(off, 0.1) << device.info().name;
    EXPECT_GT(off, 1e-4) << device.info().name;
  }
}

// Several requests at once, pages shared, copied and given up: each is what it is alone.
TEST(engine_device, RequestsTogetherAreEachAsAlone) {
  for (const auto& device : devices()) {
    const TinyModel m = tiny_model({.format = "Q8_0"});
    const auto backend = backend_of(m, device);
    const auto request = [](int length, unsigned seed) {
      Request r;
      r.prompt = tiny_prompt(length, seed), r.max_tokens = 6, r.sampling.temperature = 0;
      return r;
    };
    std::vector<std::vector<Token>> alone, together;
    const std::vector<std::pair<int, unsigned>> prompts{{5, 1}, {30, 2}, {1, 3}, {30, 2}};
    for (auto [length, seed] : prompts) {
      Scheduler one(*backend, nullptr);
      const auto id = one.submit(request(length, seed));
      while (one.step()) {
      }
      alone.push_back(one.take(id)->ids);
    }
    Scheduler all(*backend, nullptr, {.chunk = 16});
    std::vector<RequestId> ids;
    for (auto [length, seed] : prompts) ids.push_back(all.submit(request(length, seed)));
    while (all.step()) {
    }
    for (RequestId id : ids) together.push_back(all.take(id)->ids);
    EXPECT_EQ(together, alone) << device.info().name;
  }
}

TEST(engine_device, WhatTheKernelsLackIsNamed) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto message = [&](const TinyOptions& o, BackendOptions b = {}) -> std::string {
    try {
      backend_of(tiny_model(o), device, b);
    } catch (const Unsupported& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message({}, {.cache = CacheType::f32}), HasSubstr("the cache is f16 or e4m3"));
  EXPECT_THROW(make_cpu_backend(build(*tiny_model({}).file), tiny_model({}).file,
                                {.pages = 4, .cache = CacheType::e4m3}),
               Unsupported);
  EXPECT_THAT(message({}, {.activations = ActivationType::int8}), HasSubstr("activations are f16"));
}

}  // namespace
}  // namespace cgp::engine
