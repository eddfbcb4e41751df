// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tokens may come next so that the text stays one of a grammar's.
//
// The grammar is a pushdown automaton over bytes, made deterministic as it is used: a state is the set of all stacks that the
// text so far leads to. What the tokens do from the top of a stack is computed once (as in XGrammar, Dong et al. 2024), and
// tokens that leave it are followed with the stack below. Bytes of a character are single steps, so a token may end within
// one. Nesting is at most 1000 rules deep: what would nest deeper may not come.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cgp/model/grammar/grammar.h"
#include "cgp/model/grammar/token_trie.h"

namespace cgp::model {

class GrammarAutomaton;

/// A grammar for a vocabulary, with what was found out about its states: one for all requests that use the grammar. Copies
/// share. Safe for several threads. Takes at most some 100 MB; what is over is forgotten.
class CompiledGrammar {
 public:
  CompiledGrammar(Grammar grammar, std::shared_ptr<const TokenTrie> tokens);
  const TokenTrie& tokens() const;

 private:
  friend class GrammarMatcher;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// The place in one text. A copy is a checkpoint: assign it back to take tokens back. One thread at a time.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(CompiledGrammar grammar);

  /// Bit t % 32 of word t / 32 is set where token t may come: tokens of text, and those that end generation where
  /// can_end(). Valid until the next call. Throws Error where the grammar is so ambiguous that it would take seconds.
  std::span<const std::uint32_t> mask();
  /// false where the token may not come: nothing changes then.
  bool accept(Token token);
  /// The same for text.
  bool accept(std::string_view bytes);
  /// Whether the text so far is one of the grammar's.
  bool can_end() const;
  /// A token that ends generation was accepted: none may come.
  bool ended() const { return ended_; }

 private:
  CompiledGrammar grammar_;
  std::shared_ptr<GrammarAutomaton> automaton_;
  std::uint32_t state_ = 0;
  bool ended_ = false;
  std::shared_ptr<const std::vector<std::uint32_t>> mask_;
};

}  // namespace cgp::model
