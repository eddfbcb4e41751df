// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operands of benchmarks: random values on the device, of any element type.
#include <cstdint>
#include <map>
#include <utility>

#include "cgp/kernels/common/array.h"
#include "cgp/runtime/stream.h"

namespace cgp::kernels {

/// Normally distributed values (integers: -8 to 8) made once for each type and seed, and repeated on the
/// device: random data without a long wait on the host.
class RandomOperands {
 public:
  explicit RandomOperands(const runtime::Device& d) : device_(d) {}
  /// n elements as bytes.
  runtime::Buffer<std::uint8_t> operator()(DType t, std::uint64_t n, std::uint64_t seed) {
    const std::uint64_t size = std::uint64_t(bytes(t)), all = n * size;
    auto& pool = pools_[{t, seed}];
    if (pool.empty()) {
      const auto host = random_array(t, {kPool}, seed);
      pool = device_.upload<std::uint8_t>(typed<std::uint8_t>(host));
    }
    runtime::Buffer<std::uint8_t> out(device_, all);
    auto& s = device_.stream();
    for (std::uint64_t have = 0; have < all;) {
      const auto more = std::min<std::uint64_t>(have ? have : kPool * size, all - have);
      const runtime::Slice<const std::uint8_t> from = have ? out.slice(0, more) : pool.slice(0, more);
      s.copy<std::uint8_t>(out.slice(have, more), from);
      have += more;
    }
    s.wait();
    return out;
  }

 private:
  static constexpr std::uint64_t kPool = (1 << 21) - 3;  // odd: rows do not repeat
  runtime::Device device_;
  std::map<std::pair<DType, std::uint64_t>, runtime::Buffer<std::uint8_t>> pools_;
};

}  // namespace cgp::kernels
