// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operands of the Hopper variants, as tiles and the tensor maps that load them.
#include "cgp/dsl/mma/wgmma.h"

namespace cgp::kernels {

inline constexpr int kHopperBm = 128, kHopperBk = 64;
/// Elements along K of a stage: 128 bytes, of every type. kHopperBk is that of 16-bit types.
template <class T>
inline constexpr int hopper_depth = 1024 / T::bits;

/// An operand is stored with K contiguous ([rows][k]) or with its rows contiguous ([k][rows]); a leading
/// dimension of extent 1 in the box is the batch.
template <class T, dsl::Major M, int Rows>
struct HopperOperand {
  using tile = dsl::Tile<T, Rows, hopper_depth<T>>;
  using map = dsl::TmaIn<tile, 1, Rows, hopper_depth<T>>;
  static auto at(const map& m, const dsl::Val<dsl::u32>& batch, const dsl::Val<dsl::u32>& row,
                 const dsl::Val<dsl::u32>& k) {
    return dsl::at(m, batch, row, k);
  }
};
template <class T, int Rows>
struct HopperOperand<T, dsl::Major::mn, Rows> {
  using tile = dsl::Tile<T, hopper_depth<T>, Rows, dsl::Swizzle::b128>;
  using map = dsl::TmaIn<tile, 1, hopper_depth<T>, Rows>;
  static auto at(const map& m, const dsl::Val<dsl::u32>& batch, const dsl::Val<dsl::u32>& row,
                 const dsl::Val<dsl::u32>& k) {
    return dsl::at(m, batch, k, row);
  }
};

}  // namespace cgp::kernels
