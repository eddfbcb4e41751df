// SPDX-License-Identifier: Apache-2.0
#pragma once
// The model of a command line.
#include "cgp/engine/llm.h"
#include "cgp/model/unicode/unicode.h"
#include "tools/cgp/model/model_commands.h"

namespace cgp::cli {

/// With progress on a terminal. Throws what LLM::load throws.
engine::LLM load_model(const Context& context, const ModelOptions& options);

}  // namespace cgp::cli
