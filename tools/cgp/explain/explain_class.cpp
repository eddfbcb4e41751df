// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/finding_class.h"
#include "cgp/ptx/analysis/bugs.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/spec/report/style.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

/// A class of bugs that the static analyses report, by its code.
bool explain_bug(const Context& context, const std::string& name) {
  const ptx::BugClass* bug = nullptr;
  for (const ptx::BugClass& c : ptx::bug_classes())
    if (name == c.code || name == c.name) bug = &c;
  if (!bug) return false;
  if (context.json) {
    const nlohmann::ordered_json j = {{"schema", "cgp.explain/1"}, {"class", bug->code},
                                      {"name", bug->name},         {"severity", ptx::name(bug->severity)},
                                      {"title", bug->title},       {"hint", bug->hint}};
    write_out(spec::dumped(j, 2) + "\n");
    return true;
  }
  const spec::Paint paint(context.color_out);
  write_out(fmt::format("{}[{} {}]: {}\n\n  {} {}\n\n  found by cgp explain, without running\n",
                        ptx::name(bug->severity), bug->code, bug->name, paint.strong(bug->title),
                        paint.good("to mend it:"), spec::wrapped(bug->hint, context.width, 14)));
  return true;
}

}  // namespace

bool explain_class(const Context& context, const std::string& name) {
  if (explain_bug(context, name)) return true;
  const emu::FindingClass* c = emu::find_class(name);
  if (!c) {
    // race.sharde: a word and a dot is no kernel and no file
    const std::filesystem::path path(name);
    if (name.find('.') == std::string::npos || path.has_parent_path() || path.extension() == ".ptx" ||
        path.extension() == ".cubin" || std::filesystem::exists(path))
      return false;
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
  const spec::Paint paint(context.color_out);
  if (context.json) {
    const nlohmann::ordered_json j = {{"schema", "cgp.explain/1"},
                                      {"class", c->name},
                                      {"severity", emu::name(c->severity)},
                                      {"check", c->check},
                                      {"title", c->title},
                                      {"explanation", c->explanation},
                                      {"hint", c->hint}};
    write_out(spec::dumped(j, 2) + "\n");
    return true;
  }
  write_out(
      fmt::format("{}: {}\n\n  {}\n\n  {} {}\n\n  {}\n",
                  paint.severity(c->severity, fmt::format("{}[{}]", emu::name(c->severity), c->name)),
                  paint.strong(c->title), spec::wrapped(c->explanation, context.width, 2),
                  paint.good("to mend it:"), spec::wrapped(c->hint, context.width, 14),
                  c->check.empty() ? "found by --policies" : fmt::format("found by --check {}", c->check)));
  return true;
}

}  // namespace cgp::cli
