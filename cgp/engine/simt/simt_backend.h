// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program on devices whose kernels have no tensor cores: Vulkan, WebGPU, CUDA before sm_80, the emulator of sm_75.
#include <memory>

#include "cgp/engine/backend.h"
#include "cgp/model/source/source.h"
#include "cgp/runtime/device.h"

namespace cgp::engine {

/// Whether a device has this backend, and not that of device/.
bool runs_simt(const runtime::DeviceInfo& device);
/// Of a sequence of `context` tokens: this backend has a page for each sequence.
std::int64_t simt_page_tokens(std::int64_t context);
/// Throws what SimtModel does.
std::unique_ptr<Backend> make_simt_backend(Program program, std::shared_ptr<const model::Source> file,
                                           const runtime::Device& device, const BackendOptions& options);

}  // namespace cgp::engine
