// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads and accesses that fit the length of a row, by measurement: operations whose rows are wide accesses. What is here
// was best on an H200: forward operations with one input over 64 lengths, gradients over 19 (NOTES.md).
#include <optional>

#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels::row {

/// The config for rows of `accesses`, made from `t` (elements, edges); empty: nothing was measured for it.
std::optional<RowPlan> fitted_row(const RowNeeds& n, const RowConfig& t, std::uint64_t accesses,
                                  std::uint64_t rows, const runtime::DeviceInfo& device);

/// The same for gradients of two inputs with sums over rows.
std::optional<RowPlan> fitted_gradient(const RowNeeds& n, const RowConfig& t, std::uint64_t accesses,
                                       std::uint64_t rows, const runtime::DeviceInfo& device);

}  // namespace cgp::kernels::row
