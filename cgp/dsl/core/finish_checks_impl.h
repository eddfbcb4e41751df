// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "cgp/ptx/module.h"

namespace cgp::dsl {

/// What the static analyses of ptx are certain of: a register that nothing wrote, an address of one state
/// space in another, and (in kernels short enough for it to be cheap) a barrier or warp operation whose
/// threads do not all come. Throws BuildError at the line that recorded the instruction.
void check_analyses(const ptx::Module& m, const ptx::Function& f);

}  // namespace cgp::dsl
