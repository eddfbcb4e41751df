// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tokens of a vocabulary by their bytes: built once for a tokenizer, shared by all grammars.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cgp/model/tokenizer/tokenizer.h"

namespace cgp::model {

class TokenTrie {
 public:
  /// Of the tokens that stand for text; those that end generation are ends(). `size`: bits of a mask, where the model has more
  /// logits than the tokenizer words.
  explicit TokenTrie(const Tokenizer& tokenizer, std::size_t size = 0);
  /// words[t] are the bytes of token t; an empty word is never allowed.
  TokenTrie(std::vector<std::string> words, std::vector<Token> ends);

  /// In depth-first order: children follow, up to node `end`.
  struct Node {
    std::uint32_t end = 0;
    std::uint32_t tokens = 0;  ///< its first in tokens(); those of the next node follow
    std::uint16_t depth = 0;   ///< of the root 0
    std::uint8_t byte = 0;     ///< the last of its bytes
  };
  /// The root, and one more than there are, whose `tokens` ends the list.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Token> tokens() const { return tokens_; }
  std::span<const Token> ends() const { return ends_; }
  bool is_end(Token token) const;
  /// Bytes of a token; empty where it stands for no text.
  std::string_view bytes(Token token) const;
  /// Tokens, with those without text: bits of a mask.
  std::size_t size() const { return offsets_.size() - 1; }
  std::size_t longest() const { return longest_; }

 private:
  void build();
  std::string bytes_;
  std::vector<std::uint32_t> offsets_;
  std::vector<Token> ends_, tokens_;
  std::vector<Node> nodes_;
  std::size_t longest_ = 0;
};

}  // namespace cgp::model
