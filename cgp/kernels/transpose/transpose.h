// SPDX-License-Identifier: Apache-2.0
#pragma once
// out[b, c, r] = in[b, r, c]: batched matrix transpose, elements of 1, 2, 4 or 8 bytes moved as bits. Any
// rows, cols and batch, 0 included; any alignment of the slices that the element type allows.
#include <span>

#include "cgp/kernels/catalog.h"
#include "cgp/kernels/variant.h"

namespace cgp::kernels {

struct TransposeShape {
  std::uint64_t batch = 1, rows = 0, cols = 0;
};

/// Queues the transpose. Both slices have batch * rows * cols elements and must not overlap (ArgumentError).
template <class T>  // any type of 1, 2, 4 or 8 bytes
void transpose(runtime::Stream& s, const runtime::Slice<const T>& in, const runtime::Slice<T>& out,
               const TransposeShape& shape);

/// Which variant runs, and why.
struct TransposeChoice {
  const Variant* variant = nullptr;
  std::uint32_t tile = 0;  ///< rows and columns of a block's tile
  std::string why;
};
TransposeChoice select_transpose(int element_bytes, const TransposeShape& shape, std::uint64_t in_address,
                                 std::uint64_t out_address);

std::span<const Variant> transpose_variants();
KernelEntry transpose_entry();

}  // namespace cgp::kernels
