// SPDX-License-Identifier: Apache-2.0
#pragma once
// SplitMix64: the seeded source of every random buffer (tests, launch specs, benchmarks). The same
// everywhere.
#include <cstdint>

namespace cgp {

class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// In [0, 1), 24 bits of it: exact in float.
  constexpr double uniform() { return double(next() >> 40) / 16777216.0; }
  constexpr double uniform(double lo, double hi) { return lo + (hi - lo) * uniform(); }
  /// Mean 0, variance 1: a sum of twelve uniforms (bounded by 6; tails do not matter for test data).
  constexpr double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t state_;
};

}  // namespace cgp
