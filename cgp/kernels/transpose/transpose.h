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

/// How a block reads and writes: single elements, 16 bytes an access, or (sm_90) whole sectors of 32 bytes of
/// rows that begin anywhere.
enum class TransposeAccess : std::uint8_t { element, vector, sector };
/// Build-time choices of one variant.
struct TransposeConfig {
  /// Of a block, in the input. vector: multiples of 16 accesses of 16 bytes; element: 32, 64 or 128, square.
  int tile_rows = 64, tile_cols = 64;
  int strip = 1;  ///< blocks visit strips of so many tiles from top to bottom; 0: along the rows of the input
  int min_blocks = 0;  ///< blocks per SM that the compiler makes room for; 0: its choice
  TransposeAccess access = TransposeAccess::element;
  int bits = 32;  ///< of an element

  static constexpr std::string_view kAccesses[] = {"", "vector", "sector"};
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.number("bits", "b", c.bits);
    v.choice("access", kAccesses, c.access);
    v.extent("tile", "", c.tile_rows, c.tile_cols);
    v.number("strip", "strip", c.strip, 1);
    v.number("min_blocks", "min_blocks", c.min_blocks, 0);
  }
};
/// Which variant runs, and why.
struct TransposeChoice {
  Variant variant;
  TransposeConfig config;
  std::string why;
};
/// A pure function of the problem and the device.
TransposeChoice select_transpose(int element_bytes, const TransposeShape& shape, std::uint64_t in_address,
                                 std::uint64_t out_address, const runtime::DeviceInfo& device);
Variant transpose_variant(const TransposeConfig& config);
/// Queues a chosen variant. For sweeps over configs.
void run_transpose(runtime::Stream& s, const TransposeChoice& choice, const TransposeShape& shape,
                   const runtime::Arg& in, const runtime::Arg& out);

KernelEntry transpose_entry();

}  // namespace cgp::kernels
