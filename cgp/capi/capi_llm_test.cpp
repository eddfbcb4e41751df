// SPDX-License-Identifier: Apache-2.0
// cgp.h's language models, as another language would use them: through the functions of libcgp.so alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "cgp/capi/cgp.h"
#include "cgp/engine/models/tiny_model_test_kit.h"

namespace {

using ::testing::HasSubstr;

struct Loaded {
  explicit Loaded(const cgp::engine::TinyOptions& o = {.tokenizer = true, .chat_template = true})
      : path(::testing::TempDir() + "capi_llm_" + std::to_string(getpid()) + ".gguf") {
    std::ofstream(path, std::ios::binary) << cgp::engine::tiny_model(o).bytes;
    cgp_llm_options options{};
    options.size = sizeof options, options.sequences = 4, options.cache_dtype = CGP_F32, options.threads = 1;
    EXPECT_EQ(cgp_llm_load(path.c_str(), &options, &llm), CGP_OK) << cgp_last_error();
  }
  ~Loaded() { cgp_llm_free(llm), unlink(path.c_str()); }

  std::vector<std::int32_t> encode(const std::string& text) const {
    const std::int32_t* ids = nullptr;
    std::uint64_t count = 0;
    EXPECT_EQ(cgp_llm_encode(llm, text.data(), text.size(), 0, &ids, &count), CGP_OK) << cgp_last_error();
    return {ids, ids + count};
  }
  std::int64_t submit(const std::string& text, cgp_llm_request r = {}) const {
    r.size = sizeof r, r.max_tokens = r.max_tokens ? r.max_tokens : 20, r.ignore_end = 1;
    const auto ids = encode(text);
    std::int64_t id = 0;
    EXPECT_EQ(cgp_llm_submit(llm, ids.data(), ids.size(), &r, &id), CGP_OK) << cgp_last_error();
    return id;
  }
  void run() const {
    for (std::int32_t busy = 1; busy;) ASSERT_EQ(cgp_llm_step(llm, &busy), CGP_OK) << cgp_last_error();
  }
  cgp_llm_completion take(std::int64_t id) const {
    cgp_llm_completion c{};
    c.size = sizeof c;
    EXPECT_EQ(cgp_llm_take(llm, id, &c), CGP_OK) << cgp_last_error();
    return c;
  }
  std::string text(std::int64_t id) const {
    const char* text = nullptr;
    std::uint64_t bytes = 0;
    EXPECT_EQ(cgp_llm_text(llm, id, &text, &bytes), CGP_OK) << cgp_last_error();
    return {text, bytes};
  }

  std::string path;
  cgp_llm* llm = nullptr;
};

TEST(capi_llm, requests_run_together_and_each_as_alone) {
  Loaded m;
  std::vector<std::string> alone, prompts{"Hello world", "a", "The quick brown fox"};
  for (const auto& p : prompts) {
    const auto id = m.submit(p);
    m.run();
    const auto c = m.take(id);
    alone.emplace_back(c.text, c.text_bytes);
    EXPECT_EQ(c.count, 20u);
    EXPECT_STREQ(c.finish_reason, "length");
  }
  std::vector<std::int64_t> ids;
  for (const auto& p : prompts) ids.push_back(m.submit(p));
  std::string streamed;
  for (std::int32_t busy = 1; busy;) {
    ASSERT_EQ(cgp_llm_step(m.llm, &busy), CGP_OK);
    streamed += m.text(ids[1]);
  }
  EXPECT_EQ(streamed, alone[1]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto c = m.take(ids[i]);
    EXPECT_EQ(std::string(c.text, c.text_bytes), alone[i]);
    EXPECT_EQ(c.prompt_tokens, std::int64_t(prompts[i].size()));
  }
}

TEST(capi_llm, a_draft_model_changes_the_steps_and_not_the_text) {
  Loaded m;
  const auto id = m.submit("Hello");
  m.run();
  const auto c = m.take(id);
  const std::string want(c.text, c.text_bytes);
  EXPECT_EQ(c.drafted_tokens, 0);
  const std::string draft = m.path + ".draft";
  std::ofstream(draft, std::ios::binary)
      << cgp::engine::tiny_model({.format = "Q8_0", .tokenizer = true}).bytes;
  cgp_llm_options o{};
  o.size = sizeof o, o.cache_dtype = CGP_F32, o.threads = 1, o.draft_tokens = 3;
  cgp_llm* with = nullptr;
  EXPECT_EQ(cgp_llm_load(m.path.c_str(), &o, &with), CGP_INVALID_ARGUMENT);
  EXPECT_THAT(cgp_last_error(), HasSubstr("draft_tokens 3 without a draft"));
  o.draft = draft.c_str();
  ASSERT_EQ(cgp_llm_load(m.path.c_str(), &o, &with), CGP_OK) << cgp_last_error();
  cgp_llm_free(std::exchange(m.llm, with));
  const auto drafted = m.submit("Hello");
  m.run();
  const auto d = m.take(drafted);
  EXPECT_EQ(std::string(d.text, d.text_bytes), want);
  EXPECT_GT(d.accepted_tokens, 0);
  EXPECT_GE(d.drafted_tokens, d.accepted_tokens);
  unlink(draft.c_str());
  cgp_llm* none = nullptr;
  EXPECT_NE(cgp_llm_load(m.path.c_str(), &o, &none), CGP_OK);
  EXPECT_THAT(cgp_last_error(), HasSubstr(draft));
}

TEST(capi_llm, a_request_at_work_has_no_reason_and_can_be_cancelled) {
  Loaded m;
  const auto id = m.submit("Hello");
  EXPECT_EQ(m.take(id).finish_reason, nullptr);
  std::int32_t busy = 0;
  ASSERT_EQ(cgp_llm_step(m.llm, &busy), CGP_OK);
  ASSERT_EQ(cgp_llm_cancel(m.llm, id), CGP_OK);
  EXPECT_STREQ(m.take(id).finish_reason, "cancelled");
  cgp_llm_completion c{};
  c.size = sizeof c;
  EXPECT_EQ(cgp_llm_take(m.llm, id, &c), CGP_INVALID_ARGUMENT);
  EXPECT_THAT(cgp_last_error(), HasSubstr("it was taken"));
}

TEST(capi_llm, log_probabilities_are_those_of_the_greatest_logits) {
  Loaded m;
  cgp_llm_request r{};
  r.top_logprobs = 2, r.max_tokens = 5;
  const auto id = m.submit("Hello", r);
  m.run();
  const auto c = m.take(id);
  ASSERT_EQ(c.logprob_columns, 3u);
  for (std::uint64_t i = 0; i < c.count; ++i) {
    const auto* row = c.logprobs + i * 3;
    EXPECT_EQ(row[0].token, c.ids[i]);
    EXPECT_EQ(row[1].token, c.ids[i]);  // greedy
    EXPECT_EQ(row[0].logprob, row[1].logprob);
    EXPECT_GE(row[1].logprob, row[2].logprob);
  }
}

TEST(capi_llm, a_conversation_goes_through_the_template) {
  Loaded m;
  const char *roles[] = {"user"}, *contents[] = {"Hi"};
  const std::int32_t* ids = nullptr;
  std::uint64_t count = 0;
  ASSERT_EQ(cgp_llm_chat_prompt(m.llm, roles, contents, 1, &ids, &count), CGP_OK) << cgp_last_error();
  const std::vector<std::int32_t> kept(ids, ids + count);
  const char* text = nullptr;
  std::uint64_t bytes = 0;
  ASSERT_EQ(cgp_llm_decode(m.llm, kept.data(), kept.size(), 0, &text, &bytes), CGP_OK);
  EXPECT_THAT(std::string(text, bytes), HasSubstr("user: Hi"));
  cgp_llm_info info{};
  info.size = sizeof info;
  ASSERT_EQ(cgp_llm_get_info(m.llm, &info), CGP_OK);
  EXPECT_STREQ(info.architecture, "llama");
  EXPECT_EQ(info.vocabulary, cgp::engine::kTinyVocabulary);
  EXPECT_EQ(info.has_chat_template, 1);
}

TEST(capi_llm, bad_input_is_named) {
  cgp_llm* none = nullptr;
  EXPECT_NE(cgp_llm_load("/nowhere/model.gguf", nullptr, &none), CGP_OK);
  EXPECT_THAT(cgp_last_error(), HasSubstr("/nowhere/model.gguf"));
  cgp_llm_options o{};
  o.size = sizeof o;
  o.activations = 4;
  EXPECT_EQ(cgp_llm_load("x.gguf", &o, &none), CGP_INVALID_ARGUMENT);
  EXPECT_THAT(cgp_last_error(), HasSubstr("not 4"));
  EXPECT_EQ(none, nullptr);
  Loaded m({.tokenizer = true});
  std::int64_t id = 0;
  EXPECT_EQ(cgp_llm_submit(m.llm, nullptr, 0, nullptr, &id), CGP_INVALID_ARGUMENT);
  EXPECT_THAT(cgp_last_error(), HasSubstr("at least one token"));
  const std::int32_t* ids = nullptr;
  std::uint64_t count = 0;
  const char *roles[] = {"user"}, *contents[] = {"Hi"};
  EXPECT_EQ(cgp_llm_chat_prompt(m.llm, roles, contents, 1, &ids, &count), CGP_UNSUPPORTED);
  EXPECT_THAT(cgp_last_error(), HasSubstr("chat template"));
  double value = 0, error = 0;
  EXPECT_EQ(cgp_llm_perplexity(m.llm, "short", 5, 64, &value, &error), CGP_INVALID_ARGUMENT);
  m.submit("x");
  EXPECT_EQ(cgp_llm_perplexity(m.llm, "short", 5, 4, &value, &error), CGP_INVALID_ARGUMENT);
  EXPECT_THAT(cgp_last_error(), HasSubstr("at work"));
}

}  // namespace
