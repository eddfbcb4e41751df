// SPDX-License-Identifier: Apache-2.0
#pragma once
// Profiles as points of a roofline, with the bytes that their counters saw at each level of memory.
#include <vector>

#include "cgp/profile/roofline/roofline_plot.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// The profile itself where it has an intensity and a rate; else each of its kernels that has both.
std::vector<RoofPoint> roof_points(const Document& d);

}  // namespace cgp::profile
