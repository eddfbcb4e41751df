// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/finding_view.h"

#include <fmt/core.h>

#include <filesystem>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/finding_class.h"
#include "cgp/ptx/analysis/bugs.h"

namespace cgp::explain {
namespace {

FindingView view_of(const ptx::BugClass& bug, const spec::Style& style) {
  const spec::Paint paint(style.color);
  return {fmt::format("{}[{} {}]: {}\n\n  {} {}\n\n  found by cgp explain, without running\n",
                      ptx::name(bug.severity), bug.code, bug.name, paint.strong(bug.title),
                      paint.good("to mend it:"), spec::wrapped(bug.hint, style.width, 14)),
          {{"schema", "cgp.explain/1"},
           {"class", bug.code},
           {"name", bug.name},
           {"severity", ptx::name(bug.severity)},
           {"title", bug.title},
           {"hint", bug.hint}}};
}

std::string indented(std::string_view code) {
  std::string out;
  for (const std::string_view line : text::split(code, '\n')) out += fmt::format("    {}\n", line);
  return out;
}

FindingView view_of(const emu::FindingClass& c, const spec::Style& style) {
  const spec::Paint paint(style.color);
  return {fmt::format("{}: {}\n\n  {}\n\n  {}\n{}\n  {} {}\n{}\n  {}\n",
                      paint.severity(c.severity, fmt::format("{}[{}]", emu::name(c.severity), c.name)),
                      paint.strong(c.title), spec::wrapped(c.explanation, style.width, 2),
                      paint.bad("for example:"), indented(c.bad), paint.good("to mend it:"),
                      spec::wrapped(c.hint, style.width, 14), indented(c.good),
                      c.check.empty() ? "found by --policies" : fmt::format("found by --check {}", c.check)),
          {{"schema", "cgp.explain/1"},
           {"class", c.name},
           {"severity", emu::name(c.severity)},
           {"check", c.check},
           {"title", c.title},
           {"explanation", c.explanation},
           {"hint", c.hint},
           {"bad", c.bad},
           {"good", c.good}}};
}

/// A word with a dot that is no file: "race.sharde".
bool looks_like_a_class(const std::string& name) {
  const std::filesystem::path path(name);
  return name.find('.') != std::string::npos && !path.has_parent_path() && path.extension() != ".ptx" &&
         path.extension() != ".cubin" && !std::filesystem::exists(path);
}

}  // namespace

std::optional<FindingView> explain_finding(const std::string& name, const spec::Style& style) {
  for (const ptx::BugClass& c : ptx::bug_classes())
    if (name == c.code || name == c.name) return view_of(c, style);
  if (const emu::FindingClass* c = emu::find_class(name)) return view_of(*c, style);
  if (!looks_like_a_class(name)) return {};
  std::vector<std::string> names;
  for (const auto& x : emu::finding_classes()) names.emplace_back(x.name);
  for (const auto& x : ptx::bug_classes()) names.emplace_back(x.name);
  const auto near = text::closest(name, names);
  throw ArgumentError(ErrorText{fmt::format("there is no class of findings \"{}\"", name),
                                {},
                                {},
                                near.empty() ? "docs/findings.md lists them; a file of PTX ends in .ptx"
                                             : "did you mean " + text::join(near, ", ") + "?"});
}

}  // namespace cgp::explain
