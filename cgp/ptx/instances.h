// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: instructions made from the table's own forms.
#include <random>
#include <vector>

#include "cgp/ptx/forms.h"
#include "cgp/ptx/module.h"

namespace cgp::ptx::samples {

/// A module with one kernel that declares registers of every type, variables in every space and a label, and
/// has no instructions yet.
Module empty_module(Version version, const std::string& target);

/// One instruction that fits the form. Choices (modifiers, constants, optional operands) come from `random`;
/// with `plain` they are the first ones.
Inst instance(Module& m, const Form& f, std::mt19937& random, bool plain);

/// Each alternative of each modifier slot once, the others plain: the smallest set that uses everything.
std::vector<Inst> cover(Module& m, const Form& f, std::mt19937& random);

}  // namespace cgp::ptx::samples
