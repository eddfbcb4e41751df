// SPDX-License-Identifier: Apache-2.0
// The backend without tensor cores beside the straight-line program in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/engine/simt/simt_backend.h"

namespace cgp::engine {
namespace {

/// The emulator, and a Vulkan device where there is one.
std::vector<runtime::Device> devices() {
  std::vector<runtime::Device> all{runtime::Device::open("emu:sm_75")};
  try {
    all.push_back(runtime::Device::open("vulkan:0"));
  } catch (const Unsupported&) {
  }
  return all;
}

std::unique_ptr<Backend> backend_of(const TinyModel& m, const runtime::Device& device) {
  BackendOptions o;
  o.pages = 2, o.page_tokens = simt_page_tokens(kTinyContext), o.max_rows = 16, o.max_sequences = 2,
  o.max_outputs = 16;
  return make_simt_backend(build(*m.file), m.file, device, o);
}

// A prompt of 9 rows on the second page, two chunks, then single tokens; the page is copied on the way.
TEST(engine_simt, LogitsAreThoseInDouble) {
  const auto tokens = tiny_prompt(16, 1);
  std::vector<std::int32_t> pages{1};
  for (const auto& device : devices())
    for (const TinyOptions& o : std::vector<TinyOptions>{{.architecture = "llama", .format = "Q8_0"},
                                                         {.architecture = "gpt2", .format = "Q4_1"},
                                                         {.architecture = "qwen3", .format = "F32"},
                                                         {.architecture = "gemma2", .format = "Q8_0"}}) {
      if (!device.is_emulator() && o.architecture != "llama") continue;  // pipelines take seconds to build
      const TinyModel m = tiny_model(o);
      const auto backend = backend_of(m, device);
      pages[0] = 1;
      const auto want = oracle_logits(*m.file, tokens);
      double worst = 0, most = 0;
      for (std::int32_t first = 0, rows; first < std::int32_t(tokens.size()); first += rows) {
        rows = first == 0 ? 9 : first == 9 ? 3 : 1;
        if (first == 12) backend->copy_page(1, 0), pages[0] = 0;
        const std::vector<std::int32_t> outputs{rows - 1};
        const BatchSequence s{0, rows, first, pages};
        std::vector<float> logits(kTinyVocabulary);
        std::vector<std::int32_t> greedy(1);
        backend->run({std::span(tokens).subspan(std::size_t(first), std::size_t(rows)), {&s, 1}, outputs},
                     {logits, greedy});
        const auto& row = want[std::size_t(first + rows - 1)];
        for (std::size_t i = 0; i < row.size(); ++i)
          worst = std::max(worst, std::abs(double(logits[i]) - row[i])),
          most = std::max(most, std::abs(row[i]));
        EXPECT_EQ(greedy[0], std::max_element(logits.begin(), logits.end()) - logits.begin());
      }
      EXPECT_LE(worst, 2e-3 * most) << device.info().name << " " << o.architecture << " " << o.format;
    }
}

TEST(engine_simt, RefusesByName) {
  const TinyModel moe = tiny_model({.architecture = "llama", .format = "F32", .experts = true});
  const auto device = runtime::Device::open("emu:sm_75");
  try {
    backend_of(moe, device);
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("mixture of experts"));
  }
  const TinyModel m = tiny_model({});
  BackendOptions o;
  o.pages = 2, o.page_tokens = kTinyContext / 2;
  EXPECT_THROW(make_simt_backend(build(*m.file), m.file, device, o), ArgumentError);
  EXPECT_TRUE(runs_simt(device.info()));
  EXPECT_FALSE(runs_simt(runtime::Device::open("emu:sm_90a").info()));
}

}  // namespace
}  // namespace cgp::engine
