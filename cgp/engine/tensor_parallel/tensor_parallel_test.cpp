// SPDX-License-Identifier: Apache-2.0
// Models that several devices share, beside the straight-line program in double.
#include "cgp/engine/tensor_parallel/tensor_parallel_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/engine/cpu/cpu_backend.h"
#include "cgp/engine/device/device_backend.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/engine/scheduler/scheduler.h"
#include "cgp/engine/tensor_parallel/share.h"

namespace cgp::engine {
namespace {

using ::testing::HasSubstr;

/// A head of words that two and four ranks share.
constexpr int kWords = 104;

std::unique_ptr<Backend> backend_of(const TinyModel& m, const std::vector<runtime::Device>& devices) {
  BackendOptions o;
  o.pages = 24, o.page_tokens = 16, o.max_rows = 64, o.max_sequences = 4, o.max_outputs = 64;
  return make_tensor_parallel_backend(build(*m.file), m.file, devices, o);
}
std::vector<runtime::Device> emulated(int n) {
  std::vector<runtime::Device> all;
  for (int i = 0; i < n; ++i) all.push_back(runtime::Device::open("emu:sm_90a"));
  return all;
}

struct Answer {
  std::vector<float> logits;
  std::vector<std::int32_t> greedy;
};
/// A prompt in steps of 20 and 3 rows, then of one token.
Answer answer(Backend& backend, std::span<const std::int32_t> tokens, int words) {
  const std::vector<std::int32_t> pages{5, 2, 7};
  Answer a{std::vector<float>(tokens.size() * std::size_t(words)), std::vector<std::int32_t>(tokens.size())};
  for (std::int32_t first = 0, rows; first < std::int32_t(tokens.size()); first += rows) {
    rows = first == 0 ? 20 : first == 20 ? 3 : 1;
    std::vector<std::int32_t> outputs(static_cast<std::size_t>(rows));
    std::iota(outputs.begin(), outputs.end(), 0);
    const BatchSequence s{0, rows, first, pages};
    const auto part = [&](auto& all, std::size_t width) {
      return std::span(all).subspan(std::size_t(first) * width, std::size_t(rows) * width);
    };
    backend.run({std::span(tokens).subspan(std::size_t(first), std::size_t(rows)), {&s, 1}, outputs},
                {part(a.logits, std::size_t(words)), part(a.greedy, 1)});
  }
  return a;
}

/// Over the greatest magnitude.
double greatest_difference(const std::vector<float>& logits, const std::vector<std::vector<double>>& want) {
  double worst = 0, most = 0;
  const std::size_t words = want[0].size();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double w = want[i / words][i % words];
    if (!std::isfinite(logits[i])) return 1e9;
    worst = std::max(worst, std::abs(logits[i] - w)), most = std::max(most, std::abs(w));
  }
  return worst / most;
}

void expect_right(const TinyOptions& o, const std::vector<runtime::Device>& devices) {
  const std::string what = o.architecture + " " + o.format + ", " + std::to_string(devices.size()) + " x " +
                           devices[0].info().name;
  const auto tokens = tiny_prompt(26, 1);
  const TinyModel m = tiny_model(o);
  const auto backend = backend_of(m, devices);
  const Answer a = answer(*backend, tokens, o.words);
  EXPECT_LE(greatest_difference(a.logits, oracle_logits(*m.file, tokens)), 1e-2) << what;
  for (std::size_t i = 0; i < a.greedy.size(); ++i) {
    const auto row = a.logits.begin() + std::ptrdiff_t(i * std::size_t(o.words));
    EXPECT_EQ(a.greedy[i], std::max_element(row, row + o.words) - row) << what;
  }
  EXPECT_EQ(answer(*backend, tokens, o.words).logits, a.logits) << what << ", again";
}

TEST(engine_tensor_parallel, LogitsAreThoseInDouble) {
  for (const TinyOptions& o : {TinyOptions{.architecture = "llama", .format = "F32"},
                               {.architecture = "llama", .format = "Q4_0", .inner = 128, .words = kWords},
                               {.architecture = "qwen2", .format = "Q8_0", .inner = 128, .words = kWords},
                               {.architecture = "gemma2", .format = "Q8_0", .inner = 64, .words = kWords},
                               {.architecture = "phi3", .format = "Q8_0", .inner = 64},
                               {.architecture = "gpt2", .format = "Q8_0", .inner = 64},
                               {.architecture = "llama", .format = "F32", .experts = true}})
    expect_right(o, emulated(2));
}

// Two heads of the cache on four ranks.
TEST(engine_tensor_parallel, HeadsOfTheCacheAreOnSeveralRanks) {
  expect_right({.architecture = "qwen3", .format = "F32", .words = kWords}, emulated(4));
}

// Ranks that share a GPU; in graphs from the second token on.
TEST(engine_tensor_parallel, RightOnAGpu) {
  try {
    const auto gpu = runtime::Device::open("cuda:0");
    for (const TinyOptions& o :
         {TinyOptions{.architecture = "llama", .format = "Q4_0", .inner = 128, .words = kWords},
          {.architecture = "gemma2", .format = "Q8_0", .inner = 64},
          {.architecture = "llama", .format = "F32", .experts = true}})
      expect_right(o, {gpu, gpu});
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(engine_tensor_parallel, RequestsAreThoseOfOneDevice) {
  const TinyModel m = tiny_model({.format = "F32"});
  const auto ids = [&](Backend& backend) {
    Scheduler all(backend, nullptr, {.chunk = 16});
    std::vector<RequestId> requests;
    for (auto [length, seed] : std::vector<std::pair<int, unsigned>>{{5, 1}, {30, 2}, {30, 2}}) {
      Request r;
      r.prompt = tiny_prompt(length, seed), r.max_tokens = 4, r.sampling.temperature = 0;
      requests.push_back(all.submit(r));
    }
    while (all.step()) {
    }
    std::vector<std::vector<Token>> out;
    for (RequestId id : requests) out.push_back(all.take(id)->ids);
    return out;
  };
  const auto two = backend_of(m, emulated(2));
  const auto one = make_device_backend(build(*m.file), m.file, emulated(1)[0], two->options());
  EXPECT_EQ(ids(*two), ids(*one));
  EXPECT_LT(two->memory().weights, 2 * one->memory().weights);
  EXPECT_EQ(two->memory().cache, one->memory().cache);
}

TEST(engine_tensor_parallel, SumsAreInTheProfile) {
  const TinyModel m = tiny_model({.format = "F32"});
  const auto backend = backend_of(m, emulated(2));
  const auto tokens = tiny_prompt(3, 1);
  const std::vector<std::int32_t> pages{0}, outputs{2};
  const BatchSequence s{0, 3, 0, pages};
  backend->set_profile(true);
  std::vector<std::int32_t> greedy(1);
  backend->run({tokens, {&s, 1}, outputs}, {{}, greedy});
  EXPECT_EQ(backend->profile()[std::size_t(Role::all_reduce)].count, 2 * backend->program().cache_layers);
}

TEST(engine_tensor_parallel, WhatCannotBeSharedIsNamed) {
  const auto message = [](const TinyOptions& o, int ranks) -> std::string {
    const TinyModel m = tiny_model(o);
    try {
      share(build(*m.file), *m.file, 0, ranks);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message({}, 3), HasSubstr("4 attention heads"));
  EXPECT_THAT(message({.inner = 90}, 4), HasSubstr("90 hidden values"));
  EXPECT_THAT(message({.format = "Q8_0", .inner = 96}, 2), HasSubstr("blocks of 32"));
  const TinyModel m = tiny_model({});
  const Program part = share(build(*m.file), *m.file, 1, 2);
  EXPECT_THAT(text_of(part), HasSubstr("all_reduce"));
  EXPECT_THROW(make_cpu_backend(part, m.file, {.pages = 4})->run({std::vector<std::int32_t>{1}, {}, {}}, {}),
               Error);
  EXPECT_THROW(make_device_backend(part, m.file, emulated(1)[0], {.pages = 4}), Unsupported);
}

}  // namespace
}  // namespace cgp::engine
