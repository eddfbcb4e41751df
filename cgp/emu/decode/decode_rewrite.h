// SPDX-License-Identifier: Apache-2.0
#pragma once
// Instructions that are executed as other ones (decode_rewrite.cpp).
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

/// st.async and red.async with .mmio: a release store or reduction in global memory.
void decode_mmio_async(Decoder& d, const ptx::Inst& i, Op& op);

}  // namespace cgp::emu
