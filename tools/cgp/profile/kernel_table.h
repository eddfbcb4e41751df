// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a profile as a table for a terminal.
#include <string>
#include <vector>

#include "profile/document.h"

namespace cgp::profile {

/// The first `most` of them, with their share of the sum.
std::string kernel_table(const std::vector<KernelUse>& kernels, int width, std::size_t most = 15);

}  // namespace cgp::profile
