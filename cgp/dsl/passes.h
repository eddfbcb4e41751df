// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which optimisation passes run over the modules that build() makes. None unless somebody asks: ptxas does
// most of their work, and what pays for one kernel costs another (docs/passes.md has the numbers of an H200).
#include "cgp/dsl/core/build.h"
#include "cgp/ptx/passes/passes.h"

namespace cgp::dsl {

/// For the whole process and all kernels finished from now on.
void set_passes(const ptx::PassOptions& options);
const ptx::PassOptions& passes();
/// What they did since the last set_passes().
const ptx::PassStatistics& pass_statistics();

/// The kernel with these passes run over its module, for kernels whose author measured that they pay.
BuiltKernel optimised(BuiltKernel kernel, const ptx::PassOptions& options);

}  // namespace cgp::dsl
