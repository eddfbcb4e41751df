// SPDX-License-Identifier: Apache-2.0
#pragma once
// The 64-bit shared-memory matrix descriptor of wgmma and where it puts each element. PTX ISA 9.7.15.5,
// "Shared Memory Matrix Layout". Offsets are within the CTA's shared memory.
#include <cstdint>

#include "cgp/emu/async/tensor_map.h"

namespace cgp::emu {

struct SmemDescriptor {
  std::uint32_t start = 0, leading = 0, stride = 0;  ///< bytes
  int base_offset = 0;
  int swizzle_bits = 0;  ///< 0 none, 1, 2, 3 for 32, 64, 128 bytes

  static constexpr SmemDescriptor decode(std::uint64_t bits) {
    SmemDescriptor d;
    d.start = std::uint32_t(bits & 0x3fff) << 4;
    d.leading = std::uint32_t(bits >> 16 & 0x3fff) << 4;
    d.stride = std::uint32_t(bits >> 32 & 0x3fff) << 4;
    d.base_offset = int(bits >> 49 & 7);
    const int mode = int(bits >> 62);
    d.swizzle_bits = mode == 0 ? 0 : 4 - mode;
    return d;
  }
  constexpr std::uint32_t span() const { return 16u << swizzle_bits; }  ///< bytes of an atom's row

  /// K-major operand: byte `b` along K (within the instruction) of row `row` (of M or N).
  constexpr std::uint32_t k_major(std::uint32_t row, std::uint32_t b) const {
    if (swizzle_bits == 0) return start + row / 8 * stride + row % 8 * 16 + b / 16 * leading + b % 16;
    return swizzled(start + row / 8 * stride + row % 8 * span() + b % span() + b / span() * leading,
                    swizzle_bits);
  }
  /// MN-major operand: row `k`, byte `b` along M or N.
  constexpr std::uint32_t mn_major(std::uint32_t k, std::uint32_t b) const {
    if (swizzle_bits == 0) return start + b / 16 * stride + b % 16 + k / 8 * leading + k % 8 * 16;
    return swizzled(start + b / span() * leading + b % span() + k / 8 * stride + k % 8 * span(),
                    swizzle_bits);
  }
};

}  // namespace cgp::emu
