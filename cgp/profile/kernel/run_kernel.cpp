// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/run_kernel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/passes.h"
#include "cgp/emu/emu.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/spec/npy.h"

namespace cgp::profile {
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

void prepare_emulator(const runtime::Device& device, const KernelRunOptions& o, const spec::Policy& policy,
                      KernelRun& out) {
  emu::Options options = device.emulator_options();
  const spec::CheckPlan plan = spec::plan_checks(o.checks);
  options.checks = plan.set;
  o.emulation.apply(options);
  policy.apply(options);
  options.access_map = o.access_map;
  out.checks = plan.performed;
  if (!plan.warning.empty()) out.warnings.push_back(plan.warning);
  device.set_emulator_options(options);
  device.set_findings(runtime::Device::Findings::collect);
  device.keep_results(0);
}

/// The name under which Sources has the module that ran as `kernel`.
std::string module_of(const std::string& kernel, const std::vector<runtime::KernelImage>& images) {
  for (const auto& image : images)
    if (image.name == kernel || image.entry == kernel) return image.name + ".ptx";
  return kernel + ".ptx";
}

void save_outputs(const kernels::KernelEntry& kernel, const KernelRunOptions& o, kernels::Case& problem,
                  KernelRun& out) {
  if (o.outputs.empty()) return;
  const auto outputs = problem.outputs();
  std::vector<std::string> names;
  for (const auto& a : outputs) names.push_back(a.name);
  for (const auto& text : o.outputs) {
    const auto [name, path] = split_setting(text, "--out");
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      throw ArgumentError(ErrorText{cat(kernel.name, " has no output \"", name, "\""),
                                    {},
                                    cat("it has: ", text::join(names, ", ")),
                                    {}});
    spec::write_array(path, from_kernel_array(outputs[std::size_t(at - names.begin())].array));
    out.saved.emplace_back(name, path);
  }
}

/// One run of the problem, from fresh memory, under one policy.
struct OneRun {
  KernelRun outcome;
  std::vector<spec::PolicyBuffer> buffers;
};

OneRun execute(const kernels::KernelEntry& kernel, const KernelRunOptions& o, const spec::Policy& policy,
               bool first, bool keep, spec::Sources& sources,
               const std::function<void(const std::string&)>& step) {
  OneRun run;
  KernelRun& out = run.outcome;
  dsl::set_passes(ptx::parse_passes(o.passes));
  const auto settings = parse_settings(kernel, o.settings);
  out.settings = settings.all();
  const auto inputs = read_inputs(kernel, o.inputs);
  const auto device = runtime::Device::open(o.device);
  out.device = device.info();
  if (device.is_emulator()) prepare_emulator(device, o, policy, out);
  step("preparing the problem");
  const auto problem = kernel.prepare(device, settings, inputs, o.emulation.seed);
  out.variant = problem->variant;
  out.why = problem->why;
  out.flops = problem->flops;
  out.bytes = problem->bytes;
  for (const auto& image : problem->images) {
    sources.add(image.name + ".ptx", *image.ptx);
    out.modules[image.name + ".ptx"] = *image.ptx;
  }
  if (device.is_emulator()) device.clear_results();
  step(cat("running ", out.variant, " on ", out.device.name));
  try {
    problem->launch(device.stream());
    device.stream().wait();
    step("checking against the oracle");
    out.check = problem->verify();
  } catch (const EmuFault& e) {
    out.fault = e.what();
  } catch (const DriverError& e) {
    out.fault = e.what();
  }
  if (device.is_emulator()) {
    out.launches = device.results();
    for (std::size_t i = 0; i < out.launches.size(); ++i) {
      const auto& l = out.launches[i];
      out.launch_modules.push_back(module_of(l.kernel, problem->images));
      for (const auto& f : l.result->findings)
        out.findings.push_back({i, f, l.kernel, out.launch_modules.back(), {}, 0});
    }
  } else if (out.fault.empty() && o.repeat > 0) {
    step("timing");
    const measure::Contender contender{kernel.name, [&](runtime::Stream& s) { problem->launch(s); }};
    measure::CompareOptions options;
    options.rounds = o.repeat;
    out.timing = measure::compare(device, {&contender, 1}, options).at(0);
  }
  if (!out.fault.empty()) return run;
  if (first) save_outputs(kernel, o, *problem, out);
  if (keep)
    for (const auto& a : problem->outputs()) run.buffers.push_back({a.name, {}, from_kernel_array(a.array)});
  return run;
}

}  // namespace

KernelRun run_kernel(const kernels::KernelEntry& kernel, const KernelRunOptions& o, spec::Sources& sources,
                     const std::function<void(const std::string&)>& step) {
  const auto policies = o.emulation.all();
  spec::PolicyRuns runs;
  KernelRun out;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string under = policies.size() > 1 ? cat(policies[i].arguments(), ": ") : "";
    OneRun run = execute(kernel, o, policies[i], i == 0, policies.size() > 1, sources,
                         [&](const std::string& what) { step(under + what); });
    KernelRun& r = run.outcome;
    const bool emulated = r.device.kind == runtime::DeviceKind::emulator;
    if (policies.size() > 1 && emulated) {
      runs.add(policies[i], r.findings, std::move(run.buffers), r.fault);
      if (i && r.fault.empty() && !r.check.pass && out.check.pass) out.check = r.check;
    }
    if (i == 0)
      out = std::move(r);
    else if (out.fault.empty() && !r.fault.empty())
      out.fault = under + r.fault;
    if (!emulated) return out;
  }
  out.emulation = o.emulation.changed();
  if (policies.size() > 1) {
    out.findings = std::move(runs.findings);
    out.policies = std::move(runs.outcomes);
  }
  return out;
}

ordered_json to_json(const kernels::KernelEntry& kernel, const KernelRunOptions& o, const KernelRun& r) {
  ordered_json j = {{"schema", "cgp.run/1"},
                    {"verdict", r.clean() ? "pass" : "fail"},
                    {"exit_code", r.clean() ? 0 : 1},
                    {"kernel", kernel.name},
                    {"variant", r.variant},
                    {"why", r.why},
                    {"device", spec::to_json(r.device)},
                    {"checks", r.checks},
                    {"emulation", r.emulation},
                    {"seed", o.emulation.seed},
                    {"flops", r.flops},
                    {"bytes", r.bytes}};
  j["options"] = ordered_json::object();
  for (const auto& option : r.settings) j["options"][option.name] = option.value;
  j["oracle"] = {{"pass", r.check.pass},
                 {"compared", r.check.compared},
                 {"wrong", r.check.wrong},
                 {"note", r.check.note},
                 {"failure", r.check.failure},
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
  j["findings"] = spec::to_json(r.findings);
  if (!r.policies.empty()) j["policies"] = spec::to_json(r.policies);
  j["fault"] = r.fault.empty() ? ordered_json() : ordered_json(r.fault);
  j["saved"] = ordered_json::object();
  for (const auto& [name, path] : r.saved) j["saved"][name] = path;
  j["warnings"] = r.warnings;
  return j;
}

std::string to_text(const kernels::KernelEntry& kernel, const KernelRun& r, const std::string& views,
                    spec::Sources& sources, const spec::Style& style) {
  const spec::Paint paint(style.color);
  std::string out = spec::wrapped(format("{}: variant {}{} on {}", kernel.name, r.variant,
                                         r.why.empty() ? "" : format(" ({})", r.why), r.device.name),
                                  style.width, 2) +
                    '\n';
  emu::Counters total;
  for (const auto& l : r.launches) {
    out += format("  {}  grid ({},{},{}) block ({},{},{})", l.kernel, l.grid.x, l.grid.y, l.grid.z, l.block.x,
                  l.block.y, l.block.z);
    if (l.cluster.count() > 1) out += format(" cluster ({},{},{})", l.cluster.x, l.cluster.y, l.cluster.z);
    if (l.dynamic_smem) out += format(" dynamic shared {}", text::bytes(l.dynamic_smem));
    out += '\n';
    total.add(l.result->counters);
  }
  if (!r.launches.empty() && r.fault.empty() && !spec::any_fails(r.findings))
    out += "counters\n" + spec::counters_text(total);
  out += views;
  if (!r.findings.empty()) out += '\n' + spec::findings_text(r.findings, sources, style) + '\n';
  if (!r.policies.empty()) out += spec::policies_text(r.policies, style);
  if (!r.fault.empty()) out += format("{}: {}\n", paint.bad("fault"), r.fault);
  if (r.timing) {
    const auto& s = r.timing->summary;
    out += format("time  {:.4f} ms median of {} (min {:.4f}, ±{:.1f}%)", s.median, s.count, s.min,
                  100 * s.spread());
    if (r.flops > 0) out += format(", {:.2f} TFLOP/s", r.flops / s.median * 1e-9);
    if (r.bytes > 0) out += format(", {:.1f} GB/s", r.bytes / s.median * 1e-6);
    out += '\n';
  }
  for (const auto& [name, path] : r.saved) out += format("saved {} to {}\n", name, path);
  for (const auto& w : r.warnings) out += format("{}: {}\n", paint.warn("warning"), w);
  if (r.fault.empty()) out += spec::wrapped("oracle: " + r.check.describe(), style.width, 8) + '\n';
  out += spec::wrapped(format("{}: {}{}{}", r.clean() ? paint.good("clean") : paint.bad("failed"),
                              spec::count_text(r.findings),
                              r.checks.empty() ? " (checks need the emulator)"
                                               : format(" ({})", spec::short_checks(r.checks)),
                              r.emulation.empty() ? "" : " " + r.emulation),
                       style.width, 0) +
         '\n';
  if (!r.launches.empty()) out += format("on a GPU: cgp run {} --device cuda\n", kernel.name);
  return out;
}

}  // namespace cgp::profile
