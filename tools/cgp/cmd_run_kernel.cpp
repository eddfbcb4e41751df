// SPDX-License-Identifier: Apache-2.0
#define FMT_HEADER_ONLY
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "cgp/prof/compare.h"
#include "commands.h"
#include "kernel_args.h"
#include "npy.h"
#include "report.h"
#include "terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using nlohmann::ordered_json;
using text::cat;

kernels::HostArray to_kernel_array(const spec::HostArray& a) {
  kernels::HostArray out;
  out.dtype = a.dtype;
  out.shape = a.shape;
  out.bytes.resize(a.bytes.size());
  if (!a.bytes.empty()) std::memcpy(out.bytes.data(), a.bytes.data(), a.bytes.size());
  return out;
}
spec::HostArray from_kernel_array(const kernels::HostArray& a) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(a.bytes.data());
  return {a.dtype, a.shape, {data, data + a.bytes.size()}};
}

std::vector<kernels::NamedArray> read_inputs(const kernels::KernelEntry& kernel,
                                             const std::vector<std::string>& given) {
  std::vector<kernels::NamedArray> out;
  for (const auto& text : given) {
    const auto [name, path] = split_setting(text, "--in");
    if (std::find(kernel.inputs.begin(), kernel.inputs.end(), name) == kernel.inputs.end()) {
      const auto near = text::closest(name, kernel.inputs, 1);
      throw ArgumentError(ErrorText{cat(kernel.name, " has no input \"", name, "\""),
                                    {},
                                    cat("it has: ", text::join(kernel.inputs, ", ")),
                                    near.empty() ? "" : cat("did you mean ", near[0], "?")});
    }
    out.push_back({name, to_kernel_array(spec::read_array(path, std::nullopt))});
  }
  return out;
}

struct Outcome {
  runtime::DeviceInfo device;
  std::string variant, why, checks, fault;
  std::vector<std::string> warnings;
  std::vector<kernels::OptionInfo> settings;
  kernels::Check check;
  double flops = 0, bytes = 0;
  std::vector<runtime::LaunchRecord> launches;  ///< emulator
  std::optional<prof::Timing> timing;           ///< GPU
  std::vector<std::pair<std::string, std::string>> saved;
  struct Found {
    emu::Finding finding;
    std::string name, ptx;  ///< of the module it is in
  };
  std::vector<Found> findings;
  bool clean() const {
    return check.pass && fault.empty() && std::none_of(findings.begin(), findings.end(), [](const Found& f) {
             return f.finding.severity == emu::Severity::error;
           });
  }
};

void prepare_emulator(const runtime::Device& device, const RunOptions& o, Outcome& out) {
  emu::Options options = device.emulator_options();
  const spec::CheckPlan plan = spec::plan_checks(o.checks);
  options.checks = plan.set;
  out.checks = plan.performed;
  if (!plan.warning.empty()) out.warnings.push_back(plan.warning);
  device.set_emulator_options(options);
  device.set_findings(runtime::Device::Findings::collect);
  device.keep_results(0);
}

/// The module whose lines the finding counts.
Outcome::Found locate(const emu::Finding& f, const std::string& kernel,
                      const std::vector<runtime::KernelImage>& images) {
  for (const auto& image : images)
    if (image.name == kernel || image.entry == kernel) return {f, image.name, *image.ptx};
  return {f, kernel, ""};
}

Outcome execute(const kernels::KernelEntry& kernel, const RunOptions& o, Progress& progress) {
  Outcome out;
  const auto settings = parse_settings(kernel, o.settings);
  out.settings = settings.all();
  const auto inputs = read_inputs(kernel, o.inputs);
  const auto device = runtime::Device::open(o.device);
  out.device = device.info();
  if (device.is_emulator()) prepare_emulator(device, o, out);
  progress.step("preparing the problem");
  const auto problem = kernel.prepare(device, settings, inputs, o.seed);
  out.variant = problem->variant;
  out.why = problem->why;
  out.flops = problem->flops;
  out.bytes = problem->bytes;
  if (device.is_emulator()) device.clear_results();
  progress.step(cat("running ", out.variant, " on ", out.device.name));
  try {
    problem->launch(device.stream());
    device.stream().wait();
    progress.step("checking against the oracle");
    out.check = problem->verify();
  } catch (const EmuFault& e) {
    out.fault = e.what();
  } catch (const DriverError& e) {
    out.fault = e.what();
  }
  if (device.is_emulator()) {
    out.launches = device.results();
    for (const auto& l : out.launches)
      for (const auto& f : l.result->findings) out.findings.push_back(locate(f, l.kernel, problem->images));
  } else if (out.fault.empty() && o.repeat > 0) {
    progress.step("timing");
    const prof::Contender contender{kernel.name, [&](runtime::Stream& s) { problem->launch(s); }};
    prof::CompareOptions options;
    options.rounds = o.repeat;
    out.timing = prof::compare(device, {&contender, 1}, options).at(0);
  }
  if (!out.fault.empty()) return out;
  const auto outputs = o.outputs.empty() ? std::vector<kernels::NamedArray>() : problem->outputs();
  for (const auto& text : o.outputs) {
    const auto [name, path] = split_setting(text, "--out");
    std::vector<std::string> names;
    for (const auto& a : outputs) names.push_back(a.name);
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      throw ArgumentError(ErrorText{cat(kernel.name, " has no output \"", name, "\""),
                                    {},
                                    cat("it has: ", text::join(names, ", ")),
                                    {}});
    spec::write_array(path, from_kernel_array(outputs[std::size_t(at - names.begin())].array));
    out.saved.emplace_back(name, path);
  }
  return out;
}

ordered_json to_json(const kernels::KernelEntry& kernel, const RunOptions& o, const Outcome& r) {
  ordered_json j = {{"schema", "cgp.run/1"},
                    {"verdict", r.clean() ? "pass" : "fail"},
                    {"exit_code", r.clean() ? kClean : kCheckFailed},
                    {"kernel", kernel.name},
                    {"variant", r.variant},
                    {"why", r.why},
                    {"device", spec::to_json(r.device)},
                    {"checks", r.checks},
                    {"seed", o.seed},
                    {"flops", r.flops},
                    {"bytes", r.bytes}};
  j["options"] = ordered_json::object();
  for (const auto& option : r.settings) j["options"][option.name] = option.value;
  j["oracle"] = {{"pass", r.check.pass},
                 {"compared", r.check.compared},
                 {"wrong", r.check.wrong},
                 {"max_abs_error", r.check.max_error},
                 {"worst_error_over_tolerance", r.check.worst_ratio},
                 {"worst",
                  {{"index", r.check.worst_index},
                   {"got", r.check.worst_got},
                   {"want", r.check.worst_want},
                   {"tolerance", r.check.worst_tolerance}}}};
  j["launches"] = ordered_json::array();
  for (const auto& l : r.launches)
    j["launches"].push_back({{"entry", l.kernel},
                             {"grid", {l.grid.x, l.grid.y, l.grid.z}},
                             {"block", {l.block.x, l.block.y, l.block.z}},
                             {"cluster", {l.cluster.x, l.cluster.y, l.cluster.z}},
                             {"dynamic_smem_bytes", l.dynamic_smem},
                             {"emulation_s", l.result->seconds},
                             {"counters", spec::to_json(l.result->counters)}});
  if (r.timing) {
    const auto& s = r.timing->summary;
    j["time_ms"] = {{"median", s.median}, {"p25", s.p25}, {"p75", s.p75},
                    {"min", s.min},       {"max", s.max}, {"count", s.count}};
    j["flop_per_s"] = r.flops / (s.median * 1e-3);
    j["bytes_per_s"] = r.bytes / (s.median * 1e-3);
  }
  j["findings"] = ordered_json::array();
  for (const auto& f : r.findings) j["findings"].push_back(spec::to_json(f.finding));
  j["fault"] = r.fault.empty() ? ordered_json() : ordered_json(r.fault);
  j["saved"] = ordered_json::object();
  for (const auto& [name, path] : r.saved) j["saved"][name] = path;
  j["warnings"] = r.warnings;
  return j;
}

std::string to_text(const kernels::KernelEntry& kernel, const Outcome& r, bool color) {
  std::string out = format("{}: variant {}{} on {}\n", kernel.name, r.variant,
                           r.why.empty() ? "" : format(" ({})", r.why), r.device.name);
  emu::Counters total;
  for (const auto& l : r.launches) {
    out += format("  {}  grid ({},{},{}) block ({},{},{})", l.kernel, l.grid.x, l.grid.y, l.grid.z, l.block.x,
                  l.block.y, l.block.z);
    if (l.cluster.count() > 1) out += format(" cluster ({},{},{})", l.cluster.x, l.cluster.y, l.cluster.z);
    if (l.dynamic_smem) out += format(" dynamic shared {}", text::bytes(l.dynamic_smem));
    out += '\n';
    total.add(l.result->counters);
  }
  if (!r.launches.empty()) out += "counters\n" + spec::counters_text(total);
  for (const auto& f : r.findings) out += spec::finding_text(f.finding, f.name + ".ptx", f.ptx, color);
  if (!r.fault.empty()) out += format("fault: {}\n", r.fault);
  if (r.timing) {
    const auto& s = r.timing->summary;
    out += format("time  {:.4f} ms median of {} (min {:.4f}, ±{:.1f}%)", s.median, s.count, s.min,
                  100 * s.spread());
    if (r.flops > 0) out += format(", {:.2f} TFLOP/s", r.flops / s.median * 1e-9);
    if (r.bytes > 0) out += format(", {:.1f} GB/s", r.bytes / s.median * 1e-6);
    out += '\n';
  }
  for (const auto& [name, path] : r.saved) out += format("saved {} to {}\n", name, path);
  for (const auto& w : r.warnings) out += format("warning: {}\n", w);
  if (r.fault.empty()) out += "oracle: " + r.check.describe() + "\n";
  out += format("{}: {} finding{}{}\n", r.clean() ? "clean" : "failed", r.findings.size(),
                r.findings.size() == 1 ? "" : "s",
                r.checks.empty() ? " (checks need the emulator)" : format(" (checks: {})", r.checks));
  if (!r.launches.empty()) out += format("on a GPU: cgp run {} --device cuda\n", kernel.name);
  return out;
}

}  // namespace

int run_kernel(const Context& context, const RunOptions& o) {
  const auto& kernel = kernels::find_kernel(o.target);
  if (!o.ptx.empty())
    throw ArgumentError(
        ErrorText{"--ptx belongs to --spec", {}, cat("the target is the kernel ", o.target), {}});
  Outcome outcome;
  {
    Progress progress;
    outcome = execute(kernel, o, progress);
  }
  write_out(context.json ? to_json(kernel, o, outcome).dump(2) + "\n"
                         : to_text(kernel, outcome, context.color_out));
  return outcome.clean() ? kClean : kCheckFailed;
}

}  // namespace cgp::cli
