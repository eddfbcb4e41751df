// SPDX-License-Identifier: Apache-2.0
#pragma once
// y [m, k] = columns of x [m, k] by index: y[i, j] = x[i, columns[j]], f16 or bf16. What a product of a weight with act-order needs of its
// activations where the product does not gather itself.
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

struct GatherColumns {
  std::uint64_t x = 0, ldx = 0;  ///< elements between rows
  std::uint64_t columns = 0;     ///< u32 [k], below k; at a multiple of 16 bytes
  std::uint64_t y = 0;           ///< dense, at a multiple of 16 bytes
  std::uint64_t m = 0, k = 0;    ///< k: a multiple of 8
};
Variant gather_columns_variant();
/// ArgumentError for a k or addresses that do not fit.
void gather_columns(runtime::Stream& s, const GatherColumns& p);

}  // namespace cgp::kernels
