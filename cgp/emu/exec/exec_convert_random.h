// SPDX-License-Identifier: Apache-2.0
#pragma once
// cvt.rs: conversions of f32 with stochastic rounding (sm_100a, sm_103a).
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

void decode_random_cvt(Decoder& d, const ptx::Inst& i, Op& op);

}  // namespace cgp::emu
