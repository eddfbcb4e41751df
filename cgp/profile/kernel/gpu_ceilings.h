// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a GPU can do at most, measured with kernels of our DSL: floating-point ladders that no memory slows
// down, and copies and reads at each level of memory.
#include <string>
#include <vector>

#include "cgp/kernels/common/variant.h"
#include "cgp/runtime/device.h"

namespace cgp::profile {

struct Ceiling {
  std::string name;  ///< "HBM copy", "fp32 FMA"
  bool bandwidth = false;
  double value = 0;  ///< GB/s or TFLOP/s: the best of several launches
  std::string how;
  std::string absent;  ///< why there is none
};
/// Throws Unsupported on the emulator.
std::vector<Ceiling> gpu_ceilings(const runtime::Device& device, int launches = 12);
/// The kernels, for tests that assemble and emulate them.
std::vector<kernels::Variant> ceiling_variants();
/// Runs every ladder for a few rounds and checks what it computes; for tests, on any device. Empty: right.
std::string check_ceiling_kernels(const runtime::Device& device);

}  // namespace cgp::profile
