// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels of several devices that wait for each other: all-reduce and the other collectives.
#include <functional>

namespace cgp::runtime {

/// Calls `issue`, which puts work into streams of several devices and waits for none of it (ArgumentError). The work is
/// kept until `issue` returns; host memory that it names is read and written after that.
/// GPUs get it then, each stream's in its order: every kernel is loaded before the first runs, since loading one may wait for those
/// that run. What copies to the host comes last.
/// The emulator, which otherwise runs a launch to its end before the next one, does of each stream in turn everything up to
/// its next kernel; then the kernels that are next in all streams, together, as emu::launch_together does, with one race
/// detector for all. A device's number in findings is its place among these kernels, in the order in which `issue` named their
/// streams. Findings are thrown by the next wait on each of the streams.
/// Throws what `issue` throws (nothing is run then), and Unsupported when the kernels that are next on the emulator are not one
/// kernel with one shape, once for each device. A call inside another one belongs to it. Captured work is recorded at once.
void launch_together(const std::function<void()>& issue);

}  // namespace cgp::runtime
