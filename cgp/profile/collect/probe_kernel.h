// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small kernels with a known cost, run on the emulator without checks: planted defects and their clean twins.
#include <memory>
#include <string>

#include "cgp/emu/emu.h"

namespace cgp::profile {

struct ProbeRun {
  std::shared_ptr<const emu::Program> program;  ///< its entry is "k"
  emu::Counters counters;
};

/// `statements`: declarations and instructions of a kernel with one parameter, x, the address of 4 MiB (plus
/// `offset`) whose bytes are `filled`, and registers %p0 to %p3, %r0 to %r19, %f0 to %f19, %rd0 to %rd19; it
/// ends by itself.
ProbeRun run_probe(const std::string& statements, emu::Dim3 grid, emu::Dim3 block, std::uint64_t offset = 0,
                   std::uint8_t filled = 1);

/// The first statements of a probe: %rd1 = x, %r2 = thread in the block, %r1 = thread in the grid.
inline constexpr const char* kProbeThreads =
    "ld.param.u64 %rd1, [x];\nmov.u32 %r2, %tid.x;\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\n"
    "mad.lo.u32 %r1, %r3, %r4, %r2;\n";

}  // namespace cgp::profile
