// SPDX-License-Identifier: Apache-2.0
#pragma once
// out[b, c, r] = in[b, r, c]: batched matrix transpose, elements of 1, 2, 4 or 8 bytes moved as bits. Any
// rows, cols and batch, 0 included; any alignment of the slices that the element type allows.
#include <span>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

struct TransposeShape {
  std::uint64_t batch = 1, rows = 0, cols = 0;
};

/// Queues the transpose. Both slices have batch * rows * cols elements and must not overlap (ArgumentError).
template <class T>  // any type of 1, 2, 4 or 8 bytes
void transpose(runtime::Stream& s, const runtime::Slice<const T>& in, const runtime::Slice<T>& out,
               const TransposeShape& shape);

/// Build-time choices of one variant.
struct TransposeTuning {
  /// Of a block, in the input. vector: multiples of 16 accesses of 16 bytes; scalar: 32, 64 or 128, square.
  int tile_rows = 64, tile_cols = 64;
  int strip = 1;  ///< blocks visit strips of so many tiles from top to bottom; 0: along the rows of the input
  int resident = 0;  ///< blocks per SM that the compiler makes room for; 0: its choice
  int sectors = 0;   ///< > 0: rows begin anywhere, tiles with a sector of so many elements (sm_90)
};
/// Which variant runs, and why.
struct TransposeChoice {
  Variant variant;
  TransposeTuning tuning;
  std::string why;
};
/// A pure function of the problem and the device.
TransposeChoice select_transpose(int element_bytes, const TransposeShape& shape, std::uint64_t in_address,
                                 std::uint64_t out_address, const runtime::DeviceInfo& device);
/// `vector`: 16-byte accesses, else one element each.
Variant transpose_variant(int element_bytes, bool vector, const TransposeTuning& tuning);
/// Queues a chosen variant. For sweeps over tunings.
void run_transpose(runtime::Stream& s, const TransposeChoice& choice, const TransposeShape& shape,
                   const runtime::Arg& in, const runtime::Arg& out);

KernelEntry transpose_entry();

}  // namespace cgp::kernels
