// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads and accesses that fit the length of a row, by measurement: forward operations with one input, whose
// rows are wide accesses. The ranges are those that were best on an H200 over 64 lengths (NOTES.md).
#include <optional>

#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels::row {

/// The config for rows of `accesses`, made from `t` (elements, edges); empty: nothing was measured for it.
std::optional<RowPlan> fitted_row(const RowNeeds& n, const RowConfig& t, std::uint64_t accesses,
                                  std::uint64_t rows, const runtime::DeviceInfo& device);

}  // namespace cgp::kernels::row
