// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPU time by the functions of the program that launched the kernels.
#include <nlohmann/json.hpp>

#include "cgp/profile/sampling/cpu_profile.h"
#include "cgp/profile/timeline/timeline.h"

namespace cgp::profile {

/// The section "launched" of "cpu_samples" (docs/profiler.md): `folded` has one row for each stack and kernel, "main;f;kernel", in
/// milliseconds. Stacks are seen of some launches (CpuProfile::launches, joined by CUPTI's number of a launch); the time of
/// a kernel's other launches is shared out as that of the ones that were seen. Kernels of a graph count for its launch.
nlohmann::ordered_json launched_json(const Timeline& t, const CpuProfile& p);

}  // namespace cgp::profile
