// SPDX-License-Identifier: Apache-2.0
#pragma once
// A compute shader that somebody else wrote: what its text says of itself, and its time on a device.
#include <array>
#include <functional>

#include "cgp/wgpu/device.h"

namespace cgp::wgpu {

struct WgslEntry {
  std::string name;
  std::array<std::uint32_t, 3> workgroup{1, 1, 1};  ///< threads
};
struct WgslBinding {
  std::string name;
  std::uint32_t group = 0, binding = 0;
  bool uniform = false;  ///< else storage
};
struct WgslInterface {
  std::vector<WgslEntry> entries;  ///< of compute shaders
  std::vector<WgslBinding> bindings;
};
/// Of WGSL's attributes (section 12 of the specification): @compute, @workgroup_size (numbers, or names of constants that are),
/// @group, @binding. Throws ParseError with the line for what is none, Unsupported for bindings that are no buffers. What else is
/// wrong with the text, Device::pipeline() says.
WgslInterface read_wgsl(std::string_view text, const std::string& file);

/// Milliseconds of each of `repeat` dispatches, behind one that is not counted; by the device's timestamps where it has them, else by
/// the clock from submission until it is done. `data`: what each binding of the interface holds, at least 4 bytes and a multiple of 4.
std::vector<double> time_wgsl(const Device& d, const std::string& text, const WgslEntry& entry,
                              const std::vector<WgslBinding>& bindings,
                              const std::vector<std::vector<std::byte>>& data,
                              std::array<std::uint32_t, 3> grid, int repeat);

}  // namespace cgp::wgpu
