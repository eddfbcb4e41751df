// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/tokenizer/model.h"

namespace cgp::model {

namespace {

constexpr double kUnknownPenalty = 10;  // SentencePiece's

[[noreturn]] void bad_charsmap(std::string why) {
  throw ParseError(ErrorText{"a tokenizer's precompiled_charsmap must be a trie and the texts it refers to",
                             "key 'tokenizer.ggml.precompiled_charsmap'",
                             std::move(why),
                             {}});
}

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary, Options options)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  float least = std::numeric_limits<float>::max();
  struct Key {
    std::uint64_t first;  // eight bytes, big-endian: most comparisons need no more
    Token token;
  };
  std::vector<Key> keys;
  keys.reserve(vocabulary.size());
  for (Token t = 0; t < Token(vocabulary.size()); ++t) {
    TokenType type = vocabulary.type(t);
    if (type == TokenType::normal) least = std::min(least, vocabulary.score(t));
    std::string_view word = vocabulary.word(t);
    if (word.empty() || vocabulary.find(word) != t) continue;
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < 8; ++i)
      first = first << 8 | (i < word.size() ? static_cast<unsigned char>(word[i]) : 0);
    keys.push_back({first, t});
    if (type == TokenType::user_defined) user_defined_.push_back(t);
  }
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    return a.first != b.first ? a.first < b.first : vocabulary.word(a.token) < vocabulary.word(b.token);
  });
  buckets_.assign(257, 0);
  for (const Key& k : keys) {
    sorted_.push_back(k.token);
    ++buckets_[(k.first >> 56) + 1];
  }
  for (int b = 0; b < 256; ++b) buckets_[b + 1] += buckets_[b];
  std::stable_sort(user_defined_.begin(), user_defined_.end(),
                   [&](Token a, Token b) { return vocabulary.word(a).size() > vocabulary.word(b).size(); });
  unknown_score_ = least - kUnknownPenalty;

  const std::string& map = options_.precompiled_charsmap;
  if (map.empty()) return;
  std::uint32_t bytes = 0;
  if (map.size() < 4) bad_charsmap(text::cat("it has ", map.size(), " bytes"));
  std::memcpy(&bytes, map.data(), 4);
  if (bytes % 4 != 0 || bytes > map.size() - 4)
    bad_charsmap(text::cat("its trie would have ", bytes, " bytes of ", map.size() - 4));
  trie_.resize(bytes / 4);
  std::memcpy(trie_.data(), map.data() + 4, bytes);
  options_.precompiled_charsmap.erase(0, 4 + bytes);
}

std::size_t UnigramModel::user_defined_prefix(std::string_view text) const {
  for (Token t : user_defined_)
    if (text.starts_with(vocabulary_.word(t))) return vocabulary_.word(t).size();
  return 0;
}

std::pair<std::string_view, std::size_t> UnigramModel::replacement(std::string_view text,
                                                                   std::size_t at) const {
  if (std::size_t n = user_defined_prefix(text.substr(at))) return {text.substr(at, n), n};
  // Darts' double array: a node's value stands at the child of byte 0, whose offset the node has.
  std::size_t longest = 0, found = 0;
  auto node_at = [&](std::size_t i) {
    if (i >= trie_.size()) bad_charsmap("a node lies outside of its trie");
    return trie_[i];
  };
  auto offset = [](std::uint32_t node) { return std::size_t(node >> 10) << ((node & 1u << 9) >> 6); };
  if (!trie_.empty()) {
    std::size_t node = offset(node_at(0));
    for (std::size_t i = at; i < text.size() && text[i] != 0; ++i) {
      auto c = static_cast<unsigned char>(text[i]);
      node ^= c;
      std::uint32_t unit = node_at(node);
      if ((unit & (1u << 31 | 0xff)) != c) break;
      node ^= offset(unit);
      if (unit >> 8 & 1) {
        longest = i + 1 - at;
        found = node_at(node) & 0x7fffffff;
      }
    }
  }
  if (longest > 0) {
    std::string_view texts = options_.precompiled_charsmap;
    std::size_t end = texts.find('\0', found);
    if (found >= texts.size() || end == texts.npos) bad_charsmap("a text lies outside of it");
    return {texts.substr(found, end - found), longest};
  }
  unicode::Decoded c = unicode::decode(text, at);
  if (c.size == 1 && c.point == unicode::kReplacement) return {"\xEF\xBF\xBD", 1};
  return {text.substr(at, c.size), c.size};
}

std::string UnigramModel::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size() * 2);
  const std::string_view space = options_.escape_spaces ? kSpaceSymbol : " ";
  bool prefixed = false, in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    auto [with, size] = replacement(text, at);
    for (char c : with) {
      if (c != ' ') {
        if (!in_word && ((options_.add_space_prefix && !prefixed) || options_.remove_extra_spaces)) {
          out += space;
          prefixed = true;
        }
        in_word = true;
        out += c;
      } else {
        in_word = false;
        if (!options_.remove_extra_spaces) out += space;
      }
    }
    at += size;
  }
  return out;
}

void UnigramModel::encode(std::string_view raw, std::vector<Token>& out) const {
  const std::string text = normalize(raw);
  if (text.empty()) return;
  struct Best {
    double score = -std::numeric_limits<double>::max();
    std::size_t begin = 0;
    Token token = kNoToken;
  };
  std::vector<Best> best(text.size() + 1);
  best[0].score = 0;
  auto offer = [&](std::size_t begin, std::size_t end, double score, Token token) {
    double sum = best[begin].score + score;
    if (sum > best[end].score) best[end] = {sum, begin, token};
  };
  auto byte_at = [&](std::uint32_t i, std::size_t depth) -> int {
    std::string_view word = vocabulary_.word(sorted_[i]);
    return depth < word.size() ? static_cast<unsigned char>(word[depth]) : -1;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t character = unicode::decode(text, at).size;
    bool whole_character = false;
    auto b = static_cast<unsigned char>(text[at]);
    std::uint32_t lo = buckets_[b], hi = buckets_[b + 1];  // the words that begin with text[at, at + depth)
    for (std::size_t depth = 1; lo < hi; ++depth) {
      if (std::string_view word = vocabulary_.word(sorted_[lo]); word.size() == depth) {
        Token t = sorted_[lo];
        whole_character |= depth == character;
        offer(at, at + depth, vocabulary_.type(t) == TokenType::user_defined ? 0 : vocabulary_.score(t), t);
        ++lo;
      }
      if (at + depth == text.size()) break;
      int c = static_cast<unsigned char>(text[at + depth]);
      std::uint32_t end = hi;
      for (std::uint32_t step_end = end; lo < step_end;) {
        std::uint32_t mid = (lo + step_end) / 2;
        if (byte_at(mid, depth) < c)
          lo = mid + 1;
        else
          step_end = mid;
      }
      for (std::uint32_t from = lo; from < hi;) {
        std::uint32_t mid = (from + hi) / 2;
        if (byte_at(mid, depth) <= c)
          from = mid + 1;
        else
          hi = mid;
      }
    }
    if (!whole_character) offer(at, at + character, unknown_score_, options_.unknown);
    at += character;
  }
  const std::size_t first = out.size();
  bool after_unknown = false;
  for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
    Token t = best[end].token;
    bool unknown = t == options_.unknown;
    if (!(unknown && after_unknown) && t != kNoToken) out.push_back(t);
    after_unknown = unknown;
  }
  std::reverse(out.begin() + std::ptrdiff_t(first), out.end());
}

}  // namespace cgp::model
