// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batches from one long list of tokens: it is cut into windows of `sequence` tokens, each with the one that follows, and every
// epoch visits all windows once, in an order drawn from seed and epoch. What a step gets follows from its number alone, so
// that a run which is resumed sees the same.
#include <cstdint>
#include <span>
#include <vector>

namespace cgp::train {

class TokenBatches {
 public:
  /// ArgumentError where there are fewer than sequence + 1 tokens.
  TokenBatches(std::vector<std::int32_t> tokens, std::uint64_t sequence, std::uint64_t seed);

  struct Batch {
    std::vector<std::int32_t> inputs, targets;  ///< [count][sequence]
  };
  /// The `count` windows of a step, from 0 on.
  Batch batch(std::uint64_t step, std::uint64_t count);
  std::uint64_t windows() const { return (tokens_.size() - 1) / sequence_; }  ///< of an epoch

 private:
  std::vector<std::int32_t> tokens_;
  std::uint64_t sequence_, seed_, epoch_ = ~0ull;
  std::vector<std::uint32_t> order_;  ///< of epoch_
};

/// The bytes of a text as tokens of a vocabulary of 256.
std::vector<std::int32_t> byte_tokens(std::span<const char> text);

}  // namespace cgp::train
