// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a tokenizer consists of: the loaders fill it.
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cgp/model/tokenizer/model.h"
#include "cgp/model/tokenizer/tokenizer.h"

namespace cgp::model {

struct Tokenizer::Parts {
  std::string kind, pre_tokenizer, chat_template;
  Vocabulary vocabulary;
  std::unique_ptr<TokenizerModel> model;
  Special special;
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = false;     ///< before the text and after each special token
  bool prefix_is_models = false;     ///< the model adds it itself
  bool prefix_once = false;          ///< not after special tokens
  bool prefix_unless_space = false;  ///< not before a text that begins with a space
  bool composed = false;             ///< text is brought into NFC first
  bool escaped_spaces = false;       ///< words have U+2581 for ' '
  std::set<Token> ends_generation;

  /// A token that is found in the text before the model sees it.
  struct Added {
    Token token;
    bool strip_left = false, strip_right = false;  ///< takes the white space beside it
  };
  std::array<std::vector<Added>, 256> added;  ///< by first byte, the longest first
  void add_added(Token token, bool strip_left, bool strip_right);
  void sort_added();
  /// Words that end generation by their spelling, and eos, end of turn and end of message. All become control tokens.
  void mark_ends();

  void append_piece(std::string& out, Token token) const;
  bool is_special(Token token) const {
    TokenType type = vocabulary.type(token);
    return type == TokenType::control || type == TokenType::unknown;
  }
};

}  // namespace cgp::model
