// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/finding_class.h"

#include <algorithm>

namespace cgp::emu {
namespace {
constexpr FindingClass kClasses[] = {
#define CGP_FINDING(name, severity, check, title, explanation, hint) \
  {name, Severity::severity, check, title, explanation, hint},
#include "cgp/emu/finding_classes.def"
};
}  // namespace

std::span<const FindingClass> finding_classes() { return kClasses; }

const FindingClass* find_class(std::string_view name) {
  const auto* it = std::lower_bound(std::begin(kClasses), std::end(kClasses), name,
                                    [](const FindingClass& c, std::string_view n) { return c.name < n; });
  return it != std::end(kClasses) && it->name == name ? it : nullptr;
}

}  // namespace cgp::emu
