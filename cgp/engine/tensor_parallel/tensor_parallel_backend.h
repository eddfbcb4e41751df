// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program on several devices of this process, each with its share of every weight (share.h) and of the cache.
#include <memory>
#include <vector>

#include "cgp/engine/backend.h"
#include "cgp/model/source/source.h"
#include "cgp/runtime/device.h"

namespace cgp::engine {

/// 2 to 16 devices of one kind; a GPU that comes twice has two ranks, to try a program. Results are those of one device up to the order
/// of sums, and the same in each run. Throws as make_device_backend(), Communicator and share().
std::unique_ptr<Backend> make_tensor_parallel_backend(Program program,
                                                      std::shared_ptr<const model::Source> file,
                                                      const std::vector<runtime::Device>& devices,
                                                      const BackendOptions& options);

}  // namespace cgp::engine
