// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the transpose kernels share: the order of tiles, and pointers down a column.
#include <vector>

#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/memory/ptr.h"
#include "cgp/kernels/transpose/transpose.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels::transpose_impl {

/// `count` pointers, each `step` elements after the one before: an addition each.
template <class P>
std::vector<P> walk(const P& from, const dsl::Val<dsl::u64>& step, int count) {
  std::vector<P> at{from};
  while (int(at.size()) < count) at.push_back(at.back().at(step));
  return at;
}

/// The launch does not know T as a type: pointers of all types are alike there.
template <class T>
struct TransposeArgs {
  template <template <class> class V>
  struct Of {
    V<dsl::In<T>> in;
    V<dsl::Out<T>> out;
    V<dsl::u64> rows, cols;
    V<dsl::u32> tiles_r, tiles_c;
  };
};

/// The block's tile: which matrix of the batch, and the first row and column.
struct TileAt {
  dsl::Val<dsl::u64> matrix, row, col;
};
TileAt tile_at(dsl::Kernel& k, const TransposeConfig& t, const dsl::Val<dsl::u32>& tiles_r,
               const dsl::Val<dsl::u32>& tiles_c);

/// transpose_sectors.cpp.
Variant sectors_variant(const TransposeConfig& t);
/// Its tiles. They end up to a sector less one element before those of the other kernels.
TransposeConfig sectors_config(int element_bytes);
inline constexpr int kSectorBytes = 32;

}  // namespace cgp::kernels::transpose_impl
