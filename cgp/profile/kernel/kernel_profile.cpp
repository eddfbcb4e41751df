// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/kernel_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "cgp/explain/examine.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/counters/nvml.h"
#include "cgp/profile/kernel/gpu_ceilings.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/profile/lint/quant_profile.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/roofline/prediction.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/passes.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;
using measure::Source;
using text::cat;

void add_samples(Document& d, const std::string& name, const measure::Timing& t, bool main) {
  std::vector<double> us;
  for (double ms : t.milliseconds) us.push_back(ms * 1e3);
  if (main)
    add_times(d, name, std::move(us), "events around each launch, L2 flushed before it");
  else
    d.samples.push_back({name, "us", std::move(us)});
}

/// The type that the kernel computes in.
std::string type_of(const KernelProfileOptions& o) {
  for (const auto& s : o.settings)
    if (s.rfind("dtype=", 0) == 0) return s.substr(6);
  return o.kernel.find("gemm") != std::string::npos ? "bf16" : "f32";  // the kernels' defaults
}

/// The device that a data sheet is known of, of those with this architecture.
std::string device_of(const std::string& arch) {
  const std::map<std::string, std::string> known{
      {"sm_75", "T4"}, {"sm_80", "A100"}, {"sm_89", "L40S"}, {"sm_90a", "H200"}, {"sm_100a", "B200"}};
  const auto at = known.find(arch);
  return at == known.end() ? cat("a device of ", arch) : at->second;
}

void measure_on_gpu(const runtime::Device& device, kernels::Case& problem, const KernelProfileOptions& o,
                    Document& d) {
  measure::GpuSampler sampler(device.info());
  double measured_ms = 0;
  const measure::Contender contender{o.kernel, [&](runtime::Stream& s) { problem.launch(s); }};
  measure::CompareOptions options;
  options.rounds = std::max(3, o.repeat);
  add_samples(d, "cold", measure::compare(device, {&contender, 1}, options).at(0), true);
  if (o.hot) {
    options.cold_l2 = false;
    add_samples(d, "hot", measure::compare(device, {&contender, 1}, options).at(0), false);
  }
  const measure::GpuState state = sampler.take();
  const auto put = [&](Metric m, const std::optional<double>& v) {
    if (v)
      d.metrics.set(m, *v, Source::measured, "NVML while it was timed");
    else
      d.metrics.absent(m, sampler.absent().empty() ? "NVML does not tell" : sampler.absent());
  };
  put(Metric::gpu_clock_mhz, state.sm_mhz);
  put(Metric::gpu_memory_clock_mhz, state.memory_mhz);
  for (const auto& samples : d.samples)
    for (double us : samples.values) measured_ms += us * 1e-3;
  if (measured_ms >= 2000)
    put(Metric::gpu_power_watts, state.watts);
  else
    d.metrics.absent(Metric::gpu_power_watts,
                     "it was timed for less than 2 s, and NVML's power is a mean over longer");
  put(Metric::gpu_temperature_celsius, state.celsius);
  const auto scaled = [](std::optional<double> v, double by) { return v ? std::optional(*v * by) : v; };
  put(Metric::pcie_gen, state.pcie_gen);
  put(Metric::pcie_width, state.pcie_width);
  put(Metric::pcie_rx_throughput_gbps, scaled(state.pcie_in, 1e-9));
  put(Metric::pcie_tx_throughput_gbps, scaled(state.pcie_out, 1e-9));
  const double link = measure::pcie_gbps(state.pcie_gen.value_or(0), state.pcie_width.value_or(0));
  if (link > 0) {
    d.metrics.set(Metric::pcie_bandwidth_theoretical_gbps, link, Source::derived,
                  "generation and width of the link");
    if (state.pcie_in && state.pcie_out)
      d.metrics.set(Metric::pcie_utilization_pct, 100e-9 * std::max(*state.pcie_in, *state.pcie_out) / link,
                    Source::derived, "the busier direction over what the link carries");
  }
  measure::read_processor(d.metrics);
  if (state.slowed)
    if (const auto why = measure::slowed_text(*state.slowed); !why.empty())
      d.notes.push_back("clocks were lowered: " + why);
  const auto memory = device.memory();
  add_gpu_memory(memory.total_bytes, memory.free_bytes, d.metrics);
  std::optional<Ceiling> bandwidth;
  try {
    bandwidth = memory_ceiling(device);
  } catch (const Error& e) {  // where the kernel left no memory for it the data sheet has to do
    d.notes.push_back("the bandwidth of this GPU was not measured: " + e.rule());
  }
  add_ceilings(device.info().name, type_of(o), bandwidth, d.metrics);
}

/// Of the first kernel, from its text and its launch: what no clock is needed for.
void examine_image(const runtime::KernelImage& image, const measure::Triple& block, Document& d) {
  explain::ExamineOptions options;
  options.entry = image.entry;
  if (block[0] > 0)
    options.block = {std::uint32_t(block[0]), std::uint32_t(block[1]), std::uint32_t(block[2])};
  options.dynamic_smem = image.dynamic_smem;
  const auto facts = explain::examine_module(image.name, *image.ptx, options);
  const auto& entry = facts.entries.at(0);
  const std::string text = "the PTX", launch = "the text's registers, shared memory and threads";
  d.metrics.set(Metric::ptx_size_bytes, double(image.ptx->size()), Source::counted,
                "the text that was loaded");
  d.metrics.set(Metric::shared_memory_per_block, double(entry.static_shared + image.dynamic_smem),
                Source::declared, text);
  if (!d.metrics.has(Metric::register_usage_per_thread))
    d.metrics.set(Metric::register_usage_per_thread, double(entry.registers.registers), Source::simulated,
                  "a model of ptxas (docs/analyses.md)");
  if (const auto& used = d.metrics[Metric::register_usage_per_thread]; used.source == Source::simulated)
    d.metrics.absent(Metric::unused_registers_per_thread, "registers are estimated from what lives at once");
  else
    d.metrics.set(Metric::unused_registers_per_thread,
                  std::max(0.0, used.number() - double(entry.pressure.at_peak.total())), Source::derived,
                  "register_usage_per_thread less what lives at once in the text");
  if (entry.occupancy.value.blocks > 0)
    d.metrics.set(Metric::occupancy_loss_pct, 100 * (1 - entry.occupancy.value.fraction), Source::derived,
                  launch);
  else
    d.metrics.absent(Metric::occupancy_loss_pct, entry.occupancy.value.reason);
  ptx::Module module = ptx::parse(*image.ptx);
  ptx::PassOptions removing;
  for (const auto pass : {ptx::Pass::fold, ptx::Pass::copy, ptx::Pass::cse, ptx::Pass::dead})
    removing.set(pass);
  const auto done = ptx::optimise(module, removing);
  d.metrics.set(Metric::redundant_instructions, double(done.before - std::min(done.before, done.after)),
                Source::counted, "what cgp's passes fold, copy, cse and dead take out of the text");
}

void emulate(const runtime::Device& device, Document& d) {
  emu::Counters total;
  for (const auto& launch : device.results()) {
    total.add(launch.result->counters);
    KernelUse k;
    k.name = launch.kernel, k.launches = 1;
    k.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
    k.block = {launch.block.x, launch.block.y, launch.block.z};
    k.dynamic_shared = launch.dynamic_smem;
    k.metrics.set(Metric::grid_dimensions, k.grid, Source::declared, "the launch");
    k.metrics.set(Metric::block_dimensions, k.block, Source::declared, "the launch");
    emulator_metrics(launch.result->counters, k.metrics);
    for (const auto& [name, v] : emu::flatten(launch.result->counters)) k.counters[name] = double(v);
    d.kernels.push_back(std::move(k));
  }
  emulator_metrics(total, d.metrics);
}

void add_waste(const runtime::Device& device, const kernels::Case& problem, Document& d) {
  for (const auto& launch : device.results())
    for (const auto& image : problem.images) {
      if (image.entry != launch.kernel && image.name != launch.kernel) continue;
      const auto program = emu::Program::load(*image.ptx);
      const emu::Counters& counters = launch.result->counters;
      for (auto& w : emulator_waste(counters, *program, launch.kernel)) d.waste.push_back(std::move(w));
      ptx::LaunchAssumptions assumed;
      assumed.block = {launch.block.x, launch.block.y, launch.block.z};
      assumed.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
      if (launch.cluster.count() > 1)
        assumed.cluster = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
      const auto checks = check_predictions(*program, image.entry, counters, assumed);
      for (auto& w : prediction_waste(checks, launch.kernel)) d.waste.push_back(std::move(w));
      d.more["accesses"].push_back({{"kernel", launch.kernel}, {"accesses", to_json(checks)}});
      break;
    }
}

void count_by_replay(const KernelProfileOptions& o, double flops, Document& d) {
  if (o.counters.empty()) return;
  std::vector<std::string> command{
      "/proc/self/exe", "run", o.kernel, "--device", o.device == "auto" ? "cuda" : o.device, "--repeat", "1"};
  command.insert(command.end(), o.settings.begin(), o.settings.end());
  ProgramOptions p;
  p.counters = o.counters;
  p.most_launches = 8;
  const auto run = run_program(command, p);
  for (const auto& e : notes_of(run.timeline)) d.notes.push_back("counters: " + e);
  if (!run.no_gpu.empty()) {
    d.notes.push_back("no counters: " + run.no_gpu);
    return;
  }
  d.kernels = kernels_of(run.timeline);
  if (d.kernels.empty()) return;
  // What the algorithm needs is known, better than by the counters of each kind of instruction.
  const auto& counters = d.kernels[0].counters;
  const auto read = counters.find("dram__bytes_read.sum"), written = counters.find("dram__bytes_write.sum");
  if (d.kernels.size() == 1 && flops > 0 && read != counters.end() && written != counters.end() &&
      read->second + written->second > 0)
    d.metrics.set(Metric::arithmetic_intensity, flops / (read->second + written->second), Source::derived,
                  "operations of the algorithm over DRAM bytes, counted");
  d.metrics.merge(d.kernels[0].metrics);
  d.more["counting"] = {{"chip", run.timeline.chip}, {"passes", run.timeline.passes}};
  for (const auto& k : d.kernels)
    for (auto all : {metric_waste(k.metrics, k.name), counter_waste(k)})
      for (auto& w : all) d.waste.push_back(std::move(w));
}

/// What is no number in the results; the inputs were.
void count_defects(kernels::Case& problem, bool right, Document& d) {
  double nan = 0, infinite = 0, seen = 0;
  std::string where;
  for (const auto& a : problem.outputs()) {
    if (!is_float(a.array.dtype) || seen + double(a.array.size()) > 1 << 24) continue;
    seen += double(a.array.size());
    for (std::uint64_t i = 0; i < a.array.size(); ++i) {
      const double v = a.array.at(i);
      if (std::isfinite(v)) continue;
      if (where.empty()) where = format("{}[{}]", a.name, i);
      (std::isnan(v) ? nan : infinite) += 1;
    }
  }
  if (seen == 0) return;
  d.metrics.set(Metric::nan_count, nan, Source::counted, "the results");
  d.metrics.set(Metric::inf_count, infinite, Source::counted, "the results");
  // A right result may hold infinities: the logarithm of the sum of an empty row.
  if (nan > 0 || (infinite > 0 && !right))
    d.waste.push_back({"defects", nan > 0 ? "NaN" : "infinity", d.name,
                       format("{:.0f} NaN and {:.0f} infinities in {:.0f} results; first in {}", nan,
                              infinite, seen, where),
                       "cgp run KERNEL --check all shows where they come from", 100, Source::counted});
}

}  // namespace

Document profile_catalogue_kernel(const KernelProfileOptions& o) {
  const auto& kernel = kernels::find_kernel(o.kernel);
  const auto settings = parse_settings(kernel, o.settings);
  const auto device = runtime::Device::open(o.device);
  Document d = new_document("kernel", o.kernel, o.settings);
  d.machine["device"] = {
      {"spec", device.info().spec}, {"name", device.info().name}, {"arch", device.info().arch}};
  d.machine_key += ", " + device.info().name;
  if (device.is_emulator()) {
    emu::Options options = device.emulator_options();
    options.checks = emu::CheckSet::none();  // cgp run checks; this counts
    device.set_emulator_options(options);
    device.set_findings(runtime::Device::Findings::collect);
    device.keep_results(0);
  }
  const auto problem = kernel.prepare(device, settings, {}, 1);
  if (device.is_emulator()) device.clear_results();
  problem->launch(device.stream());
  device.stream().wait();
  const auto check = problem->verify();
  d.more["variant"] = problem->variant;
  for (const auto& option : settings.all()) d.more["settings"][option.name] = option.value;
  d.more["flops"] = problem->flops, d.more["bytes"] = problem->bytes;
  d.more["check"] = {{"pass", check.pass}, {"text", check.describe()}};
  if (!check.pass) d.notes.push_back("WRONG RESULT: " + check.describe());
  const auto counts = device.load_counts();
  if (!device.is_emulator()) {
    d.metrics.set(Metric::ptx_jit_time_ms, counts.jit_milliseconds, Source::measured, "cgp's loader");
    d.metrics.set(Metric::ptx_cache_hit, counts.jit_compilations == 0, Source::counted, "cgp's loader");
    measure_on_gpu(device, *problem, o, d);
    count_by_replay(o, problem->flops, d);
  } else {
    emulate(device, d);
    add_waste(device, *problem, d);
    if (problem->bytes > 0)
      d.metrics.set(Metric::arithmetic_intensity, problem->flops / problem->bytes, Source::derived,
                    "operations over compulsory bytes");
    if (o.roofline) add_ceilings(device_of(device.info().arch), type_of(o), {}, d.metrics);
  }
  if (!d.kernels.empty()) d.metrics.merge(d.kernels[0].metrics);
  for (const auto& image : problem->images) {
    if (!d.kernels.empty() && image.entry != d.kernels[0].name) continue;
    examine_image(
        image,
        d.kernels.empty() ? measure::Triple{image.block.x, image.block.y, image.block.z} : d.kernels[0].block,
        d);
    break;
  }
  count_defects(*problem, check.pass, d);
  d.metrics.derive(problem->flops, problem->bytes);
  return d;
}

std::vector<std::string> size_settings(const std::string& kernel, const std::string& size) {
  if (size.empty()) return {};
  std::vector<std::string> settings;
  std::vector<std::string> names;
  for (const auto& option : kernels::find_kernel(kernel).options) names.push_back(option.name);
  for (const auto& wanted : {std::vector<std::string>{"m", "n", "k"}, {"rows", "cols"}, {"n"}}) {
    const auto known = [&](const std::string& w) {
      return std::find(names.begin(), names.end(), w) != names.end();
    };
    if (!std::all_of(wanted.begin(), wanted.end(), known)) continue;
    const bool two = wanted.size() == 2 && std::count(size.begin(), size.end(), 'x') == 1;  // ROWSxCOLS
    const auto n = extents(two ? size + "x1" : size, "--size");
    for (std::size_t i = 0; i < wanted.size(); ++i) settings.push_back(cat(wanted[i], "=", n[i]));
    return settings;
  }
  throw ArgumentError(ErrorText{cat("--size does not say what ", kernel, " needs"),
                                {},
                                {},
                                cat("its sizes as NAME=VALUE; cgp list ", kernel, " names them")});
}

}  // namespace cgp::profile
