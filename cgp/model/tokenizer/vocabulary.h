// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words of a tokenizer: their bytes, types and scores by id, and their ids by bytes.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::model {

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

/// Numbers as in tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

class Vocabulary {
 public:
  /// Room for `count` words of `bytes` in all.
  void reserve(std::size_t count, std::size_t bytes);
  /// The next id is size(). find() knows normal, user-defined and unused words; of equal ones the last.
  Token add(std::string_view word, TokenType type, float score);

  std::size_t size() const { return types_.size(); }
  bool has(Token t) const { return t >= 0 && std::size_t(t) < size(); }
  /// Of a normal word of a byte-level vocabulary: bytes, otherwise as the file spells it.
  std::string_view word(Token t) const {
    return std::string_view(bytes_).substr(ends_[t], ends_[t + 1] - ends_[t]);
  }
  TokenType type(Token t) const { return types_[t]; }
  void set_type(Token t, TokenType type) { types_[t] = type; }
  float score(Token t) const { return scores_[t]; }
  std::size_t longest() const { return longest_; }

  static std::uint64_t hash(std::string_view word);
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }
  /// kNoToken where there is none.
  Token find(std::string_view word) const { return find(word, hash(word)); }
  Token find(std::string_view word, std::uint64_t hash) const;
  /// Of any type: a search through all words.
  Token find_any(std::string_view word) const;

  /// The tokens "<0x00>" to "<0xFF>" of type byte; kNoToken where there is none.
  const std::array<Token, 256>& byte_tokens() const { return byte_tokens_; }

 private:
  /// A word of up to eight bytes is compared without another access to memory.
  struct Slot {
    std::uint64_t head = 0;  // its first eight bytes
    std::uint32_t size = 0;
    Token token = kNoToken;
  };
  static std::uint64_t head(std::string_view word);
  bool is(const Slot& slot, std::uint64_t head, std::string_view word) const {
    return slot.head == head && slot.size == word.size() &&
           (word.size() <= 8 || this->word(slot.token) == word);
  }
  void insert(Token token, std::uint64_t hash);
  void grow();

  std::string bytes_;
  std::vector<std::uint32_t> ends_ = {0};
  std::vector<TokenType> types_;
  std::vector<float> scores_;
  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::uint64_t mask_ = 15;
  std::size_t used_ = 0, longest_ = 0;
  std::array<Token, 256> byte_tokens_ = [] {
    std::array<Token, 256> a;
    a.fill(kNoToken);
    return a;
  }();
};

/// Mixes 64 bits with a seed that every process draws anew, so that no file can be made to collide.
std::uint64_t seeded_hash(std::uint64_t value);

}  // namespace cgp::model
