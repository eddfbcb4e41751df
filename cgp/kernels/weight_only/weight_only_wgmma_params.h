// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {

template <template <class> class V>
struct WeightWgmmaParams {
  V<dsl::u64> w, y, ldy;
  V<dsl::u64> ends, w_bytes;  ///< of groups; of a weight
  V<dsl::u32> groups, wide_ends;
  V<dsl::u32> m, n;
  V<dsl::u32> k_tiles;  ///< of 256 columns of the weights
  V<dsl::u32> w_tiles;  ///< of 16 rows of the weights
  V<dsl::u32> tiles;    ///< of y, where blocks walk over them
  V<dsl::u32> wide;     ///< whether y and its rows lie at multiples of 16 bytes
};

}  // namespace cgp::kernels
