// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program on the processor, by cgp/cpu. Weights are packed at load where they have a packed form and activations may
// be rounded; otherwise they are read from the mapped file. A step allocates nothing once one of its size has run.
#include <memory>

#include "cgp/engine/backend.h"
#include "cgp/model/source/source.h"

namespace cgp::engine {

/// What it would take, before anything is loaded. Throws as make_cpu_backend().
MemoryEstimate cpu_memory(const Program& program, const model::Source& file, const BackendOptions& options);

/// `file` is what `program` was built from. ActivationType::automatic is int16. Throws ArgumentError for a program that
/// reject() refuses and options that are not positive.
std::unique_ptr<Backend> make_cpu_backend(Program program, std::shared_ptr<const model::Source> file,
                                          const BackendOptions& options);

}  // namespace cgp::engine
