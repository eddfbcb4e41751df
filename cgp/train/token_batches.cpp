// SPDX-License-Identifier: Apache-2.0
#include "cgp/train/token_batches.h"

#include <numeric>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"

namespace cgp::train {

TokenBatches::TokenBatches(std::vector<std::int32_t> tokens, std::uint64_t sequence, std::uint64_t seed)
    : tokens_(std::move(tokens)), sequence_(sequence), seed_(seed) {
  if (!sequence || tokens_.size() < sequence + 1)
    throw ArgumentError({"a window needs sequence + 1 tokens", "TokenBatches",
                         text::cat("there are ", tokens_.size(), ", sequence is ", sequence),
                         "give a longer text or a shorter sequence"});
}

TokenBatches::Batch TokenBatches::batch(std::uint64_t step, std::uint64_t count) {
  Batch b;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t number = step * count + i, epoch = number / windows();
    if (epoch != epoch_) {
      order_.resize(windows());
      std::iota(order_.begin(), order_.end(), 0u);
      SplitMix64 random(SplitMix64(seed_ * 0x9E3779B97F4A7C15ull + epoch).next());
      for (std::size_t n = order_.size(); n > 1; --n) std::swap(order_[n - 1], order_[random.next() % n]);
      epoch_ = epoch;
    }
    const auto first = tokens_.begin() + std::ptrdiff_t(order_[number % windows()] * sequence_);
    b.inputs.insert(b.inputs.end(), first, first + std::ptrdiff_t(sequence_));
    b.targets.insert(b.targets.end(), first + 1, first + 1 + std::ptrdiff_t(sequence_));
  }
  return b;
}

std::vector<std::int32_t> byte_tokens(std::span<const char> text) {
  std::vector<std::int32_t> out;
  for (char c : text) out.push_back(std::int32_t(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace cgp::train
