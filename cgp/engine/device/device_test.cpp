// SPDX-License-Identifier: Apache-2.0
// The device's backend beside the straight-line program in double and the processor's backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

/// Architectures that the device has.
std::vector<TinyOptions> models() {
  return {{.architecture = "llama"},  {.architecture = "gpt2"},   {.architecture = "qwen2"},
          {.architecture = "qwen3"},  {.rope_scaling = "yarn"},   {.rope_scaling = "llama3"},
          {.architecture = "gemma2"}, {.architecture = "gemma3"}, {.architecture = "phi3"}};
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
    for (const char* format : {"F32", "Q8_0", "Q4_0", "Q4_1"})
      for (TinyOptions o : models()) {
        if (format != std::string_view("F32") && (o.architecture != "llama" || !o.rope_scaling.empty()))
          continue;
        o.format = format;
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
            << device.info().name << " " << o.architecture << o.rope_scaling << " " << format;
        for (std::size_t i = 0; i < greedy.size(); ++i) {
          const auto row = logits.begin() + std::ptrdiff_t(i * kTinyVocabulary);
          EXPECT_EQ(greedy[i], std::max_element(row, row + kTinyVocabulary) - row);
        }
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
  EXPECT_THAT(message({.architecture = "qwen3moe"}), HasSubstr("mixture of experts"));
  EXPECT_THAT(message({}, {.cache = CacheType::f32}), HasSubstr("the cache is f16"));
  EXPECT_THAT(message({}, {.activations = ActivationType::int8}), HasSubstr("activations are f16"));
}

}  // namespace
}  // namespace cgp::engine
