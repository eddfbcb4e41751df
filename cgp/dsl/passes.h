// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which optimisation passes run over the modules that build() makes. None unless somebody asks: ptxas does
// the same work, and no pass has paid on an H200 (docs/passes.md has the numbers).
#include "cgp/ptx/passes/passes.h"

namespace cgp::dsl {

/// For the whole process and all kernels finished from now on.
void set_passes(const ptx::PassOptions& options);
const ptx::PassOptions& passes();
/// What they did since the last set_passes().
const ptx::PassStatistics& pass_statistics();

}  // namespace cgp::dsl
