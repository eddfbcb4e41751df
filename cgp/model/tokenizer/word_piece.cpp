// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cgp/model/tokenizer/model.h"

namespace cgp::model {

namespace {

/// The blocks that BERT's basic tokenizer calls Chinese.
bool is_chinese(std::uint32_t p) {
  return (p >= 0x4E00 && p <= 0x9FFF) || (p >= 0x3400 && p <= 0x4DBF) || (p >= 0x20000 && p <= 0x2A6DF) ||
         (p >= 0x2A700 && p <= 0x2B73F) || (p >= 0x2B740 && p <= 0x2B81F) || (p >= 0x2B920 && p <= 0x2CEAF) ||
         (p >= 0xF900 && p <= 0xFAFF) || (p >= 0x2F800 && p <= 0x2FA1F);
}

bool is_punctuation(std::uint32_t p) {
  static const unicode::CategorySet set = unicode::category_set("P");
  if (p < 128)
    return (p >= 33 && p <= 47) || (p >= 58 && p <= 64) || (p >= 91 && p <= 96) || (p >= 123 && p <= 126);
  return set >> unicode::category(p) & 1;
}

bool is_control(std::uint32_t p) {
  unicode::Category c = unicode::category(p);
  return p == 0 || p == unicode::kReplacement ||
         ((c == unicode::Cc || c == unicode::Cf || c == unicode::Cn || c == unicode::Co) &&
          !unicode::is_space(p));
}

}  // namespace

void WordPieceModel::encode(std::string_view text, std::vector<Token>& out) const {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    unicode::Decoded c = unicode::decode(text, at);
    at += c.size;
    if (!is_control(c.point)) unicode::append(clean, unicode::is_space(c.point) ? ' ' : c.point);
  }
  if (options_.strip_accents) clean = unicode::nfd(clean);
  std::string word;
  auto finish = [&] {
    if (!word.empty()) encode_word(word, out);
    word.clear();
  };
  for (std::size_t at = 0; at < clean.size();) {
    unicode::Decoded c = unicode::decode(clean, at);
    at += c.size;
    if (c.point == ' ') {
      finish();
      continue;
    }
    if (options_.strip_accents && unicode::category(c.point) == unicode::Mn) continue;
    std::uint32_t p = options_.lowercase ? unicode::lower(c.point) : c.point;
    bool alone = is_punctuation(p) || is_chinese(p);
    if (alone) finish();
    unicode::append(word, p);
    if (options_.lowercase && c.point == 0x130) word.replace(word.size() - 2, 2, "i\xCC\x87");
    if (alone) finish();
  }
  finish();
}

void WordPieceModel::encode_word(std::string_view word, std::vector<Token>& out) const {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < word.size(); at += unicode::decode(word, at).size) ++characters;
  if (characters > options_.longest_word) {
    if (options_.unknown != kNoToken) out.push_back(options_.unknown);
    return;
  }
  const std::string marked = std::string(kSpaceSymbol) + std::string(word);
  const std::string_view all(marked);
  const std::size_t first = out.size();
  for (std::size_t at = 0; at < all.size();) {
    std::size_t size = std::min(all.size() - at, vocabulary_.longest());
    Token token = kNoToken;
    for (; size > 0; --size)
      if (token = vocabulary_.find(all.substr(at, size)); token != kNoToken) break;
    if (token == kNoToken) {  // one part unknown: the word is
      out.resize(first);
      if (options_.unknown != kNoToken) out.push_back(options_.unknown);
      return;
    }
    out.push_back(token);
    at += size;
  }
}

}  // namespace cgp::model
