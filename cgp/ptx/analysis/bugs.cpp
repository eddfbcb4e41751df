// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/bugs.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

constexpr BugClass kClasses[] = {
#define CGP_BUG(code, severity, name, title, hint) \
  {Bug::code, "ANA-" #code, Severity::severity, name, title, hint},
#include "cgp/ptx/analysis/bugs.def"
};

}  // namespace

std::string_view name(Severity s) {
  constexpr std::string_view names[] = {"P0", "P1", "P2"};
  return names[std::size_t(s)];
}

std::span<const BugClass> bug_classes() { return kClasses; }
const BugClass& bug_class(Bug b) { return kClasses[std::size_t(b)]; }

Bug parse_bug(std::string_view text) {
  std::vector<std::string> all;
  for (const BugClass& c : kClasses) {
    if (text == c.code || text == c.code.substr(4) || text == c.name) return c.bug;
    all.emplace_back(c.code);
    all.emplace_back(c.name);
  }
  throw ArgumentError({text::cat("there is no bug class '", text, "'"), "", "",
                       text::cat("close are ", text::join(text::closest(text, all), ", "))});
}

std::string bug_markdown() {
  std::string out = "| code | severity | name | meaning |\n|---|---|---|---|\n";
  for (const BugClass& c : kClasses)
    out += text::cat("| ", c.code, " | ", name(c.severity), " | `", c.name, "` | ", c.title, " |\n");
  return out;
}

}  // namespace cgp::ptx
