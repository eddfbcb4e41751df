// SPDX-License-Identifier: Apache-2.0
#pragma once
// The product of a panel by tiles, written over what AMX does, so that a test can do the same without it. T has two tiles of
// vectors (16 of 32 elements), two of weights (16 pairs of elements of 16 rows) and four of sums (16 vectors by 16 rows):
//   zero()                        all sums
//   load_vectors<i>(p, stride)    16 rows of 64 bytes, `stride` bytes apart
//   load_weights<i>(p, stride)
//   multiply<i, j>()              sums of vectors i and weights j: Intel SDM, TDPBF16PS
//   store<i, j>(p, stride)
#include "cgp/cpu/quant/panel_impl.h"

namespace cgp::cpu {
namespace {

template <class T>
inline void product_of_tiles(T& tiles, const std::uint32_t* panels, std::int64_t depth, std::int64_t rows,
                             const std::uint16_t* x, std::int64_t group, std::int64_t n, float* y,
                             std::int64_t ldy, bool add) {
  using quant_versions::kPanelRows, quant_versions::kGroup;
  alignas(64) float sums[2 * kGroup][kPanelRows];
  for (std::int64_t j = 0; j < n; j += 2 * kGroup) {
    const std::uint16_t* first = x + j / kGroup * group;
    const std::int64_t vectors = n - j < 2 * kGroup ? n - j : 2 * kGroup;
    for (std::int64_t r0 = 0; r0 < rows; r0 += kPanelRows) {  // the vectors stay in L1
      const std::uint32_t* panel = panels + r0 * (depth / 2);
      tiles.zero();
      for (std::int64_t e = 0; e < depth; e += 32) {
        const std::uint32_t* pairs = panel + e / 2 * kPanelRows;
        tiles.template load_vectors<0>(first + e * kGroup, 64);
        tiles.template load_weights<0>(pairs, 4 * kPanelRows);
        tiles.template load_weights<1>(pairs + 16, 4 * kPanelRows);
        tiles.template multiply<0, 0>();
        tiles.template multiply<0, 1>();
        if (vectors > kGroup) {
          tiles.template load_vectors<1>(first + group + e * kGroup, 64);
          tiles.template multiply<1, 0>();
          tiles.template multiply<1, 1>();
        }
      }
      tiles.template store<0, 0>(&sums[0][0], sizeof sums[0]);
      tiles.template store<0, 1>(&sums[0][16], sizeof sums[0]);
      tiles.template store<1, 0>(&sums[16][0], sizeof sums[0]);
      tiles.template store<1, 1>(&sums[16][16], sizeof sums[0]);
      const std::int64_t count = rows - r0 < kPanelRows ? rows - r0 : kPanelRows;
      for (std::int64_t v = 0; v < vectors; ++v) {
        float* to = y + (j + v) * ldy + r0;
        for (std::int64_t r = 0; r < count; ++r) to[r] = add ? to[r] + sums[v][r] : sums[v][r];
      }
    }
  }
}

}  // namespace
}  // namespace cgp::cpu
