// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights as products read them.
#include <memory>

#include "cgp/model/source/source.h"

namespace cgp::engine {

/// `source` with every tensor row by row, its values those of GGUF, at an address that its type allows. Tensors that are
/// otherwise are copied: GPT-2's matrices and Gemma's norms from a Hugging Face folder. A source that has none is returned
/// as it is.
std::shared_ptr<const model::Source> row_major(std::shared_ptr<const model::Source> source);

}  // namespace cgp::engine
