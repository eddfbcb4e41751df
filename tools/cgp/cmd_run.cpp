// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/shared_module.h"
#include "cgp/runtime/kernel_image.h"
#include "cgp/spec/args.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/spec/report/report.h"
#include "cgp/spec/spec_run.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/run_shared.h"
#include "tools/cgp/terminal.h"

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
std::string only_entry(const ptx::Module& module, const std::string& path) {
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

spec::Spec spec_from_arguments(const RunOptions& o, std::shared_ptr<const ptx::Module>& module) {
  spec::Spec spec;
  spec.path = o.target;
  spec.ptx_path = o.target;
  spec.ptx = read_file(o.target);
  module = ptx::share_module(spec.ptx);
  if (!o.settings.empty())
    throw ArgumentError(ErrorText{
        "a PTX file takes its arguments with --arg", {}, cat("\"", o.settings[0], "\" is none"), {}});
  spec::LaunchSpec launch;
  launch.entry = o.entry.empty() ? only_entry(*module, o.target) : o.entry;
  const auto shape = [](const std::string& text, std::string_view option, runtime::Dim3 built_for) {
    if (!text.empty()) return spec::parse_extents(text, option);
    if (built_for.count() == 0)
      throw ArgumentError(ErrorText{
          cat("a PTX file needs ", option), {}, "it was not given", cat("for example ", option, " 128,1,1")});
    return built_for;
  };
  launch.grid = shape(o.grid, "--grid", runtime::kFromKernel);
  const runtime::KernelImage image = runtime::image_from_ptx(spec.ptx, launch.entry);
  launch.block = shape(o.block, "--block", image.block);
  launch.cluster = shape(o.cluster, "--cluster", image.cluster);
  launch.cooperative = o.cooperative;
  launch.dynamic_smem = parse_bytes(o.dynamic_smem, "--smem");
  spec.launches.push_back(std::move(launch));
  for (std::size_t i = 0; i < o.args.size(); ++i) spec::add_argument(spec, o.args[i], i);
  return spec;
}

void require_no_launch_options(const RunOptions& o, std::string_view what) {
  const bool any = !o.entry.empty() || !o.grid.empty() || !o.block.empty() || !o.cluster.empty() ||
                   !o.args.empty() || o.dynamic_smem != "0" || o.cooperative;
  if (any)
    throw ArgumentError(
        ErrorText{cat(what, " decides its own launches"),
                  {},
                  "--entry, --grid, --block, --cluster, --cooperative, --smem and --arg belong to FILE.ptx",
                  {}});
}

/// The case under each policy; the first run is the one whose results, counters and files are shown.
spec::SpecResult run_policies(const spec::Spec& spec, const RunOptions& o) {
  Progress progress;
  const auto policies = o.emulation.all();
  spec::PolicyRuns runs;
  spec::SpecResult result;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string under = policies.size() > 1 ? cat(policies[i].arguments(), ": ") : "";
    spec::RunOptions options;
    options.device = o.device;
    options.checks = o.checks;
    if (const auto passes = ptx::parse_passes(o.passes); passes.any())
      options.transform = [passes](const std::string& text) {
        ptx::Module module = ptx::module_of(text);
        ptx::optimise(module, passes);
        return ptx::print(module);
      };
    options.keep_outputs = policies.size() > 1;
    options.write_outputs = i == 0;
    options.progress = [&](const std::string& what) { progress.step(under + what); };
    options.tune = [&](emu::Options& e) {
      o.emulation.apply(e);
      policies[i].apply(e);
      e.access_map = !o.heatmap.empty();
    };
    spec::SpecResult r = spec::run_spec(spec, options);
    const bool emulated = r.device.kind == runtime::DeviceKind::emulator;
    if (policies.size() > 1 && emulated) {
      std::vector<spec::PolicyBuffer> buffers;
      for (auto& b : r.buffers)
        if (b.role != spec::Role::scratch) buffers.push_back({b.name, b.how, std::move(b.data)});
      runs.add(policies[i], r.findings, std::move(buffers), r.fault);
    }
    if (i == 0)
      result = std::move(r);
    else if (result.fault.empty() && !r.fault.empty())
      result.fault = under + r.fault;
    if (!emulated) return result;
  }
  result.emulation = o.emulation.changed();
  if (policies.size() > 1) {
    result.findings = std::move(runs.findings);
    result.policies = std::move(runs.outcomes);
  }
  return result;
}

/// What the run hands to --annotate, --heatmap and --sarif.
Ran views_of(const spec::SpecResult& r) {
  Ran ran;
  ran.title = r.ptx_path;
  ran.modules[r.ptx_path] = r.ptx;
  for (const auto& l : r.launches) ran.launches.push_back({l.spec.entry, r.ptx_path, l.emulated});
  ran.findings = &r.findings;
  ran.exit_code = r.exit_code();
  if (!r.fault.empty()) ran.failures.push_back(r.fault);
  for (const auto& b : r.buffers)
    if (b.compared && !b.comparison.equal)
      ran.failures.push_back(cat("buffer ", b.name, ": ", b.comparison.wrong, " of ", b.comparison.elements,
                                 " elements are wrong; element ", b.comparison.first, " is ",
                                 b.comparison.first_got, ", expected ", b.comparison.first_want));
  for (const auto& m : r.counter_mismatches)
    ran.failures.push_back(cat("counter ", m.name, " of launch ", m.launch, " is not ", m.want));
  return ran;
}

}  // namespace

int run(const Context& context, const RunOptions& o) {
  if (o.spec.empty() == o.target.empty())
    throw ArgumentError(
        ErrorText{"cgp run needs a kernel, a PTX file or --spec, and only one of them",
                  {},
                  o.spec.empty() ? "none was given" : cat("both \"", o.target, "\" and --spec were given"),
                  "for example cgp run gemm, cgp run k.ptx --grid 1 --block 32, cgp run --spec case.json"});
  check_views(o);
  if (o.spec.empty() && !is_ptx_file(o.target)) {
    require_no_launch_options(o, "a kernel");
    return run_kernel(context, o);
  }
  if (!o.inputs.empty() || !o.outputs.empty())
    throw ArgumentError(
        ErrorText{"--in and --out belong to kernels", {}, "PTX files take --arg in:..., out:...", {}});
  spec::Spec spec;
  std::shared_ptr<const ptx::Module> module;  // held, so that what follows does not parse again
  if (!o.spec.empty()) {
    require_no_launch_options(o, "a launch spec");
    spec = spec::load_spec(o.spec, o.ptx);
    spec.ptx = read_file(spec.ptx_path);
    module = ptx::share_module(spec.ptx);
  } else {
    spec = spec_from_arguments(o, module);
  }
  spec::SpecResult result = run_policies(spec, o);
  if (result.checks.empty()) warn_without_emulator(o, result.warnings);
  spec::Sources sources(source_folders(o, result.ptx_path));
  sources.add(result.ptx_path, result.ptx);
  Ran ran = views_of(result);
  if (context.json) {
    auto j = spec::to_json(result);
    views_json(o, ran, sources, j);
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    const spec::Style style{context.color_out, context.width};
    const std::string views = views_text(o, ran, sources, style);
    write_out(spec::result_text(result, sources, style, views));
  }
  return result.exit_code();
}

}  // namespace cgp::cli
