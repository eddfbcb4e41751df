// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of block-scaled matrix instructions (tcgen05.mma and mma.sync of sm_120). They follow the published
// models of the unit: mxf8f6f4 is one fused sum at 25 fractional bits with the scales' exponents added to
// those of the products; mxf4 and mxf4nvf4 add groups of 16 products exactly, multiply by the scales and fuse
// the groups with C at 35 bits, aligned to the scales' exponents.
#include <vector>

#include "cgp/emu/tensor/tensor_core.h"

namespace cgp::emu {

/// significand / 8 * 2^exponent
struct BlockScale {
  std::int32_t significand = 8;
  int exponent = 0;
  bool nan = false;
  double value() const;
};
/// One byte: ue8m0, or ue4m3 (whose sign bit does not count).
BlockScale decode_scale(std::uint32_t code, bool ue8m0);

/// One row of A or column of B.
struct ScaledElements {
  std::vector<std::int32_t> significand;  ///< value = significand / 8 * 2^exponent
  std::vector<int> exponent;
  std::vector<float> value;
  bool special = false;  ///< has an infinity or a NaN
  void add(ptx::Mod type, std::uint32_t bits, bool negate = false);
};

/// c + the sum over the elements, of which each `blocks`-th part has its scales. `grouped`: the 4-bit kinds.
float scaled_sum(const ScaledElements& a, const ScaledElements& b, const BlockScale* sa, const BlockScale* sb,
                 int blocks, bool grouped, float c, MatrixPrecision precision);

}  // namespace cgp::emu
