// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a recorded kernel to one that a device runs:
//
//   auto built = dsl::build("vecadd", device.info().arch, vecadd);  // records the kernel
//   auto fn = device.load(launch::image(built));                    // compiles it (emulator: decodes it)
//   fn(device.stream(), runtime::grid_for(n, 256), a, b, c, n);     // arguments are checked against its signature
//
// It is all that a program with kernels of its own needs above the language and the runtime.
#include <cstddef>

#include "cgp/dsl/kernel.h"
#include "cgp/runtime/device.h"
#include "cgp/runtime/launcher.h"

namespace cgp::launch {

/// The PTX of a recorded kernel with its signature: parameter kinds and types, which buffers it writes, block, cluster
/// and dynamic shared memory. Made by runtime::image_from_ptx() from the text alone, an image lacks what is In and Out.
runtime::KernelImage image(const dsl::BuiltKernel& built);

/// What the tensor map of parameter `param` must have: element type, box and swizzle. The caller adds `dims` and, where
/// rows are padded, `strides`, and passes it to Device::tensor_map(). Throws ArgumentError if the parameter is not a
/// tensor map.
runtime::TensorMapSpec tensor_map_spec(const runtime::KernelImage& image, std::size_t param);

}  // namespace cgp::launch
