// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {

template <template <class> class V>
struct WeightOnlyParams {
  V<dsl::u64> x, ldx, w, y, ldy;
  V<dsl::u64> norm, gather;
  V<dsl::u32> m, n, k;
  V<dsl::f32> eps;
  V<dsl::u32> y_tiles;  ///< of 16 (or 2 x 16) columns of y
};

}  // namespace cgp::kernels
