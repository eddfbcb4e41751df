// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

namespace {
constexpr std::size_t kMaxBytes = (1 << 16) - 1;
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::size_t size) {
  const auto words = Token(tokenizer.vocabulary().size());
  offsets_.push_back(0);
  for (Token t = 0; t < words; ++t) {
    if (tokenizer.ends_generation(t))
      ends_.push_back(t);
    else if (!tokenizer.is_special(t) && tokenizer.vocabulary().type(t) != TokenType::unused)
      bytes_ += tokenizer.piece(t);
    offsets_.push_back(std::uint32_t(bytes_.size()));
  }
  if (size > std::size_t(words)) offsets_.resize(size + 1, offsets_.back());
  build();
}

TokenTrie::TokenTrie(std::vector<std::string> words, std::vector<Token> ends) : ends_(std::move(ends)) {
  offsets_.push_back(0);
  for (std::size_t t = 0; t < words.size(); ++t) {
    if (!is_end(Token(t))) bytes_ += words[t];
    offsets_.push_back(std::uint32_t(bytes_.size()));
  }
  build();
}

bool TokenTrie::is_end(Token token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

std::string_view TokenTrie::bytes(Token token) const {
  if (token < 0 || std::size_t(token) >= size()) return {};
  return std::string_view(bytes_).substr(offsets_[std::size_t(token)],
                                         offsets_[std::size_t(token) + 1] - offsets_[std::size_t(token)]);
}

void TokenTrie::build() {
  // The first eight bytes decide most comparisons.
  struct Word {
    std::uint64_t head;
    Token token;
  };
  std::vector<Word> words;
  for (Token t = 0; std::size_t(t) < size(); ++t) {
    const std::string_view s = bytes(t);
    if (s.empty()) continue;
    if (s.size() > kMaxBytes)
      throw Unsupported(ErrorText{text::cat("a token has at most ", kMaxBytes, " bytes under a grammar"),
                                  text::cat("token ", t),
                                  text::cat("it has ", s.size()),
                                  {}});
    std::uint64_t head = 0;
    for (std::size_t i = 0; i < 8; ++i)
      head = head << 8 | (i < s.size() ? static_cast<unsigned char>(s[i]) : 0u);
    words.push_back({head, t});
    longest_ = std::max(longest_, s.size());
  }
  std::sort(words.begin(), words.end(), [this](const Word& a, const Word& b) {
    if (a.head != b.head) return a.head < b.head;
    const int order = bytes(a.token).compare(bytes(b.token));
    return order != 0 ? order < 0 : a.token < b.token;
  });
  nodes_.push_back({});
  tokens_.reserve(words.size());
  std::vector<std::uint32_t> open = {0};  // the path to the last node
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth + 1; open.pop_back()) nodes_[open.back()].end = std::uint32_t(nodes_.size());
  };
  std::string_view last;
  for (const Word& w : words) {
    const std::string_view s = bytes(w.token);
    const auto shared =
        std::size_t(std::mismatch(s.begin(), s.end(), last.begin(), last.end()).first - s.begin());
    close(shared);
    for (std::size_t i = shared; i < s.size(); ++i) {
      open.push_back(std::uint32_t(nodes_.size()));
      nodes_.push_back({0, std::uint32_t(tokens_.size()), std::uint16_t(i + 1), std::uint8_t(s[i])});
    }
    tokens_.push_back(w.token);
    last = s;
  }
  close(0);
  nodes_[0].end = std::uint32_t(nodes_.size());
  nodes_.push_back({std::uint32_t(nodes_.size() + 1), std::uint32_t(tokens_.size()), 0, 0});
}

}  // namespace cgp::model
