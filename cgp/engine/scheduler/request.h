// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is asked of a model, and what came of it.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/model/sampling/sampler.h"

namespace cgp::engine {

using Token = std::int32_t;

/// Tokens that may come next, for a grammar (grammar_mask.h). One object serves one request. Calls come from several threads, but
/// not two at once.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  /// Bit t % 32 of word t / 32 is set where token t may come next; empty: all may.
  virtual std::span<const std::uint32_t> allowed() = 0;
  virtual void accept(Token token) = 0;
};

struct Request {
  std::vector<Token> prompt;  ///< at least one token
  std::int64_t max_tokens = 256;
  model::SamplingOptions sampling;
  std::vector<std::string> stops;  ///< generation ends before the first of them
  bool ignore_end = false;         ///< goes on behind tokens that end generation
  bool logprobs = false;  ///< Completion::tokens has log probabilities (always, where top_logprobs > 0)
  std::shared_ptr<TokenMask> mask;
  /// Text as it comes, valid UTF-8, never part of a stop string. false: the request is cancelled. May be empty.
  std::function<bool(std::string_view text)> on_text;
  /// Each token as it is drawn, before its text. May be empty.
  std::function<void(const model::Sampled& token)> on_token;
};

enum class FinishReason : std::uint8_t {
  none,       ///< not finished
  stop,       ///< a token that ends generation, or a stop string
  length,     ///< max_tokens, or the end of the context
  cancelled,  ///< by cancel() or on_text
  error       ///< Completion::error says why
};
std::string_view name(FinishReason reason);

struct Completion {
  std::vector<Token> ids;  ///< what was generated, with the token that ended it
  std::string text;
  std::vector<model::Sampled> tokens;  ///< of each id, with Request::logprobs
  FinishReason reason = FinishReason::none;
  std::string stop;                                   ///< the stop string that was found
  std::string error;                                  ///< for FinishReason::error
  std::int64_t prompt_tokens = 0, reused_tokens = 0;  ///< of the prompt; those that the prefix cache had
  std::int64_t preemptions = 0;
  std::int64_t drafted_tokens = 0, accepted_tokens = 0;  ///< of prompt lookup and of a draft model
  double prefill_seconds = 0;  ///< from the first step with this request to its first token
  double decode_seconds = 0;   ///< from its first token to its last
};

}  // namespace cgp::engine
