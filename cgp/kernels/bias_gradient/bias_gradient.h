// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradient of a linear layer's bias: out[c] = sum over rows r of dy[r, c], or that added to what out holds. dy is f32, f16 or
// bf16; sums and out are f32. One launch. Deterministic: the order of sums depends on shape and device only.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels {

struct BiasGradient {
  View dy;   ///< [rows, cols]
  View out;  ///< f32 [cols]
  View
      workspace;  ///< f32, bias_gradient_workspace() elements; zero before the first launch that uses it, which leaves it so
  std::uint64_t rows = 0, cols = 0;
  row::Layout dy_layout{};
  bool accumulate = false;  ///< out += the sums
};
/// Throws ArgumentError that names the argument; Unsupported where the device lacks the type.
void bias_gradient(runtime::Stream& s, const BiasGradient& b);
std::uint64_t bias_gradient_workspace(DType dy, std::uint64_t rows, std::uint64_t cols,
                                      const runtime::DeviceInfo& device);

KernelEntry bias_gradient_entry();

}  // namespace cgp::kernels
