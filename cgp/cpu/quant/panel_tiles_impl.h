// SPDX-License-Identifier: Apache-2.0
#pragma once
// The product of panels by tiles, written over what AMX does, so that a test can do the same without it. T has two tiles of
// vectors (16 of 32 elements), two of weights (16 pairs of elements of 16 rows) and four of sums (16 vectors by 16 rows):
//   zero()                          all sums
//   load_vectors<i>(p, stride)      16 rows of 64 bytes, `stride` bytes apart
//   load_weights<i>(p, stride)
//   multiply<i, j>()                sums of vectors i and weights j: Intel SDM, TDPBF16PS
//   load<i, j>(p, stride), store<i, j>(p, stride)      sums
//   prefetch(p)                     the line is wanted soon
#include "cgp/cpu/quant/panel_impl.h"

namespace cgp::cpu {
namespace {

template <class T>
inline void product_of_tiles(T& tiles, const std::uint32_t* panels, std::int64_t depth, std::int64_t count,
                             const std::uint16_t* x, std::int64_t group, std::int64_t n, float* sums,
                             bool add) {
  using quant_versions::kPanelRows, quant_versions::kGroup, quant_versions::kSumStride;
  constexpr std::int64_t kSumBytes = 4 * kSumStride, kHalf = kGroup * kSumStride;
  constexpr std::int64_t kLine = 32;  // elements
  for (std::int64_t j = 0; j < n; j += 2 * kGroup) {
    const std::uint16_t* first = x + j / kGroup * group;
    const bool both = n - j > kGroup;
    // The next 32 vectors come from farther away, a part of them with each panel.
    const std::uint16_t* next = j + 2 * kGroup < n ? first + 2 * group : nullptr;
    const std::int64_t lines = kGroup * depth / kLine / count;  // of each group
    for (std::int64_t r = 0; r < count; ++r) {
      const std::uint32_t* panel = panels + r * kPanelRows * (depth / 2);
      float* to = sums + j * kSumStride + r * kPanelRows;
      if (add) {
        tiles.template load<0, 0>(to, kSumBytes);
        tiles.template load<0, 1>(to + 16, kSumBytes);
        tiles.template load<1, 0>(to + kHalf, kSumBytes);
        tiles.template load<1, 1>(to + kHalf + 16, kSumBytes);
      } else {
        tiles.zero();
      }
      std::int64_t wanted = r * lines, end = wanted + lines;
      for (std::int64_t e = 0; e < depth; e += 32) {
        const std::uint32_t* pairs = panel + e / 2 * kPanelRows;
        tiles.template load_vectors<0>(first + e * kGroup, 64);
        tiles.template load_weights<0>(pairs, 4 * kPanelRows);
        tiles.template load_weights<1>(pairs + 16, 4 * kPanelRows);
        tiles.template multiply<0, 0>();
        tiles.template multiply<0, 1>();
        if (next)
          for (int i = 0; i < 2 && wanted < end; ++i, ++wanted) {
            tiles.prefetch(next + wanted * kLine);
            tiles.prefetch(next + group + wanted * kLine);
          }
        if (both) {
          tiles.template load_vectors<1>(first + group + e * kGroup, 64);
          tiles.template multiply<1, 0>();
          tiles.template multiply<1, 1>();
        }
      }
      tiles.template store<0, 0>(to, kSumBytes);
      tiles.template store<0, 1>(to + 16, kSumBytes);
      tiles.template store<1, 0>(to + kHalf, kSumBytes);
      tiles.template store<1, 1>(to + kHalf + 16, kSumBytes);
    }
  }
}

}  // namespace
}  // namespace cgp::cpu
