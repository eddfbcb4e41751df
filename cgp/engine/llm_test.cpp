// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/chat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "cgp/base/error.h"
#include "cgp/engine/models/tiny_model_test_kit.h"

namespace cgp::engine {
namespace {

struct Loaded {
  explicit Loaded(const TinyOptions& o = {.tokenizer = true}, LoadOptions l = {})
      : model(tiny_model(o)), path(testing::TempDir() + "cgp_llm_" + std::to_string(getpid()) + ".gguf") {
    std::ofstream(path, std::ios::binary) << model.bytes;
    l.cache = CacheType::f32;
    llm = std::make_unique<LLM>(LLM::load(path, l));
  }
  ~Loaded() { unlink(path.c_str()); }
  TinyModel model;
  std::string path;
  std::unique_ptr<LLM> llm;
};

Request request(LLM& llm, std::string_view text) {
  Request r;
  r.prompt = llm.encode(text);
  r.max_tokens = 40, r.sampling.temperature = 0, r.ignore_end = true;
  return r;
}

TEST(engine_llm, TextIsStreamedUpToAStopString) {
  Loaded m;
  const Completion all = m.llm->generate(request(*m.llm, "Hello world"));
  EXPECT_EQ(all.reason, FinishReason::length);
  EXPECT_EQ(all.ids.size(), 40u);
  ASSERT_GT(all.text.size(), 12u);
  Request r = request(*m.llm, "Hello world");
  std::string streamed;
  r.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  r.stops = {all.text.substr(9, 2)};
  const Completion stopped = m.llm->generate(r);
  EXPECT_EQ(stopped.reason, FinishReason::stop);
  EXPECT_EQ(stopped.stop, r.stops[0]);
  EXPECT_EQ(stopped.text, all.text.substr(0, all.text.find(r.stops[0])));
  EXPECT_EQ(streamed, stopped.text);
  EXPECT_LT(stopped.ids.size(), 40u);
  Request cancelled = request(*m.llm, "Hello world");
  cancelled.on_text = [&](std::string_view) { return false; };
  EXPECT_EQ(m.llm->generate(cancelled).reason, FinishReason::cancelled);
}

TEST(engine_llm, ADraftModelHasTheVocabularyOfTheModel) {
  Loaded m;
  const Completion want = m.llm->generate(request(*m.llm, "Hello world"));
  const std::string draft = m.path + ".draft";
  std::ofstream(draft, std::ios::binary) << tiny_model({.format = "Q8_0", .tokenizer = true}).bytes;
  LLM llm = LLM::load(m.path, {.cache = CacheType::f32, .draft = draft});
  const Completion got = llm.generate(request(llm, "Hello world"));
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_GT(got.accepted_tokens, 5);
  // Tokens 40 and 41 change places: entries of 8 bytes of length and one of text.
  std::string bytes = tiny_model({.tokenizer = true}).bytes;
  const std::string word = m.llm->tokenizer().piece(40);
  const std::string entry = std::string("\x01\0\0\0\0\0\0\0", 8) + word;
  const auto at = bytes.find(entry);
  ASSERT_NE(at, bytes.npos);
  std::swap(bytes[at + 8], bytes[at + 17]);
  std::ofstream(draft, std::ios::binary) << bytes;
  try {
    LLM::load(m.path, {.draft = draft});
    ADD_FAILURE();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("token 40 is"), std::string::npos) << e.what();
  }
  unlink(draft.c_str());
}

TEST(engine_llm, ATokenThatEndsGenerationEndsIt) {
  Loaded m;
  Request r = request(*m.llm, "Hi");
  r.ignore_end = false;
  r.sampling.logit_bias = {{96, 100.0f}};
  const Completion done = m.llm->generate(r);
  EXPECT_EQ(done.reason, FinishReason::stop);
  EXPECT_EQ(done.ids, std::vector<Token>{96});
  EXPECT_EQ(done.text, "");
}

TEST(engine_llm, PerplexityIsThatOfTheOraclesLogits) {
  Loaded m({.tokenizer = true}, {.chunk = 7});
  std::string text;
  for (Token t : tiny_prompt(70, 5)) text += char(33 + t);
  const auto ids = m.llm->encode(text);
  ASSERT_EQ(ids.size(), 70u);
  const Perplexity p = m.llm->perplexity(text, 32);
  double loss = 0;
  for (std::size_t c = 0; c < 2; ++c) {
    const auto chunk = std::span(ids).subspan(32 * c, 32);
    const auto logits = oracle_logits(*m.model.file, chunk);
    for (std::size_t i = 16; i + 1 < 32; ++i) {
      double sum = 0;
      for (double l : logits[i]) sum += std::exp(l);
      loss += std::log(sum) - logits[i][std::size_t(chunk[i + 1])];
    }
  }
  EXPECT_EQ(p.tokens, 30);
  EXPECT_NEAR(p.value, std::exp(loss / 30), 1e-4 * p.value);
  EXPECT_THROW(m.llm->perplexity("short", 32), ArgumentError);
  EXPECT_EQ(m.llm->generate(request(*m.llm, text.substr(0, 40))).ids,
            Loaded().llm->generate(request(*m.llm, text.substr(0, 40))).ids);
}

TEST(engine_llm, AConversationKeepsWhatWasComputed) {
  Loaded m({.tokenizer = true, .chat_template = true});
  Request r;
  r.max_tokens = 30, r.sampling.temperature = 0, r.ignore_end = true;
  Chat chat(*m.llm, r, "Be brief and answer in one short sentence");
  const Completion first = chat.say("Hi");
  EXPECT_EQ(first.reused_tokens, 0);
  const Completion second = chat.say("And?");
  EXPECT_GE(second.reused_tokens, 32);
  ASSERT_EQ(chat.messages().size(), 5u);
  EXPECT_EQ(chat.messages()[2].content, first.text);
  // The same conversation in a fresh model.
  Loaded fresh;
  r.prompt = fresh.llm->encode("system: Be brief and answer in one short sentence\nuser: Hi\nassistant: " +
                               first.text + "\nuser: And?\nassistant:");
  EXPECT_EQ(fresh.llm->generate(r).ids, second.ids);
  EXPECT_THROW(Chat(*fresh.llm, r).say("Hi"), Unsupported);
}

TEST(engine_llm, AModelThatDoesNotFitIsRefusedBeforeItIsLoaded) {
  try {
    Loaded({.tokenizer = true}, {.sequences = 1 << 22});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("MiB"), std::string::npos) << e.what();
  }
  EXPECT_THROW(Loaded({.tokenizer = true}, {.sequences = 0}), ArgumentError);
}

}  // namespace
}  // namespace cgp::engine
