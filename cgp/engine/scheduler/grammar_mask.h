// SPDX-License-Identifier: Apache-2.0
#pragma once
// A grammar as the mask of a request.
#include <memory>

#include "cgp/engine/scheduler/request.h"
#include "cgp/model/grammar/grammar_matcher.h"

namespace cgp::engine {

/// For Request::mask, of one request. accept() throws ArgumentError for a token that may not come.
std::shared_ptr<TokenMask> grammar_mask(model::CompiledGrammar grammar);

}  // namespace cgp::engine
