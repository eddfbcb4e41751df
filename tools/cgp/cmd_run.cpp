// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "args.h"
#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/parse.h"
#include "commands.h"
#include "report.h"
#include "spec_run.h"
#include "terminal.h"

namespace cgp::cli {
namespace {

using text::cat;

bool is_ptx_file(const std::string& target) {
  return std::filesystem::path(target).extension() == ".ptx" || target.find('/') != std::string::npos;
}

std::uint32_t parse_bytes(const std::string& text, std::string_view option) {
  std::uint32_t v = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || r.ec != std::errc() || r.ptr != text.data() + text.size())
    throw ArgumentError(
        ErrorText{cat(option, " must be a number of bytes"), {}, cat("it is \"", text, "\""), {}});
  return v;
}

/// The only entry, when the user names none.
std::string only_entry(const std::string& path) {
  const ptx::Module module = ptx::parse(read_file(path));
  std::vector<std::string> entries;
  for (const auto& f : module.functions)
    if (f.entry && f.has_body) entries.push_back(module.text(f.name));
  if (entries.size() == 1) return entries[0];
  throw ArgumentError(
      ErrorText{entries.empty() ? "the PTX must have an entry" : "--entry must say which kernel to run",
                path,
                cat("it has ", entries.size(), ": ", text::join(entries, ", ")),
                {}});
}

spec::Spec spec_from_arguments(const RunOptions& o) {
  spec::Spec spec;
  spec.path = o.target;
  spec.ptx_path = o.target;
  if (!o.settings.empty())
    throw ArgumentError(ErrorText{
        "a PTX file takes its arguments with --arg", {}, cat("\"", o.settings[0], "\" is none"), {}});
  spec::LaunchSpec launch;
  launch.entry = o.entry.empty() ? only_entry(o.target) : o.entry;
  for (const auto& [text, option] : {std::pair{&o.grid, "--grid"}, std::pair{&o.block, "--block"}})
    if (text->empty())
      throw ArgumentError(ErrorText{
          cat("a PTX file needs ", option), {}, "it was not given", cat("for example ", option, " 128,1,1")});
  launch.grid = spec::parse_extents(o.grid, "--grid");
  launch.block = spec::parse_extents(o.block, "--block");
  if (!o.cluster.empty()) launch.cluster = spec::parse_extents(o.cluster, "--cluster");
  launch.dynamic_smem = parse_bytes(o.dynamic_smem, "--smem");
  spec.launches.push_back(std::move(launch));
  for (std::size_t i = 0; i < o.args.size(); ++i) spec::add_argument(spec, o.args[i], i);
  return spec;
}

void require_no_launch_options(const RunOptions& o, std::string_view what) {
  const bool any = !o.entry.empty() || !o.grid.empty() || !o.block.empty() || !o.cluster.empty() ||
                   !o.args.empty() || o.dynamic_smem != "0";
  if (any)
    throw ArgumentError(ErrorText{cat(what, " decides its own launches"),
                                  {},
                                  "--entry, --grid, --block, --cluster, --smem and --arg belong to FILE.ptx",
                                  {}});
}

}  // namespace

int run(const Context& context, const RunOptions& o) {
  if (o.spec.empty() == o.target.empty())
    throw ArgumentError(
        ErrorText{"cgp run needs a kernel, a PTX file or --spec, and only one of them",
                  {},
                  o.spec.empty() ? "none was given" : cat("both \"", o.target, "\" and --spec were given"),
                  "for example cgp run gemm, cgp run k.ptx --grid 1 --block 32, cgp run --spec case.json"});
  if (o.spec.empty() && !is_ptx_file(o.target)) {
    require_no_launch_options(o, "a kernel");
    return run_kernel(context, o);
  }
  if (!o.inputs.empty() || !o.outputs.empty())
    throw ArgumentError(
        ErrorText{"--in and --out belong to kernels", {}, "PTX files take --arg in:..., out:...", {}});
  spec::Spec spec;
  if (!o.spec.empty()) {
    require_no_launch_options(o, "a launch spec");
    spec = spec::load_spec(o.spec, o.ptx);
  } else {
    spec = spec_from_arguments(o);
  }
  spec::SpecResult result;
  {
    Progress progress;
    spec::RunOptions options;
    options.device = o.device;
    options.checks = o.checks;
    options.progress = [&](const std::string& what) { progress.step(what); };
    result = spec::run_spec(spec, options);
  }
  if (o.checks_given && result.checks.empty() && o.checks != "none")
    result.warnings.push_back("--check needs the emulator; nothing was checked on this device");
  write_out(context.json ? spec::to_json(result).dump(2) + "\n"
                         : spec::result_text(result, context.color_out));
  return result.exit_code();
}

}  // namespace cgp::cli
