// SPDX-License-Identifier: Apache-2.0
#pragma once
// y[r, c] = exp(x[r, c] - max_c x[r, :]) / sum_c exp(...), row by row, for f32, f16 and bf16; f32 inside. Any
// number of rows and columns, 0 included; rows may be strided. A row with a NaN, a +inf or only -inf is NaN
// throughout.
#include <span>

#include "cgp/kernels/catalog.h"
#include "cgp/kernels/variant.h"

namespace cgp::kernels {

struct SoftmaxShape {
  std::uint64_t rows = 0, cols = 0;
  std::uint64_t x_pitch = 0, y_pitch = 0;  ///< elements between rows; 0: cols
};

/// Queues the softmax. Slices must hold the rows (ArgumentError); y may be x with the same pitch.
template <class T>  // float, half or bfloat16
void softmax(runtime::Stream& s, const runtime::Slice<const T>& x, const runtime::Slice<T>& y,
             const SoftmaxShape& shape);

/// Build-time choices of one variant.
struct SoftmaxTuning {
  int lanes = 32;    ///< threads that share a row in one block: 8, 16, 32, or a multiple of 32
  int rows = 4;      ///< rows per block
  int loads = 1;     ///< accesses per thread that cover the row; 0: loop over the row, reading it twice
  int cluster = 1;   ///< blocks that share a row (sm_90)
  int stages = 0;    ///< > 0: blocks stay and this many rows are in flight in shared memory (sm_90, aligned)
  int resident = 0;  ///< with stages: blocks per SM
};
struct SoftmaxChoice {
  Variant variant;
  SoftmaxTuning tuning;
  std::string why;
};
/// A pure function of the problem and the device.
SoftmaxChoice select_softmax(DType t, const SoftmaxShape& shape, bool aligned,
                             const runtime::DeviceInfo& device);

Variant softmax_variant(DType t, bool vector, const SoftmaxTuning& tuning);
Variant softmax_ring_variant(DType t, std::string name, const SoftmaxTuning& tuning);
/// Queues one launch of a chosen variant; pitches given, rows within one grid. For sweeps over tunings.
void run_softmax(runtime::Stream& s, const SoftmaxChoice& choice, const SoftmaxShape& shape,
                 const runtime::Arg& x, const runtime::Arg& y);

KernelEntry softmax_entry();

}  // namespace cgp::kernels
