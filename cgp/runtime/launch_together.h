// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels of several devices that wait for each other: all-reduce and the other collectives.
#include <functional>

namespace cgp::runtime {

/// Calls `issue`, which puts work into streams of several devices and waits for none of it. GPUs run what they get
/// at the same time, so there this is a plain call. The emulator runs a launch to its end before the next one; what
/// `issue` gives it is kept, and then runs like this: of each stream in turn, everything up to its next kernel; then
/// the kernels that are next in all streams, together, as emu::launch_together does, with one race detector for all.
/// A device's number in findings is its place among these kernels, in the order in which `issue` named their streams.
/// Findings are thrown by the next wait on each of the streams.
/// Throws what `issue` throws (nothing is run then), and Unsupported when the kernels that are next are not one kernel
/// with one shape, once for each device. A call inside another one belongs to it.
void launch_together(const std::function<void()>& issue);

}  // namespace cgp::runtime
