// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/explain/finding_view.h"
#include "cgp/explain/machine_code.h"
#include "cgp/explain/module_view.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/profile/roofline/prediction.h"
#include "cgp/ptx/parse.h"
#include "cgp/spec/args.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using nlohmann::ordered_json;
using text::cat;

std::array<std::uint32_t, 3> extents(const std::string& text, const std::string& option) {
  const runtime::Dim3 d = spec::parse_extents(text, option);
  return {d.x, d.y, d.z};
}

/// What `--finding` asks for.
explain::FindingView finding_view(const ExplainOptions& o, const spec::Style& style) {
  if (const auto view = explain::explain_finding(o.finding, style)) return *view;
  throw ArgumentError(ErrorText{
      cat("there is no class of findings \"", o.finding, "\""), {}, {}, "docs/findings.md lists them"});
}

template <class View>
int show(const Context& context, const View& view) {
  write_out(context.json ? spec::dumped(view.json, 2) + "\n" : view.text);
  return kClean;
}

/// `content`: of a file, else empty.
int show_shaders(const Context& context, const ExplainOptions& o, const std::string& content,
                 const explain::ExamineOptions& examine) {
  std::vector<ShaderSource> sources;
  const auto add = [&](ShaderSource s) {
    if (examine.block) s.block = *examine.block;
    sources.push_back(std::move(s));
  };
  if (content.empty()) {
    for (const auto& image :
         profile::select_images(kernels::find_kernel(o.target), o.arch, o.variant, o.settings)) {
      ShaderSource s{image.name, image.entry, *image.ptx};
      if (image.block.count() > 0) s.block = {image.block.x, image.block.y, image.block.z};
      s.dynamic_shared = image.dynamic_smem;
      add(std::move(s));
    }
  } else {
    const auto module = ptx::parse(content);
    for (const auto& f : module.functions) {
      const std::string name = module.text(f.name);
      if (f.entry && (o.entry.empty() || o.entry == name)) add({name, name, content});
    }
    if (sources.empty())
      throw ArgumentError(
          ErrorText{o.entry.empty() ? "the file has no kernel" : cat("the file has no kernel ", o.entry),
                    o.target,
                    {},
                    {}});
  }
  return explain_shader(context, o.language, sources);
}

}  // namespace

int explain(const Context& context, const ExplainOptions& o) {
  if (o.target.empty() == o.finding.empty())
    throw ArgumentError(
        ErrorText{"cgp explain needs a target or --finding, and only one of them",
                  {},
                  o.target.empty() ? "none was given" : cat("\"", o.target, "\" and --finding were"),
                  "for example cgp explain k.ptx, cgp explain --finding race.shared"});
  if (!o.finding.empty()) return show(context, finding_view(o, {context.color_out, context.width}));
  if (!o.function.empty() && !o.x86)
    throw ArgumentError(ErrorText{"--function goes with --x86", {}, {}, "--entry names a kernel"});
  if (o.x86) return show(context, explain::explain_x86(o.target, o.function, o.all, context.width));
  if (const auto view = explain::explain_finding(o.target, {context.color_out, context.width}))
    return show(context, *view);
  const std::filesystem::path path(o.target);
  const auto& catalog = kernels::catalog();
  const bool file =
      path.extension() == ".ptx" || path.extension() == ".cubin" || path.has_parent_path() ||
      (std::filesystem::exists(path) &&
       std::none_of(catalog.begin(), catalog.end(), [&](const auto& k) { return k.name == o.target; }));
  const std::string content = file ? read_file(o.target) : "";
  if (path.extension() == ".cubin" || content.rfind("\x7f"
                                                    "ELF",
                                                    0) == 0)
    return show(context, explain::explain_cubin(o.target, o.entry));
  explain::ExamineOptions examine;
  examine.entry = o.entry;
  if (!o.block.empty()) examine.block = extents(o.block, "--block");
  if (!o.grid.empty()) examine.grid = extents(o.grid, "--grid");
  examine.pointer_alignment = o.alignment;
  for (const std::string& p : o.parameters) {
    const auto [name, value] = profile::split_setting(p, "--param");
    std::int64_t number = 0;
    const auto end = std::from_chars(value.data(), value.data() + value.size(), number);
    if (end.ec != std::errc() || end.ptr != value.data() + value.size())
      throw ArgumentError({cat("--param ", name, " is an integer"), "", cat("'", value, "'"), ""});
    examine.parameters[name] = number;
  }
  if (!o.language.empty()) return show_shaders(context, o, file ? content : std::string(), examine);
  explain::AnalysisView view;
  view.all_rows = o.all;
  for (const std::string& a : o.allow) view.allowed.push_back(ptx::parse_bug(a));
  std::vector<explain::ModuleFacts> modules;
  if (file) {
    try {
      modules.push_back(explain::examine_module(o.target, content, examine));
      modules.back().assembled = explain::assembled(content, modules.back().target);
    } catch (const ParseError& e) {
      throw ParseError(ErrorText{e.rule(), cat(o.target, ": ", e.where()), e.why(), e.hint()});
    }
  } else {
    for (const auto& image :
         profile::select_images(kernels::find_kernel(o.target), o.arch, o.variant, o.settings)) {
      explain::ExamineOptions one = examine;
      if (!one.block && image.block.count() > 0) one.block = {image.block.x, image.block.y, image.block.z};
      one.dynamic_smem = image.dynamic_smem;
      modules.push_back(explain::examine_module(image.name, *image.ptx, one));
      modules.back().assembled = explain::assembled(*image.ptx, modules.back().target);
    }
  }
  std::string out;
  if (context.json) {
    ordered_json j = {{"schema", "cgp.explain/1"}, {"modules", ordered_json::array()}};
    for (const auto& m : modules) j["modules"].push_back(explain::module_json(m, view));
    out = spec::dumped(j, 2) + "\n";
  } else {
    for (std::size_t i = 0; i < modules.size(); ++i)
      out += (i ? "\n" : "") + explain::module_text(modules[i], view);
  }
  if (!o.profile.empty() && !context.json) {
    const std::string table = profile::predictions_text(
        explain::counted_accesses(modules, profile::load_any(o.profile)), context.width);
    if (table.empty())
      throw ArgumentError(
          ErrorText{"the profile must have memory accesses one by one",
                    o.profile,
                    {},
                    "cgp profile kernel NAME --device emu --save FILE; or ncu --set full -o FILE"});
    out += "\n" + table;
  }
  write_out(out);
  return explain::fails(modules, view, o.fail_on) ? kCheckFailed : kClean;
}

}  // namespace cgp::cli
