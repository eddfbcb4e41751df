// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks a Module against the ISA table: modifiers, operand kinds and types, state spaces, required .version
// and target of every instruction, module rules (labels, parameters, directives).
#include <string>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

struct Problem {
  std::string rule;         ///< what must hold
  std::string instruction;  ///< printed instruction or declaration
  std::string why, hint;
  std::uint32_t ptx_line = 0;
  std::uint32_t loc = kNone;  ///< index into Module::locs
};

/// Everything wrong with the module, in program order; empty = legal.
std::vector<Problem> check(const Module& m);
/// Throws VerifyError with the first problem and the number of the others.
void verify(const Module& m);
/// Lowest .version that every instruction used needs, and what asks for it.
Version required_version(const Module& m);

}  // namespace cgp::ptx
