// SPDX-License-Identifier: Apache-2.0
#pragma once
// The source and the machine code of the functions that take most time, each line with its samples; and what the samples say
// in one sentence, with what to do next.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgp/profile/sampling/cpu_profile.h"

namespace cgp::profile {

/// Fills HotFunction::source and ::assembly of the first functions of `p`: around the hottest line and instruction, as far as the
/// source file is here and objdump (binutils) is. What is missing is said in the place ("absent").
void annotate(CpuProfile& p);

/// The source and then the machine code of a function of the section "cpu_samples", as `functions[]` has it; empty
/// without.
std::string annotated_text(const nlohmann::ordered_json& function, int width);

struct Headline {
  std::string bound_by;           ///< one sentence: what bounds the program
  std::vector<std::string> next;  ///< three steps that follow from it, commands first
};
/// Of a section "cpu_samples"; `wall_seconds` that the program took, 0 where nobody knows.
Headline headline_of(const nlohmann::ordered_json& section, double wall_seconds);

}  // namespace cgp::profile
