// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a profile as a table for a terminal.
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// Of a metric that is there: a number, a text, "16,1,1", how many entries a map has.
std::string value_text(const measure::Reading& r);
/// "memory-bound at 42 % of the ceiling", or why no share of the ceiling can be given; empty: nothing is known.
std::string bound_text(const measure::MetricSet& m);
/// The first `most` of them, with their share of the sum.
std::string kernel_table(const std::vector<KernelUse>& kernels, int width, std::size_t most = 15);

}  // namespace cgp::profile
