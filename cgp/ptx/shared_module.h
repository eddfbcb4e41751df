// SPDX-License-Identifier: Apache-2.0
#pragma once
// One parse of a text that several parts of a run need: the verifier, the launcher's signature, the emulator.
//
//   const auto module = ptx::share_module(text);   // parses
//   ptx::module_of(text)                           // while `module` lives: a copy of it, not parsed again
#include <memory>
#include <string>
#include <string_view>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// Parses `text`, unless it is the text shared last and that module still lives. Throws ParseError.
std::shared_ptr<const Module> share_module(std::string_view text);

/// A copy of the module shared last if that is of this text and still lives, else parse(text).
Module module_of(std::string_view text);

}  // namespace cgp::ptx
