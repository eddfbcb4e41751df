// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks a Module against the ISA table (forms.h): modifiers, operand kinds and types, state spaces, required
// .version and target of every instruction, and the rules of modules (names, labels, parameters, directives,
// limits). What passes is accepted by ptxas; the two are compared in the tests.
#include <string>
#include <vector>

#include "cgp/ptx/forms.h"
#include "cgp/ptx/module.h"

namespace cgp::ptx {

struct Problem {
  std::string rule;         ///< what must hold
  std::string instruction;  ///< printed instruction or declaration
  std::string why, hint;
  std::uint32_t ptx_line = 0;
  std::uint32_t loc = kNone;  ///< index into Module::locs
};

struct CheckOptions {
  /// Text that we did not write: without the house rules, which are stricter than ptxas because what they
  /// reject is nearly always a mistake (64-bit register as .shared address, 32-bit register as generic
  /// address, lane offset of 32 and more).
  bool foreign = false;
  /// Stop after this many problems.
  std::size_t limit = 100;
};

/// Everything wrong with the module, in program order; empty = legal.
std::vector<Problem> check(const Module& m, const CheckOptions& options = {});
/// Throws VerifyError with the first problem and the number of the others.
void verify(const Module& m, const CheckOptions& options = {});

/// What one used feature asks for: "wgmma.mma_async.sync.aligned..." needs 8.0 and sm_90a.
struct Need {
  std::string what;
  Requirement requirement;
};
/// The features that ask for more than PTX 6.0 on sm_50, highest version first, one entry per spelling.
std::vector<Need> needs(const Module& m);
/// Lowest .version that every feature used (and the target) needs.
Version required_version(const Module& m);
/// Gives the module that .version and checks it, at the price of one check.
std::vector<Problem> settle_version(Module& m);

}  // namespace cgp::ptx
