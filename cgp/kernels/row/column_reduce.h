// SPDX-License-Identifier: Apache-2.0
#pragma once
// Second stage of sums over rows: out[c] = sum of partials[t][c] over the row teams t, in a fixed order.
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels::row {

Variant column_reduce_variant(DType out);
/// `partials` holds f32[teams][cols]; `out` cols elements.
void column_reduce(runtime::Stream& s, const View& partials, const View& out, std::uint64_t teams,
                   std::uint64_t cols);

}  // namespace cgp::kernels::row
