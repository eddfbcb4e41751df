// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of the counts of one instruction: over workers, over launches.
#include "cgp/emu/emu.h"

namespace cgp::emu {

void add(PcCounters& to, const PcCounters& c);

}  // namespace cgp::emu
