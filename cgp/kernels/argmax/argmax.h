// SPDX-License-Identifier: Apache-2.0
#pragma once
// The index of each row's largest element, and the element if wanted. The lowest index among equals (-0
// equals 0); a NaN is larger than everything, so that the first NaN wins, as in torch.argmax and torch.max.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels {

struct ArgMax {
  View in;                           ///< [rows, cols]: f32, f16 or bf16
  View index;                        ///< [rows]: s32 or s64
  View values;                       ///< [rows] of in's type, optional
  std::uint64_t rows = 0, cols = 0;  ///< cols from 1 to 2^30
  row::Layout layout{};              ///< of in
  std::optional<row::RowConfig> config{};
};
void argmax(runtime::Stream& s, const ArgMax& a);

/// What would run.
Variant argmax_variant(const ArgMax& a, const runtime::DeviceInfo& device, std::string* why);
KernelEntry argmax_entry();

}  // namespace cgp::kernels
