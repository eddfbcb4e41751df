// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a GPU can do at most, measured with kernels of our DSL: floating-point ladders that no memory slows
// down, and copies and reads at each level of memory.
#include <optional>
#include <string>
#include <vector>

#include "cgp/kernels/common/variant.h"
#include "cgp/profile/measure/metric.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/device.h"

namespace cgp::profile {

struct Ceiling {
  std::string name;  ///< "HBM copy", "fp32 FMA"
  bool bandwidth = false;
  double value = 0;  ///< GB/s or TFLOP/s: the best of several launches
  std::string how;
  std::string absent;  ///< why there is none
};
/// The larger of what a copy and a read of its memory reach, in some milliseconds. Throws Unsupported on the emulator.
Ceiling memory_ceiling(const runtime::Device& device, int launches = 5);
/// The ceilings of a kernel that works on `type` on the device of this name: bandwidth as `memory` has it, if it was
/// measured, else of the data sheet; operations of the data sheet.
void add_ceilings(const std::string& device, const std::string& type, const std::optional<Ceiling>& memory,
                  measure::MetricSet& into);
/// One total of a GPU's memory, and what is used of it, as the driver counts them: NVML's total has what the driver
/// keeps for itself, too.
void add_gpu_memory(std::uint64_t total_bytes, std::uint64_t free_bytes, measure::MetricSet& into);
/// Queues dependent fp32 multiply-adds of every thread, in `out.size()` threads (a multiple of 256), each of which writes its
/// element. Gives how many operations. On any device that runs kernels.
double fma_ladder(runtime::Stream& s, const runtime::Device& device, runtime::Buffer<float>& out,
                  std::uint32_t rounds);
/// Throws Unsupported on the emulator.
std::vector<Ceiling> gpu_ceilings(const runtime::Device& device, int launches = 12);
/// The kernels, for tests that assemble and emulate them.
std::vector<kernels::Variant> ceiling_variants();
/// Runs every ladder for a few rounds and checks what it computes; for tests, on any device. Empty: right.
std::string check_ceiling_kernels(const runtime::Device& device);

}  // namespace cgp::profile
