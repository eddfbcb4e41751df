// SPDX-License-Identifier: Apache-2.0
#pragma once
// The instruction table as a page of documentation.
#include <functional>
#include <string>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// Markdown: one section per family, one row per form with its .version and targets. `note` may add a word on
/// each opcode (what the emulator does with it).
std::string isa_markdown(const std::function<std::string(Op)>& note = {});

}  // namespace cgp::ptx
