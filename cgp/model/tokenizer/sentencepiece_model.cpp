// SPDX-License-Identifier: Apache-2.0
// tokenizer.model: the protocol buffer of sentencepiece_model.proto (ModelProto) that SentencePiece writes.
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/files/mapped_file.h"
#include "cgp/model/tokenizer/tokenizer_folder.h"

namespace cgp::model {

using text::cat;

namespace {

/// The fields of one message, front to back.
class ProtoCursor {
 public:
  ProtoCursor(std::string_view bytes, const std::string& path, std::size_t base)
      : bytes_(bytes), path_(path), base_(base) {}

  [[noreturn]] void fail(std::string rule, std::string why) const {
    throw ParseError(ErrorText{std::move(rule), cat(path_, ", byte ", base_ + at_), std::move(why), {}});
  }

  /// False at the end; then number(), and one of the readers for its wire type.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t tag = varint();
    number_ = tag >> 3, wire_ = int(tag & 7);
    if (number_ == 0) fail("a field must have a number above 0", "it is 0");
    return true;
  }
  std::uint64_t number() const { return number_; }

  std::uint64_t integer() {
    want(0);
    return varint();
  }
  float number32() {
    want(5);
    float value;
    std::memcpy(&value, take(4).data(), 4);
    return value;
  }
  std::string_view bytes() {
    want(2);
    return take(varint());
  }
  ProtoCursor message() {
    const std::string_view inner = bytes();
    return {inner, path_, base_ + at_ - inner.size()};
  }
  void skip() {
    switch (wire_) {
      case 0:
        return void(varint());
      case 1:
        return void(take(8));
      case 2:
        return void(take(varint()));
      case 5:
        return void(take(4));
      default:
        fail("a field must have wire type 0, 1, 2 or 5", cat("it has ", wire_));
    }
  }

 private:
  void want(int wire) const {
    if (wire_ != wire) fail(cat("field ", number_, " must have wire type ", wire), cat("it has ", wire_));
  }
  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_)
      fail("a field must lie in its message", cat(n, " bytes, ", bytes_.size() - at_, " are left"));
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
    fail("a number must have at most ten bytes", "it goes on");
  }

  std::string_view bytes_;
  const std::string& path_;
  std::size_t base_, at_ = 0;
  std::uint64_t number_ = 0;
  int wire_ = 0;
};

}  // namespace

void read_sentencepiece_model(const std::string& path, Tokenizer::Parts& p) {
  const MappedFile file(path);
  ProtoCursor in({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path, 0);
  constexpr std::uint64_t kUnigram = 1, kBpe = 2;
  std::uint64_t kind = kUnigram;
  // The proto's defaults. Negative ids are numbers above 2^63.
  std::uint64_t bos = 1, eos = 2, unknown = 0, padding = ~0ull;
  bool prefix = true, extra_spaces_removed = true, escapes = true, suffix = false;
  std::string charsmap;
  while (in.next()) {
    if (in.number() == 1) {  // SentencePiece
      ProtoCursor piece = in.message();
      std::string_view word;
      float score = 0;
      std::uint64_t type = 1;
      while (piece.next()) {
        if (piece.number() == 1)
          word = piece.bytes();
        else if (piece.number() == 2)
          score = piece.number32();
        else if (piece.number() == 3)
          type = piece.integer();
        else
          piece.skip();
      }
      if (type < 1 || type > 6) piece.fail("the type of a piece must be one of 1 to 6", cat("it is ", type));
      if (score != score) piece.fail("a score must be a number", cat("that of '", word, "' is none"));
      p.vocabulary.add(word, TokenType(type), score);
    } else if (in.number() == 2) {  // TrainerSpec
      ProtoCursor spec = in.message();
      while (spec.next()) {
        if (spec.number() == 3)
          kind = spec.integer();
        else if (spec.number() == 24)
          suffix = spec.integer() != 0;
        else if (spec.number() == 40)
          unknown = spec.integer();
        else if (spec.number() == 41)
          bos = spec.integer();
        else if (spec.number() == 42)
          eos = spec.integer();
        else if (spec.number() == 43)
          padding = spec.integer();
        else
          spec.skip();
      }
    } else if (in.number() == 3) {  // NormalizerSpec
      ProtoCursor spec = in.message();
      while (spec.next()) {
        if (spec.number() == 2)
          charsmap = spec.bytes();
        else if (spec.number() == 3)
          prefix = spec.integer() != 0;
        else if (spec.number() == 4)
          extra_spaces_removed = spec.integer() != 0;
        else if (spec.number() == 5)
          escapes = spec.integer() != 0;
        else
          spec.skip();
      }
    } else {
      in.skip();
    }
  }
  const auto unsupported = [&](std::string rule, std::string why) {
    throw Unsupported(ErrorText{std::move(rule), path, std::move(why), {}});
  };
  if (p.vocabulary.size() == 0) in.fail("a vocabulary must have pieces", "there is none");
  if (kind != kUnigram && kind != kBpe)
    unsupported("the model_type is UNIGRAM or BPE", cat("it is number ", kind));
  if (suffix) unsupported("white space comes before a word", "treat_whitespace_as_suffix is true");
  for (auto [id, token] : {std::pair(bos, &p.special.bos), std::pair(eos, &p.special.eos),
                           std::pair(unknown, &p.special.unknown), std::pair(padding, &p.special.padding)})
    if (id < p.vocabulary.size()) *token = Token(id);
  for (Token t = 0; t < Token(p.vocabulary.size()); ++t)
    if (const TokenType type = p.vocabulary.type(t);
        type == TokenType::control || type == TokenType::user_defined || type == TokenType::unknown)
      p.add_added(t, false, false);
  p.sort_added();
  p.escaped_spaces = true;
  p.add_space_prefix = prefix;
  if (kind == kBpe) {
    if (extra_spaces_removed || !escapes || !charsmap.empty())
      unsupported("BPE takes the text as it is, with spaces as U+2581",
                  extra_spaces_removed ? "remove_extra_whitespaces is true"
                  : !escapes           ? "escape_whitespaces is false"
                                       : "precompiled_charsmap is there");
    p.kind = "sentencepiece";
    p.add_bos = true;  // as Llama's tokenizer does; tokenizer_config.json says otherwise
    p.model = std::make_unique<SentencePieceBpeModel>(p.vocabulary, p.special.unknown);
    return;
  }
  p.kind = "unigram";
  p.add_eos = p.prefix_is_models = true;  // as T5's tokenizer does
  UnigramModel::Options options;
  options.add_space_prefix = prefix;
  options.remove_extra_spaces = extra_spaces_removed;
  options.escape_spaces = escapes;
  options.precompiled_charsmap = charsmap;
  options.unknown = p.special.unknown;
  p.model = std::make_unique<UnigramModel>(p.vocabulary, std::move(options));
}

}  // namespace cgp::model
