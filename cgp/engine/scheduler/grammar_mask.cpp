// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/scheduler/grammar_mask.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::engine {
namespace {

class GrammarMask final : public TokenMask {
 public:
  explicit GrammarMask(model::CompiledGrammar grammar) : matcher_(std::move(grammar)) {}
  std::span<const std::uint32_t> allowed() override { return matcher_.mask(); }
  void accept(Token token) override {
    if (!matcher_.accept(token))
      throw ArgumentError(
          ErrorText{"a token is one that the grammar allows", {}, text::cat("it is ", token), {}});
  }

 private:
  model::GrammarMatcher matcher_;
};

}  // namespace

std::shared_ptr<TokenMask> grammar_mask(model::CompiledGrammar grammar) {
  return std::make_shared<GrammarMask>(std::move(grammar));
}

}  // namespace cgp::engine
