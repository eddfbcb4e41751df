// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model file and what runs it, for one caller: load, generate, ask for log probabilities and perplexity. Many requests at
// once: scheduler().
#include <memory>
#include <string>
#include <string_view>

#include "cgp/engine/backend.h"
#include "cgp/engine/scheduler/grammar_mask.h"
#include "cgp/engine/scheduler/scheduler.h"
#include "cgp/model/source/source.h"

namespace cgp::engine {

struct LoadOptions {
  std::string device = "cpu";  ///< or what runtime::Device::open() takes: "cuda:0", "emu:sm_90a", "auto"
  /// GPUs that share the model: `device` and those that follow it ("cuda:0": 0, 1, ...; "emu:sm_90a": so many). A list
  /// ("cuda:2,cuda:3") says which. The draft model is on the first.
  int tensor_parallel = 1;
  std::int64_t context = 0;    ///< tokens of a sequence, at most; 0: those of the model, at most 8192
  std::int64_t sequences = 1;  ///< for which the cache has pages
  std::int64_t chunk = 512;    ///< tokens of a step, at most
  CacheType cache = CacheType::f16;
  ActivationType activations = ActivationType::automatic;
  int threads = 0;  ///< 0: all processors
  bool batch_invariant = false;
  std::int64_t cache_tokens = 0;   ///< of all sequences; 0: context * sequences
  std::int64_t prompt_rows = 0;    ///< SchedulerOptions::prompt_rows
  std::int64_t lookup_tokens = 0;  ///< SchedulerOptions
  std::string draft = {};          ///< a smaller model of the same vocabulary; empty: none
  std::int64_t draft_tokens = 4;   ///< SchedulerOptions
  bool embeddings = false;         ///< embed() alone; on the processor
  std::function<void(double fraction)> progress = {};
};

struct Perplexity {
  double value = 0, error = 0;  ///< exp of the mean negative log probability; its standard error
  std::int64_t tokens = 0;      ///< that were predicted
};

class LLM {
 public:
  /// Throws what model::Source::open(), Tokenizer::open() and build() throw, Error with the numbers where less memory is
  /// available than it takes, and ArgumentError where the draft's vocabulary is another.
  static LLM load(const std::string& path, const LoadOptions& options = {});
  LLM(LLM&&) noexcept;
  ~LLM();

  /// Throws what Scheduler::submit() throws, and Error where the request ends with FinishReason::error.
  Completion generate(Request request);
  /// Ids of a prompt, as the model wants them (BOS).
  std::vector<Token> encode(std::string_view text, bool parse_special = false) const;

  /// As llama.cpp's: the text in chunks of `context` tokens, each alone (with BOS for its first token where the model wants
  /// one), of which the second half is predicted. ArgumentError for a text shorter than two chunks.
  Perplexity perplexity(std::string_view text, std::int64_t context = 512);

  /// The mean of the tokens' hidden states behind the last norm, divided by its length (Euclidean). ArgumentError without
  /// LoadOptions::embeddings, and for none or more tokens than the context. Not beside requests of scheduler().
  std::vector<float> embed(std::span<const Token> tokens);
  bool embeds() const { return embeds_; }

  /// For Request::mask, through grammar_mask(). What the vocabulary needs for grammars is made by the first call.
  model::CompiledGrammar compile(const model::Grammar& grammar);

  Backend& backend() { return *backend_; }
  /// Of generate(), too. Gone after perplexity(), with all its requests: ask anew.
  Scheduler& scheduler() { return *scheduler_; }
  const model::Tokenizer& tokenizer() const { return *tokenizer_; }
  const model::Source& file() const { return *file_; }
  double load_seconds() const { return load_seconds_; }

 private:
  LLM() = default;
  std::shared_ptr<const model::Source> file_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::shared_ptr<const model::TokenTrie> trie_;
  std::unique_ptr<Backend> backend_, draft_;
  SchedulerOptions scheduling_;
  std::unique_ptr<Scheduler> scheduler_;
  double load_seconds_ = 0;
  bool embeds_ = false;
};

}  // namespace cgp::engine
