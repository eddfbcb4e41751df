// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "cgp/base/error.h"
#include "cgp/engine/cpu/cpu_backend.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/engine/scheduler/grammar_mask.h"

// Counts what is allocated: a step must not.
namespace {
std::atomic<long> allocations{0};
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace cgp::engine {
namespace {

std::unique_ptr<Backend> backend_of(const TinyModel& m, BackendOptions o) {
  o.batch_invariant = true;
  return make_cpu_backend(build(*m.file), m.file, o);
}

/// Greedy ones and drawn ones, of several lengths; the first two thirds begin alike.
std::vector<Request> requests() {
  std::vector<Request> out;
  for (int i = 0; i < 10; ++i) {
    Request r;
    r.prompt = tiny_prompt(40, i < 7 ? 1 : unsigned(i));
    r.prompt.resize(std::size_t(3 + 5 * (i % 8)));
    r.prompt.push_back(i);
    r.max_tokens = 6 + 3 * i;
    r.sampling = {.temperature = i % 2 ? 0.8 : 0, .top_k = 0, .top_p = 1, .seed = std::uint64_t(i)};
    if (i == 4) r.sampling.repetition_penalty = 1.3;
    out.push_back(std::move(r));
  }
  return out;
}

struct Outcome {
  std::vector<std::vector<Token>> ids;
  std::int64_t preemptions = 0, reused = 0, accepted = 0;
};
Outcome run(const TinyModel& m, const BackendOptions& b, const SchedulerOptions& s, bool alone = false) {
  const auto backend = backend_of(m, b);
  Scheduler scheduler(*backend, nullptr, s);
  Outcome out;
  std::vector<RequestId> ids;
  for (Request& r : requests()) {
    ids.push_back(scheduler.submit(std::move(r)));
    while (alone && scheduler.step()) {
    }
  }
  while (scheduler.step()) {
  }
  for (RequestId id : ids) {
    const auto done = scheduler.take(id);
    EXPECT_TRUE(done);
    EXPECT_EQ(done->reason, FinishReason::length) << done->error;
    out.ids.push_back(done->ids);
    out.preemptions += done->preemptions, out.reused += done->reused_tokens,
        out.accepted += done->accepted_tokens;
  }
  EXPECT_EQ(scheduler.cache().available_pages(), b.pages);
  return out;
}

TEST(engine_scheduler, TokensDependOnTheRequestAlone) {
  for (const TinyOptions& o : {TinyOptions{}, TinyOptions{.architecture = "gemma2"},
                               TinyOptions{.format = "Q8_0"}, TinyOptions{.architecture = "qwen3moe"}}) {
    const TinyModel m = tiny_model(o);
    // One after the other, one token of the prompt at a time, without pages in common.
    const Outcome want =
        run(m, {.pages = 1, .page_tokens = 256, .max_rows = 1, .max_sequences = 1}, {}, true);
    EXPECT_EQ(want.reused, 0);
    for (std::int64_t sequences : {2, 10})
      for (std::int64_t chunk : {3, 64}) {
        const Outcome got =
            run(m, {.pages = 400, .page_tokens = 4, .max_rows = 64, .max_sequences = sequences, .threads = 2},
                {.chunk = chunk});
        EXPECT_EQ(got.ids, want.ids) << o.architecture << sequences << chunk;
        EXPECT_GT(got.reused, 0);
      }
    // Memory for two of them: others lose their pages and are computed again.
    const Outcome little = run(m, {.pages = 20, .page_tokens = 4, .max_rows = 64, .max_sequences = 10}, {});
    EXPECT_EQ(little.ids, want.ids) << o.architecture;
    EXPECT_GT(little.preemptions, 0);
    const Outcome lookup =
        run(m, {.pages = 400, .page_tokens = 4, .max_rows = 64, .max_sequences = 10, .max_outputs = 99},
            {.lookup_tokens = 4});
    EXPECT_EQ(lookup.ids, want.ids) << o.architecture;
  }
}

// The same model with coarser weights agrees often, one of another architecture seldom; both draw as the model does or not at all.
TEST(engine_scheduler, ADraftModelChangesNoToken) {
  const TinyModel m = tiny_model({});
  const BackendOptions o{
      .pages = 400, .page_tokens = 4, .max_rows = 64, .max_sequences = 10, .max_outputs = 99};
  const Outcome want = run(m, o, {});
  const auto drafted = [&](const TinyOptions& small, BackendOptions with, BackendOptions of_draft) {
    const auto draft = backend_of(tiny_model(small), of_draft);
    return run(m, with, {.draft = draft.get(), .draft_tokens = 3});
  };
  const Outcome alike = drafted({.format = "Q8_0"}, o, o), other = drafted({.architecture = "qwen2"}, o, o);
  EXPECT_EQ(alike.ids, want.ids);
  EXPECT_EQ(other.ids, want.ids);
  EXPECT_GT(alike.accepted, 20);
  EXPECT_LT(other.accepted, alike.accepted);
  // Pages are short for the model, which preempts; for the draft, which then writes less.
  BackendOptions few = o, fewest = o;
  few.pages = 20, fewest.pages = 6, fewest.max_rows = 7, fewest.max_outputs = 2;
  EXPECT_EQ(drafted({.format = "Q8_0"}, few, o).ids, want.ids);
  EXPECT_EQ(drafted({.format = "Q8_0"}, o, fewest).ids, want.ids);
}

TEST(engine_scheduler, PromptLookupTakesSeveralTokensInAStep) {
  const TinyModel m = tiny_model({});
  const auto generate = [&](std::int64_t lookup, int& steps) {
    const auto backend = backend_of(m, {.pages = 64, .page_tokens = 4, .max_sequences = 1});
    Scheduler scheduler(*backend, nullptr, {.lookup_tokens = lookup});
    Request r;
    r.prompt = tiny_prompt(5, 3), r.max_tokens = 120, r.sampling.temperature = 0;
    // A bias that makes the model repeat itself.
    for (Token t = 0; t < 3; ++t) r.sampling.logit_bias.push_back({t, 9.0f});
    const RequestId id = scheduler.submit(r);
    for (steps = 0; scheduler.step();) ++steps;
    return *scheduler.take(id);
  };
  int plain = 0, drafted = 0;
  const Completion want = generate(0, plain), got = generate(6, drafted);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_GT(got.accepted_tokens, 20);
  EXPECT_EQ(plain, 120);
  EXPECT_EQ(drafted, 120 - got.accepted_tokens);
}

/// Every step-th token; 0: none.
struct Mask : TokenMask {
  std::vector<std::uint32_t> words = std::vector<std::uint32_t>(4);
  std::vector<Token> seen;
  explicit Mask(unsigned step) {
    for (unsigned t = 0; step && t < 97; t += step) words[t / 32] |= 1u << t % 32;
  }
  std::span<const std::uint32_t> allowed() override { return words; }
  void accept(Token t) override { seen.push_back(t); }
};

TEST(engine_scheduler, BadRequestsAreArgumentErrorsAndOthersGoOn) {
  const TinyModel m = tiny_model({});
  const auto backend = backend_of(m, {.pages = 4, .page_tokens = 8, .max_sequences = 2});
  Scheduler scheduler(*backend, nullptr);
  const auto with = [](auto change) {
    Request r;
    r.prompt = {1, 2, 3}, r.max_tokens = 5;
    change(r);
    return r;
  };
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.prompt.clear(); })), ArgumentError);
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.prompt[1] = 97; })), ArgumentError);
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.max_tokens = 0; })), ArgumentError);
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.prompt.assign(256, 1); })), ArgumentError);
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.max_tokens = 31; })), ArgumentError);  // 33 of 32
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.stops = {"x"}; })), ArgumentError);
  EXPECT_THROW(scheduler.submit(with([](Request& r) { r.sampling.top_p = 0; })), ArgumentError);
  EXPECT_FALSE(scheduler.step());
  const RequestId fails = scheduler.submit(with([](Request& r) { r.mask = std::make_shared<Mask>(0); }));
  const RequestId cancelled = scheduler.submit(with([](Request&) {})),
                  works = scheduler.submit(with([](Request&r) { r.max_tokens = 30; }));
  ASSERT_TRUE(scheduler.step());
  scheduler.cancel(cancelled);
  EXPECT_EQ(scheduler.take(cancelled)->reason, FinishReason::cancelled);
  while (scheduler.step()) {
  }
  const auto failed = scheduler.take(fails);
  EXPECT_EQ(failed->reason, FinishReason::error);
  EXPECT_NE(failed->error, "");
  EXPECT_EQ(scheduler.take(works)->ids.size(), 30u);
  EXPECT_FALSE(scheduler.take(works));
}

/// One byte of the printable ones a token, from 2 on; 1 ends.
std::shared_ptr<const model::TokenTrie> character_words() {
  std::vector<std::string> words(2);
  for (char c = ' '; words.size() < 97; ++c) words.push_back(std::string(1, c));
  return std::make_shared<const model::TokenTrie>(std::move(words), std::vector<Token>{1});
}

TEST(engine_scheduler, AGrammarHoldsBesideOthersAndThroughPreemption) {
  const TinyModel m = tiny_model({});
  const model::CompiledGrammar grammar(model::Grammar::parse_gbnf("root ::= ([a-c] [0-4])*"),
                                       character_words());
  const auto generate = [&](std::int64_t pages, std::int64_t lookup) {
    const auto backend = backend_of(m, {.pages = pages, .page_tokens = 8, .max_sequences = 3});
    Scheduler scheduler(*backend, nullptr, {.lookup_tokens = lookup});
    std::vector<RequestId> ids;
    for (unsigned i = 0; i < 3; ++i) {
      Request r;
      r.prompt = tiny_prompt(9, i), r.max_tokens = 24;
      r.sampling.logit_bias = {{1, -100.0f}};
      if (i < 2) r.mask = grammar_mask(grammar);
      ids.push_back(scheduler.submit(r));
    }
    while (scheduler.step()) {
    }
    std::vector<Completion> out;
    for (RequestId id : ids) out.push_back(*scheduler.take(id));
    return out;
  };
  const auto want = generate(64, 0), scarce = generate(7, 0), drafted = generate(64, 4);
  std::int64_t preemptions = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(want[i].ids.size(), 24u) << want[i].error;
    EXPECT_EQ(scarce[i].ids, want[i].ids) << scarce[i].error;
    EXPECT_EQ(drafted[i].ids, want[i].ids) << drafted[i].error;
    preemptions += scarce[i].preemptions;
  }
  EXPECT_GT(preemptions, 0);
  const auto tokens = character_words();
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t at = 0; at < want[i].ids.size(); ++at) {
      const char c = tokens->bytes(want[i].ids[at])[0];
      EXPECT_TRUE(at % 2 == 0 ? c >= 'a' && c <= 'c' : c >= '0' && c <= '4') << c;
    }
}

TEST(engine_scheduler, MasksAndLogProbabilities) {
  const TinyModel m = tiny_model({});
  const auto backend = backend_of(m, {.pages = 64, .page_tokens = 8, .cache = CacheType::f32});
  Scheduler scheduler(*backend, nullptr);
  Request r;
  r.prompt = tiny_prompt(9, 4), r.max_tokens = 12, r.sampling.temperature = 0, r.sampling.top_logprobs = 3;
  auto mask = std::make_shared<Mask>(3);
  r.mask = mask;
  std::vector<Token> all = r.prompt;
  const RequestId id = scheduler.submit(r);
  while (scheduler.step()) {
  }
  const auto done = scheduler.take(id);
  EXPECT_EQ(mask->seen, done->ids);
  for (Token t : done->ids) EXPECT_EQ(t % 3, 0);
  ASSERT_EQ(done->tokens.size(), done->ids.size());
  all.insert(all.end(), done->ids.begin(), done->ids.end());
  const auto logits = oracle_logits(*m.file, all);
  for (std::size_t i = 0; i < done->ids.size(); ++i) {
    double sum = 0;
    const auto& row = logits[8 + i];
    for (double l : row) sum += std::exp(l);
    EXPECT_NEAR(done->tokens[i].logprob, row[std::size_t(done->ids[i])] - std::log(sum), 1e-4);
    EXPECT_EQ(done->tokens[i].top.size(), 3u);
  }
}

TEST(engine_cpu, AStepAllocatesNothing) {
  for (const TinyOptions& o :
       {TinyOptions{.format = "Q8_0"}, TinyOptions{.architecture = "gemma3", .format = "Q4_0"},
        TinyOptions{.architecture = "phi3"}, TinyOptions{.architecture = "qwen3moe", .format = "F16"},
        TinyOptions{.architecture = "gpt2"}})
    for (int threads : {1, 2}) {
      const TinyModel m = tiny_model(o);
      const auto backend = backend_of(m, {.pages = 8, .page_tokens = 8, .max_rows = 8, .threads = threads});
      const std::vector<std::int32_t> pages{0, 1, 2, 3}, others{4, 5, 6}, tokens{3, 4}, outputs{0, 1};
      std::vector<std::int32_t> greedy(2);
      std::vector<float> logits(2 * kTinyVocabulary);
      long counted = 0;
      for (std::int32_t p = 0; p < 24; ++p) {
        const BatchSequence sequences[] = {{0, 1, p, pages}, {1, 1, p, others}};
        const long before = allocations;
        backend->run({tokens, sequences, outputs}, {logits, greedy});
        counted = allocations - before;
        EXPECT_TRUE(p == 0 || counted == 0) << o.architecture << " " << p << ": " << counted;
      }
    }
}

TEST(engine_cpu, BadBatchesAreArgumentErrors) {
  const TinyModel m = tiny_model({});
  const auto backend =
      backend_of(m, {.pages = 4, .page_tokens = 8, .max_rows = 8, .max_sequences = 2, .max_outputs = 2});
  const std::vector<std::int32_t> pages{0, 1}, far{0, 4}, tokens{1, 2, 3, 4}, bad{1, 97, 3, 4}, outputs{1, 3},
      descending{3, 1}, many{0, 1, 2};
  std::vector<std::int32_t> greedy(2);
  const auto fails = [&](std::span<const std::int32_t> t, const BatchSequence& s,
                         std::span<const std::int32_t> o) {
    EXPECT_THROW(backend->run({t, {&s, 1}, o}, {{}, greedy}), ArgumentError);
  };
  const BatchSequence good{0, 4, 6, pages};
  EXPECT_NO_THROW(backend->run({tokens, {&good, 1}, outputs}, {{}, greedy}));
  fails(bad, good, outputs);
  fails(tokens, good, descending);
  fails(tokens, good, many);
  fails(tokens, {0, 3, 6, pages}, outputs);
  fails(tokens, {1, 3, 6, pages}, outputs);
  fails(tokens, {0, 4, 14, pages}, outputs);
  fails(tokens, {0, 4, 6, far}, outputs);
  fails(tokens, {0, 4, 253, pages}, outputs);
  fails({}, {0, 0, 0, pages}, {});
  EXPECT_THROW(backend_of(m, {.pages = 0}), ArgumentError);
}

}  // namespace
}  // namespace cgp::engine
