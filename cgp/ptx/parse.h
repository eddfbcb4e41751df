// SPDX-License-Identifier: Apache-2.0
#pragma once
// PTX text to Module. Reads what we, nvcc, clang and Triton emit; anything else is a ParseError with line,
// column and caret. Nested scopes are flattened: a shadowing register, label or variable gets a unique name.
#include <string_view>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

Module parse(std::string_view text);

}  // namespace cgp::ptx
