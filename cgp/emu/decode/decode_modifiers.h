// SPDX-License-Identifier: Apache-2.0
#pragma once
// Refusing modifiers that a decoder does not know, so that none is silently ignored.
#include <initializer_list>

#include "cgp/emu/core/machine.h"

namespace cgp::emu {

/// Throws through d.unsupported() for the first modifier that is neither a type nor in `known`.
void allow(Decoder& d, const ptx::Inst& i, std::initializer_list<ptx::Mod> known);

}  // namespace cgp::emu
