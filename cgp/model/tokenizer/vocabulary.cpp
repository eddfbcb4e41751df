// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/tokenizer/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/hash.h"

namespace cgp::model {

namespace {

const std::uint64_t kSeed = [] {
  std::random_device device;
  return std::uint64_t(device()) << 32 | device();
}();

template <class T>
std::uint64_t load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::uint64_t seeded_hash(std::uint64_t value) { return Hash128::fold(value ^ kSeed, 0x9E3779B97F4A7C15ull); }

std::uint64_t Vocabulary::hash(std::string_view word) {
  const char* p = word.data();
  std::size_t n = word.size();
  std::uint64_t h = kSeed ^ n;
  for (; n > 16; p += 16, n -= 16)
    h = Hash128::fold(h ^ load<std::uint64_t>(p), load<std::uint64_t>(p + 8) ^ 0x9E3779B97F4A7C15ull);
  std::uint64_t a = 0, b = 0;
  if (n >= 8) {
    a = load<std::uint64_t>(p);
    b = load<std::uint64_t>(p + n - 8);
  } else if (n >= 4) {
    a = load<std::uint32_t>(p);
    b = load<std::uint32_t>(p + n - 4);
  } else if (n > 0) {
    a = load<unsigned char>(p) | load<unsigned char>(p + n / 2) << 8 | load<unsigned char>(p + n - 1) << 16;
  }
  return Hash128::fold(h ^ a ^ 0xBF58476D1CE4E5B9ull, b ^ 0x9E3779B97F4A7C15ull ^ (h << 1));
}

void Vocabulary::reserve(std::size_t count, std::size_t bytes) {
  bytes_.reserve(bytes);
  ends_.reserve(count + 1);
  types_.reserve(count);
  scores_.reserve(count);
  while (slots_.size() < count * 2) slots_.resize(slots_.size() * 2);
  mask_ = slots_.size() - 1;
}

Token Vocabulary::add(std::string_view word, TokenType type, float score) {
  if (bytes_.size() + word.size() > 0xffffffffu || size() >= 0x7fffffff)
    throw Unsupported("a vocabulary has less than 4 GiB of words, and 2^31 of them");
  Token token = Token(size());
  bytes_ += word;
  ends_.push_back(std::uint32_t(bytes_.size()));
  types_.push_back(type);
  scores_.push_back(score);
  if (type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused) {
    longest_ = std::max(longest_, word.size());
    if (used_ * 2 >= slots_.size()) grow();
    insert(token, hash(word));
  } else if (type == TokenType::byte && word.size() == 6 && word.substr(0, 3) == "<0x") {
    int high = hex_digit(word[3]), low = hex_digit(word[4]);
    if (high >= 0 && low >= 0) byte_tokens_[high * 16 + low] = token;
  }
  return token;
}

std::uint64_t Vocabulary::head(std::string_view word) {
  const char* p = word.data();
  std::size_t n = word.size();
  if (n >= 8) return load<std::uint64_t>(p);
  if (n >= 4) return load<std::uint32_t>(p) | std::uint64_t(load<std::uint32_t>(p + n - 4)) << 8 * (n - 4);
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < n; ++i) out |= std::uint64_t(load<unsigned char>(p + i)) << 8 * i;
  return out;
}

void Vocabulary::insert(Token token, std::uint64_t hash) {
  std::string_view word = this->word(token);
  const std::uint64_t first = head(word);
  for (std::uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.token == kNoToken) ++used_;
    if (slot.token == kNoToken || is(slot, first, word)) {
      slot = {first, std::uint32_t(word.size()), token};
      return;
    }
  }
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  used_ = 0;
  for (const Slot& s : old)
    if (s.token != kNoToken) insert(s.token, hash(word(s.token)));
}

Token Vocabulary::find(std::string_view word, std::uint64_t hash) const {
  const std::uint64_t first = head(word);
  for (std::uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
    const Slot& slot = slots_[i];
    if (slot.token == kNoToken || is(slot, first, word)) return slot.token;
  }
}

Token Vocabulary::find_any(std::string_view word) const {
  for (Token t = 0; t < Token(size()); ++t)
    if (this->word(t) == word) return t;
  return kNoToken;
}

}  // namespace cgp::model
