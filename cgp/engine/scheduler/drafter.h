// SPDX-License-Identifier: Apache-2.0
#pragma once
// Speculative decoding with a second, smaller model (Leviathan et al., 2023): it writes a few tokens ahead, which the model
// then checks in one step. Here it draws with the request's own sampler and random numbers, and a token is kept where the
// model draws the same: what is generated is what the model alone generates, token for token.
#include <unordered_map>
#include <vector>

#include "cgp/engine/backend.h"
#include "cgp/engine/cache/page_cache.h"
#include "cgp/engine/scheduler/request.h"

namespace cgp::engine {

class Drafter {
 public:
  /// `backend` runs the small model, whose vocabulary is the other's. It must outlive this.
  explicit Drafter(Backend& backend);

  struct Draft {
    std::int64_t request = 0;      ///< its number
    std::span<const Token> known;  ///< the prompt and what was generated
    std::int64_t wanted = 0;       ///< tokens, at most
    model::Sampler sampler;        ///< a copy of the request's
    bool greedy = false;           ///< the greatest logit is what the sampler draws
    std::vector<Token> tokens = {};
  };
  /// Fills the drafts' tokens, all in the same steps. Fewer than wanted where the context ends or pages are short.
  void write(std::vector<Draft>& drafts);
  /// The request has ended or gave up its pages.
  void forget(std::int64_t request);

 private:
  bool plan(Draft& draft);

  Backend& backend_;
  PageCache cache_;
  struct Sequence {
    SequenceId id = 0;
    std::vector<Token> tokens;  ///< whose keys and values are there
  };
  std::unordered_map<std::int64_t, Sequence> sequences_;

  // Of the step that is planned
  std::vector<Token> tokens_;
  std::vector<BatchSequence> batch_;
  std::vector<Draft*> drafts_;  ///< of batch_
  std::vector<std::int32_t> outputs_, greedy_;
  std::vector<float> logits_;
};

}  // namespace cgp::engine
