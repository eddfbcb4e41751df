// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program on a GPU or the emulator, by cgp/kernels. Weights stay quantised: packed where weight_only has their format
// (sm_90), else dequantised for each product. The residual stream and logits are f32, values between products and the
// cache f16. A step of one token a sequence is a fixed list of launches, on a GPU replayed as a CUDA graph.
#include <memory>

#include "cgp/engine/backend.h"
#include "cgp/model/source/source.h"
#include "cgp/runtime/device.h"

namespace cgp::engine {

/// What it would take, before anything is loaded. Throws as make_device_backend().
MemoryEstimate device_memory(const Program& program, const model::Source& file, const runtime::Device& device,
                             const BackendOptions& options);

/// `file` is what `program` was built from. Throws Unsupported that names what a program needs and the kernels lack: experts,
/// other cache types than f16 and e4m3, other activations than automatic.
std::unique_ptr<Backend> make_device_backend(Program program, std::shared_ptr<const model::Source> file,
                                             const runtime::Device& device, const BackendOptions& options);

}  // namespace cgp::engine
