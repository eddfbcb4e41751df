// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/grammar/grammar_matcher.h"

#include "cgp/model/grammar/grammar_automaton.h"

namespace cgp::model {

struct CompiledGrammar::Shared {
  Grammar grammar;
  std::shared_ptr<const TokenTrie> tokens;
  std::mutex mutex;
  std::shared_ptr<GrammarAutomaton> automaton;

  /// One that is not full.
  std::shared_ptr<GrammarAutomaton> current() {
    const std::lock_guard lock(mutex);
    bool full = !automaton;
    if (automaton) {
      const std::lock_guard inner(automaton->mutex);
      full = automaton->full();
    }
    if (full) automaton = std::make_shared<GrammarAutomaton>(grammar.rules(), *tokens);
    return automaton;
  }
};

CompiledGrammar::CompiledGrammar(Grammar grammar, std::shared_ptr<const TokenTrie> tokens)
    : shared_(new Shared{std::move(grammar), std::move(tokens), {}, nullptr}) {
  shared_->current();
}

const TokenTrie& CompiledGrammar::tokens() const { return *shared_->tokens; }

GrammarMatcher::GrammarMatcher(CompiledGrammar grammar)
    : grammar_(std::move(grammar)), automaton_(grammar_.shared_->current()), state_(automaton_->start()) {}

std::span<const std::uint32_t> GrammarMatcher::mask() {
  if (ended_) {
    mask_ = std::make_shared<const std::vector<std::uint32_t>>((grammar_.tokens().size() + 31) / 32);
    return *mask_;
  }
  bool full;
  {
    const std::lock_guard lock(automaton_->mutex);
    full = automaton_->full();
  }
  if (full) {
    const auto next = grammar_.shared_->current();
    if (next != automaton_) {
      const std::scoped_lock lock(automaton_->mutex, next->mutex);
      next->begin();
      state_ = next->import(*automaton_, state_);
    }
    automaton_ = next;
  }
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin();
  mask_ = automaton_->mask(state_);
  return *mask_;
}

bool GrammarMatcher::accept(Token token) {
  const TokenTrie& tokens = grammar_.tokens();
  if (tokens.is_end(token)) {
    const bool may = !ended_ && can_end();
    ended_ = ended_ || may;
    return may;
  }
  const std::string_view bytes = tokens.bytes(token);
  return !bytes.empty() && accept(bytes);
}

bool GrammarMatcher::accept(std::string_view bytes) {
  if (ended_) return false;
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin();
  std::uint32_t state = state_;
  for (char c : bytes) {
    state = automaton_->step(state, static_cast<unsigned char>(c));
    if (state == GrammarAutomaton::kDead) return false;
  }
  state_ = state;
  return true;
}

bool GrammarMatcher::can_end() const {
  const std::lock_guard lock(automaton_->mutex);
  return automaton_->complete(state_);
}

}  // namespace cgp::model
