// SPDX-License-Identifier: Apache-2.0
#pragma once
// The four ways from text without special tokens to ids. Each is safe to use from several threads.
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cgp/model/tokenizer/merge.h"
#include "cgp/model/tokenizer/vocabulary.h"
#include "cgp/model/unicode/regex.h"

namespace cgp::model {

class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  /// Appends the ids of `text`.
  virtual void encode(std::string_view text, std::vector<Token>& out) const = 0;
};

/// Which words merging makes of their own text, found out when a word is met first: then a word needs one look-up.
class WholeWords {
 public:
  explicit WholeWords(std::size_t words) : states_(std::make_unique<std::atomic<std::uint8_t>[]>(words)) {}
  template <class F>
  bool is(Token word, F&& merges_to_itself) const {
    std::uint8_t state = states_[word].load(std::memory_order_relaxed);
    if (state == 0) {
      state = merges_to_itself() ? 1 : 2;
      states_[word].store(state, std::memory_order_relaxed);
    }
    return state == 1;
  }

 private:
  std::unique_ptr<std::atomic<std::uint8_t>[]> states_;
};

/// Byte-pair encoding (Sennrich et al. 2016; GPT-2's bytes).
class BytePairModel : public TokenizerModel {
 public:
  struct Options {
    std::vector<std::string> patterns;  ///< each cuts what the ones before it left whole
    bool byte_level = true;             ///< symbols are bytes; otherwise characters, and bytes as <0xXX>
    bool ignore_merges = false;         ///< a word of the vocabulary is taken without merging
    bool escape_spaces = false;         ///< ' ' is U+2581
    bool newlines_whole = false;        ///< a run of newlines that is a word is taken without merging
    Token unknown = kNoToken;
  };
  /// `vocabulary` must outlive the model.
  BytePairModel(const Vocabulary& vocabulary, Options options);

  /// The merges in order of priority, as the file spells them. Returns the first whose parts, or both together, are no
  /// words of the vocabulary; merges.size() where there is none.
  std::size_t add_merges(std::span<const std::pair<std::string_view, std::string_view>> merges);
  void encode(std::string_view text, std::vector<Token>& out) const override;

 private:
  struct Pair {
    std::uint64_t key = ~0ull;
    Merge merge;
  };
  void insert(const Pair& pair);
  Merge find(Token left, Token right) const;
  void encode_piece(std::string_view piece, std::vector<Token>& out) const;
  void merge_piece(std::string_view piece, std::vector<Symbol>& symbols) const;

  const Vocabulary& vocabulary_;
  Options options_;
  std::vector<unicode::Regex> patterns_;
  std::array<Token, 256> first_;  // of one-byte words
  std::vector<Pair> pairs_;
  std::uint64_t mask_ = 0;
  WholeWords whole_;
};

/// SentencePiece's BPE: of all neighbours that make a word, the one of the highest score is merged first.
/// Spaces are U+2581; characters that are no words become bytes <0xXX>, or `unknown`.
class SentencePieceBpeModel : public TokenizerModel {
 public:
  SentencePieceBpeModel(const Vocabulary& vocabulary, Token unknown);
  void encode(std::string_view text, std::vector<Token>& out) const override;

 private:
  void encode_piece(std::string_view piece, std::vector<Token>& out) const;
  void merge_piece(std::string_view piece, std::vector<Symbol>& symbols) const;

  const Vocabulary& vocabulary_;
  Token unknown_;
  bool cuts_at_spaces_;  // no word has a space after another character
  WholeWords whole_;
};

/// SentencePiece's unigram model (Kudo 2018): the segmentation of the highest sum of scores.
class UnigramModel : public TokenizerModel {
 public:
  struct Options {
    bool add_space_prefix = true;
    bool remove_extra_spaces = false;
    bool escape_spaces = true;
    std::string precompiled_charsmap;  ///< the normalizer's bytes as SentencePiece writes them; may be empty
    Token unknown = kNoToken;
  };
  /// ParseError where the charsmap is not what it must be.
  UnigramModel(const Vocabulary& vocabulary, Options options);
  void encode(std::string_view text, std::vector<Token>& out) const override;

 private:
  std::string normalize(std::string_view text) const;
  /// The text that replaces a prefix of text[at…], and the size of that prefix.
  std::pair<std::string_view, std::size_t> replacement(std::string_view text, std::size_t at) const;
  std::size_t user_defined_prefix(std::string_view text) const;

  const Vocabulary& vocabulary_;
  Options options_;
  std::vector<Token> sorted_;           // by bytes
  std::vector<std::uint32_t> buckets_;  // where each first byte begins in sorted_
  std::vector<Token> user_defined_;     // longest first
  std::vector<std::uint32_t> trie_;     // of the charsmap
  double unknown_score_ = 0;
};

/// BERT's WordPiece over its basic tokenizer: the longest word first, continuations without U+2581 before them.
class WordPieceModel : public TokenizerModel {
 public:
  struct Options {
    bool lowercase = true, strip_accents = true;
    std::size_t longest_word = ~std::size_t(0);  ///< in characters: a longer one is unknown
    Token unknown = kNoToken;
  };
  WordPieceModel(const Vocabulary& vocabulary, Options options)
      : vocabulary_(vocabulary), options_(options) {}
  void encode(std::string_view text, std::vector<Token>& out) const override;

 private:
  void encode_word(std::string_view word, std::vector<Token>& out) const;

  const Vocabulary& vocabulary_;
  Options options_;
};

inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
/// Appends what GPT-2's spelling of bytes stands for: printable characters are themselves, the others are code points
/// from U+0100 on. Returns false, and appends the text itself, where it has other characters.
bool append_unspelled(std::string& out, std::string_view text);
/// Every ' ' as U+2581.
std::string escape_spaces(std::string_view text);
/// Whether U+2581 follows another character in `word`.
bool has_inner_space(std::string_view word);

}  // namespace cgp::model
