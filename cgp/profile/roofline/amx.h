// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the matrix unit of an Intel Xeon (AMX) can do at most on one core: products of tiles in registers.
#include <functional>
#include <string>

#include "cgp/profile/measure/measure.h"

namespace cgp::profile {

/// Why no product with AMX can run here (processor, operating system, or its leave); empty: it can. Asks the
/// operating system for the tiles' registers, for the calling thread and those it begins later.
const std::string& amx_reject();

enum class AmxType { bf16, int8 };
/// GFLOP/s (int8: GOP/s) of one core. Throws Unsupported with amx_reject(), and where a product is wrong.
double amx_peak(AmxType type, double seconds, const std::function<double()>& clock = measure::now);

}  // namespace cgp::profile
