// SPDX-License-Identifier: Apache-2.0
#pragma once
// Experts of a mixture with quantised weights: y[r, :] = x[r, :] w_g' for the rows r of group g, in one launch. The weights of all groups
// are one weight [groups * n, k], one expert behind the other, as a GGUF file has them. Rows behind the last end are left alone.
//   sm_90, packed weights, n a multiple of 32    weight_wgmma_gemm: multiplied as they are
//   else                                         all experts are dequantised to x's type in the workspace, then grouped_gemm
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"

namespace cgp::kernels {

struct QuantizedGrouped {
  QuantizedWeight weight;    ///< [groups * n, k]
  View packed{};             ///< as QuantizedMatmul::packed, of the whole weight
  std::uint64_t groups = 0;  ///< divides the rows of the weight
  View ends{};               ///< u32 or u64 [groups] on the device, rising: where the rows of each group end
  View x, y;                 ///< dense [m, k] and [m, n], one of f32, f16, bf16
  std::uint64_t m = 0;       ///< rows of all groups, and those behind the last end
  View workspace{};          ///< u8, at a multiple of 256
};
struct QuantizedGroupedPlan {
  bool weight_only = false;     ///< packed weights are multiplied as they are
  std::uint64_t workspace = 0;  ///< bytes
  std::string why;
};
/// A function of formats, shapes and the device. Views need types alone.
QuantizedGroupedPlan quantized_grouped_plan(const QuantizedGrouped& p, const runtime::DeviceInfo& d);
/// ArgumentError naming the argument that does not fit; nothing is written then.
void quantized_grouped(runtime::Stream& s, const QuantizedGrouped& p);

}  // namespace cgp::kernels
