// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "cgp/model/tokenizer/model.h"

namespace cgp::model {

namespace {

/// Orders as the floats do, the greatest first; never Merge::kNever.
std::uint32_t priority(float score) {
  auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // + 0: -0 is 0
  std::uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, Merge::kNever - 1);
}

}  // namespace

bool has_inner_space(std::string_view word) {
  bool other = false;
  for (std::size_t at = 0; at < word.size();) {
    bool space = word.substr(at, 3) == kSpaceSymbol;
    if (space && other) return true;
    other |= !space;
    at += unicode::decode(word, at).size;
  }
  return false;
}

SentencePieceBpeModel::SentencePieceBpeModel(const Vocabulary& vocabulary, Token unknown)
    : vocabulary_(vocabulary), unknown_(unknown), cuts_at_spaces_(true), whole_(vocabulary.size()) {
  for (Token t = 0; t < Token(vocabulary.size()) && cuts_at_spaces_; ++t)
    cuts_at_spaces_ = !has_inner_space(vocabulary.word(t));
}

void SentencePieceBpeModel::merge_piece(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  for (std::uint32_t at = 0; at < piece.size();) {
    std::uint32_t size = unicode::decode(piece, at).size;
    symbols.push_back({at, at + size, vocabulary_.find(piece.substr(at, size))});
    at += size;
  }
  merge_symbols(symbols, [&](const Symbol& a, const Symbol& b) -> Merge {
    if (b.end - a.begin > vocabulary_.longest()) return {};
    Token token = vocabulary_.find(piece.substr(a.begin, b.end - a.begin));
    return token == kNoToken ? Merge{} : Merge{priority(vocabulary_.score(token)), token};
  });
}

void SentencePieceBpeModel::encode_piece(std::string_view piece, std::vector<Token>& out) const {
  static thread_local std::vector<Symbol> symbols;
  if (Token word = vocabulary_.find(piece); word != kNoToken && whole_.is(word, [&] {
        merge_piece(piece, symbols);
        return symbols.size() == 1;
      })) {
    out.push_back(word);
    return;
  }
  merge_piece(piece, symbols);
  for (const Symbol& s : symbols) {
    if (s.token != kNoToken) {
      out.push_back(s.token);
      continue;
    }
    for (char c : piece.substr(s.begin, s.end - s.begin)) {
      Token byte = vocabulary_.byte_tokens()[static_cast<unsigned char>(c)];
      if (byte == kNoToken) byte = unknown_;
      if (byte != kNoToken) out.push_back(byte);
    }
  }
}

void SentencePieceBpeModel::encode(std::string_view text, std::vector<Token>& out) const {
  std::string escaped = escape_spaces(text);
  std::string_view all(escaped);
  if (!cuts_at_spaces_) {
    encode_piece(all, out);
    return;
  }
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (all.substr(end, 3) == kSpaceSymbol) end += 3;
    end = std::min(all.find(kSpaceSymbol, end), all.size());
    encode_piece(all.substr(begin, end - begin), out);
    begin = end;
  }
}

}  // namespace cgp::model
