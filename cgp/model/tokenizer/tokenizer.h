// SPDX-License-Identifier: Apache-2.0
#pragma once
// From text to the ids that a model reads, and back.
//
// Ids are those of the model's own tokenizer (Hugging Face tokenizers, SentencePiece), with special tokens found
// leftmost, the longest first. Byte-level vocabularies keep every byte: decode(encode(x)) == x for any bytes x. The
// others need UTF-8; a byte that is no part of a character is U+FFFD there, or its byte token.
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/model/source/source.h"
#include "cgp/model/tokenizer/vocabulary.h"

namespace cgp::model {

class TokenizerModel;

struct EncodeOptions {
  bool add_special = true;  ///< what the model wants before and after: bos, eos, [CLS], [SEP]
  bool parse_special =
      false;  ///< "<|im_end|>" in the text is that token; otherwise it is text like any other
};

class Tokenizer {
 public:
  /// From the keys tokenizer.ggml.*; `file` may go afterwards. Throws ParseError that names the key, and Unsupported for
  /// a kind of tokenizer that is not here.
  static Tokenizer from_gguf(const Source& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The bytes of all tokens, without the space that encode() put before the text. Special tokens are written as they
  /// are spelled, or left out. Throws ArgumentError for an id that is not in the vocabulary.
  std::string decode(std::span<const Token> tokens, bool skip_special = false) const;
  /// Bytes that `token` adds to the text.
  std::string piece(Token token) const;

  const Vocabulary& vocabulary() const;
  /// "bpe", "sentencepiece", "unigram", "wordpiece".
  std::string_view kind() const;
  /// As the file names it; empty where it names none.
  const std::string& pre_tokenizer() const;

  /// kNoToken where the model has none.
  struct Special {
    Token bos = kNoToken, eos = kNoToken, unknown = kNoToken, separator = kNoToken, padding = kNoToken,
          mask = kNoToken, end_of_turn = kNoToken, end_of_message = kNoToken;
  };
  const Special& special() const;
  bool adds_bos() const;
  bool adds_eos() const;
  /// Whether generation ends with this token: eos, end of turn, end of message and their like.
  bool ends_generation(Token token) const;
  /// Control and unknown tokens, which stand for no text.
  bool is_special(Token token) const;
  /// The Jinja chat template of the file, empty where it has none; `name` is one of tokenizer.chat_template.NAME.
  const std::string& chat_template() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Text of tokens as they come. What push() gives is valid UTF-8: the begin of a character waits for its end, and bytes
/// that are no character become U+FFFD.
class StreamDecoder {
 public:
  /// `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  std::string push(Token token);
  /// What still waits, as U+FFFD. The decoder then begins anew.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_, first_ = true;
  std::string pending_;
};

}  // namespace cgp::model
