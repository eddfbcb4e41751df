// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every class of finding: what it is called, what it means, what to do (finding_classes.def), with an example
// (finding_examples.def). From these tables reports, SARIF rules and docs/findings.md are made.
#include <span>
#include <string_view>

#include "cgp/emu/emu.h"

namespace cgp::emu {

struct FindingClass {
  std::string_view name;  ///< "race.shared"
  Severity severity;
  std::string_view check;  ///< word of parse_checks that finds it; empty: made by tools, not by a launch
  std::string_view title;  ///< a headline without an end stop
  std::string_view explanation;  ///< two or three sentences
  std::string_view hint;         ///< what to write; shown when the finding brings none of its own
  std::string_view bad,
      good;  ///< the smallest code that has it, and the same mended: CUDA C++ or PTX, in lines
};

/// Sorted by name.
std::span<const FindingClass> finding_classes();
/// nullptr for a name that is not in the table.
const FindingClass* find_class(std::string_view name);

}  // namespace cgp::emu
