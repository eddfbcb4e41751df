// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/finding_class.h"

#include <algorithm>

namespace cgp::emu {
namespace {
struct Example {
  std::string_view name, bad, good;
};
constexpr Example kExamples[] = {
#define CGP_EXAMPLE(name, bad, good) {name, bad, good},
#include "cgp/emu/finding_examples.def"
};
consteval const Example& example(std::string_view name) {
  for (const Example& e : kExamples)
    if (e.name == name) return e;
  throw "finding_examples.def lacks a class";
}

constexpr FindingClass kClasses[] = {
#define CGP_FINDING(name, severity, check, title, explanation, hint) \
  {name, Severity::severity, check, title, explanation, hint, example(name).bad, example(name).good},
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
