// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sum or maximum over all elements or over one dimension, for f32, f16 and bf16; f32 inside, one rounding at
// the end. Deterministic: the order of combination follows from the shape and the device alone; no atomics. A
// maximum over anything that holds a NaN is NaN.
#include <cstdint>
#include <span>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

enum class ReduceOp : std::uint8_t { sum, max };
std::string_view name(ReduceOp op);

/// The tensor seen as [outer, n, inner], reduced over n: out[o, i] = op over k of in[o, k, i].
struct ReduceShape {
  std::uint64_t outer = 1, n = 0, inner = 1;
};
/// Reduction over dimension `dim` of a row-major tensor; negative dims count from the end. ArgumentError out
/// of range.
ReduceShape reduce_dim(const std::vector<std::uint64_t>& shape, std::int64_t dim);

/// How a problem is run; a pure function of its arguments.
struct ReducePlan {
  bool columns = false;      ///< inner > 1: threads walk down columns
  bool vector = false;       ///< 16-byte accesses
  bool short_rows = false;   ///< many rows of at most one access per lane: several rows a thread
  int lanes = 256;           ///< threads that share a row (columns: 256, 8 rows of 32)
  int rows = 1;              ///< rows per block
  std::uint32_t splits = 1;  ///< blocks that share one output; more than 1: partial sums and a second launch
  std::uint64_t chain = 0;   ///< longest sequence of dependent f32 operations, for the error bound
  std::string why;
};
ReducePlan plan_reduce(DType t, const ReduceShape& shape, bool aligned, const runtime::DeviceInfo& device);
/// f32 elements of scratch memory that reduce() needs for the plan; 0 when one launch does it.
std::uint64_t reduce_workspace(const ReducePlan& plan, const ReduceShape& shape);

/// Queues the reduction. `in` has outer * n * inner elements, `out` outer * inner; `workspace` at least
/// reduce_workspace(). ArgumentError otherwise, and for n = 0.
template <class T>  // float, half or bfloat16
void reduce(runtime::Stream& s, ReduceOp op, const runtime::Slice<const T>& in, const runtime::Slice<T>& out,
            const ReduceShape& shape, const runtime::Slice<float>& workspace);

KernelEntry reduce_entry();

}  // namespace cgp::kernels
