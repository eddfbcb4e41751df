// SPDX-License-Identifier: Apache-2.0
#pragma once
// The catalogue's part that lists the kernels on rows and elements.
#include "cgp/kernels/catalog/catalog.h"

namespace cgp::kernels {

std::vector<KernelEntry> row_entries();

}  // namespace cgp::kernels
