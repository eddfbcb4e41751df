// SPDX-License-Identifier: Apache-2.0
#pragma once
// Second stage of sums over rows: out[c] = sum of partials[t][c] over the row teams t, in a fixed order.
#include <span>
#include <vector>

#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels::row {

/// `partials` holds f32[outs][teams][cols]; each of `outs` cols elements. Up to three of a type take one launch.
void column_reduce(runtime::Stream& s, const View& partials, std::span<const View> outs, std::uint64_t teams,
                   std::uint64_t cols);
/// The variants of these launches.
std::vector<Variant> column_reduce_variants(std::span<const View> outs);

}  // namespace cgp::kernels::row
