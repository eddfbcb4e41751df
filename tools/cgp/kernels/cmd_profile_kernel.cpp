// SPDX-License-Identifier: Apache-2.0
// cgp profile kernel: one kernel of the catalogue, on a GPU with times and counters, on the emulator with
// exact counters. cgp profile compare: the same problem on several back ends.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/gemm/gemm.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/roofline/prediction.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/tune/gemm_measure.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/kernels/kernel_plan.h"
#include "tools/cgp/kernels/kernel_profile.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using profile::Document;
using profile::number_text;
using profile::time_text;
using text::cat;

std::vector<std::string> counters_of(const std::string& set) {
  for (const char* known : {"none", "basic", "roofline", "memory", "stalls"})
    if (set == known) return profile::counter_names({set});
  throw ArgumentError(
      ErrorText{cat("--counters is none, basic, roofline, memory or stalls"), {}, cat("\"", set, "\""), {}});
}

std::string metric_line(const Document& d, Metric m) {
  const auto& r = d.metrics[m];
  const auto& i = measure::info(m);
  if (!r.present()) return {};
  const char mark[] = {"mcsdp"[int(r.source)], 0};
  return format("  {:<32} {:>12} {:<12} {}\n", i.name, profile::value_text(r), i.unit, mark);
}

std::string text_of(const Document& d, int width, const std::vector<std::string>& only) {
  const auto& m = d.metrics;
  std::string out;
  const std::string device = d.machine["device"]["name"];
  if (m.has(Metric::wall_clock_time_us)) {
    out += format("{}: {}{} on {}", d.name, time_text(m[Metric::wall_clock_time_us].number()),
                  profile::interval_text(m), device);
    if (m.has(Metric::tflops) && m[Metric::tflops].number() > 0.5)
      out += format(", {} TFLOP/s", number_text(m[Metric::tflops].number()));
    if (m.has(Metric::bandwidth_gbps))
      out += format(", {} GB/s", number_text(m[Metric::bandwidth_gbps].number()));
    if (m.has(Metric::bound))
      out += format(", {}-bound at {:.0f} % of the ceiling", std::get<std::string>(*m[Metric::bound].held),
                    m[Metric::efficiency_pct].number());
    out += '\n';
  } else {
    out += format("{}: exact counters of {} (no clock there; --device cuda times it)\n", d.name, device);
  }
  out += format("variant {}; {}\n", d.more["variant"].get<std::string>(),
                d.more["check"]["text"].get<std::string>());
  measure::Category category{};
  bool first = true;
  for (const auto& info : measure::metrics()) {
    std::string line = metric_line(d, info.id);
    if (!only.empty()) {
      if (std::find(only.begin(), only.end(), info.name) == only.end()) continue;
      if (line.empty()) line = format("  {:<32} {:>12} {}\n", info.name, "-", d.metrics[info.id].why_absent);
    }
    if (line.empty()) continue;
    if (first || info.category != category) {
      category = info.category, first = false;
      out += format("{}\n", measure::categories()[std::size_t(category)].title);
    }
    out += line;
  }
  out += "m measured, c counted, s simulated, d derived, p property\n";
  out += profile::predictions_text(profile::accesses_of(d), width);
  out += profile::waste_text(d.waste, width);
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  return out;
}

struct Row {
  std::string name, why;
  Document document;
};

constexpr const char* kBackends =
    "unknown back end; there are emu, emu:ARCH, cuda, cuda:N, and for gemm cublas, scalar, sse2, avx2, "
    "avx512";

/// 32-bit floats on one core, with the instructions of `isa`; m, n and k from the settings.
Document gemm_of_processor(const std::string& isa, const std::vector<std::string>& settings, int repeat) {
  std::int64_t extent[3] = {512, 512, 512};
  for (const auto& s : settings)
    for (int i = 0; i < 3; ++i)
      if (s.size() > 2 && s[0] == "mnk"[i] && s[1] == '=')
        extent[i] = std::strtoll(s.c_str() + 2, nullptr, 10);
  const auto [m, n, k] = std::tuple(extent[0], extent[1], extent[2]);
  if (m < 1 || n < 1 || k < 1 || double(m) * double(n) * double(k) > 1e11)
    throw ArgumentError(
        ErrorText{"a product of the processor has extents from 1, and at most 1e11 multiplications",
                  {},
                  format("{} x {} x {}", m, n, k),
                  {}});
  cpu::GemmOptions how;
  how.isa = cpu::isa_of(isa);
  cpu::require(how.isa);
  std::vector<float> a(std::size_t(m * k), 0.5f), b(std::size_t(k * n), 0.25f), c(std::size_t(m * n));
  std::vector<double> us;
  const auto once = [&] {
    cpu::gemm(cpu::Transpose::no, cpu::Transpose::no, m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n,
              how);
  };
  once();
  const double start = measure::now();
  do {
    const double t = measure::now();
    once();
    us.push_back((measure::now() - t) * 1e6);
  } while (int(us.size()) < repeat && (us.size() < 3 || measure::now() - start < 5));
  Document d = profile::new_document("kernel", "gemm", settings);
  d.metrics.set(Metric::wall_clock_time_us, measure::median(us), measure::Source::measured,
                "steady clock, one core");
  d.samples.push_back({"time", "us", us});
  const double elements = double(m) * double(k) + double(k) * double(n) + double(m) * double(n);
  d.metrics.derive(2.0 * double(m) * double(n) * double(k), 4 * elements);
  return d;
}

/// The fastest algorithm of cuBLASLt, in rounds with ours.
Document gemm_of_cublas(const std::vector<std::string>& settings, int repeat) {
  std::map<std::string, std::string> of{
      {"m", "512"}, {"n", "512"}, {"k", "512"}, {"dtype", "bf16"}, {"layout", "nt"}};
  for (const auto& s : settings) {
    const auto at = s.find('=');
    const std::string name = s.substr(0, at);
    if (!of.count(name))
      throw Unsupported(ErrorText{"cuBLASLt beside ours takes m, n, k, dtype and layout", {}, name, {}});
    of[name] = s.substr(at + 1);
  }
  GemmSelection selection;
  selection.shapes = cat(of["m"], "x", of["n"], "x", of["k"]);
  selection.dtype = of["dtype"], selection.layout = of["layout"];
  const auto tasks = gemm_tasks(selection);
  const auto device = runtime::Device::open("cuda");
  GemmMeasure measure(device, true);
  if (!measure.no_peer().empty())
    throw Unsupported(ErrorText{"cuBLASLt must be here", {}, measure.no_peer(), {}});
  const GemmRow row = measure.row(tasks[0], kernels::GemmTable::shipped(device.info()), repeat);
  if (row.timings.size() < 2) throw Unsupported(ErrorText{"cuBLASLt has no such product", {}, row.peer, {}});
  Document d = profile::new_document("cublas", cat("cuBLASLt ", tasks[0].name()));
  profile::Samples s{"cold", "us", {}};
  for (const double ms : row.timings[1].milliseconds) s.values.push_back(ms * 1e3);
  d.metrics.set(Metric::wall_clock_time_us, measure::median(s.values), measure::Source::measured,
                "events around each launch, L2 flushed before it");
  d.samples.push_back(std::move(s));
  d.metrics.derive(row.flops, row.bytes);
  return d;
}

/// Measured or counted, or why not.
Row row_of(const std::string& backend, const std::string& kernel, const std::vector<std::string>& settings,
           int repeat) {
  Row row{backend, "", {}};
  const auto isas = cpu::all_isas();
  const bool processor =
      backend == "avx512_vnni"
          ? false
          : std::any_of(isas.begin(), isas.end(), [&](cpu::Isa i) { return cpu::name(i) == backend; });
  try {
    if (backend == "neon")
      throw Unsupported(
          ErrorText{"NEON not available — use --cross-profile for QEMU-based analysis", {}, {}, {}});
    if (backend == "wgpu") throw Unsupported(ErrorText{"there is no WebGPU back end", {}, {}, {}});
    if (processor && kernel == "gemm") {
      row.document = gemm_of_processor(backend, settings, repeat);
    } else if (processor) {
      row.why = cat("on the processor there are gemm, and loops by --function, but no ", kernel);
    } else if (backend == "cublas") {
      if (kernel != "gemm") row.why = cat("cuBLASLt has no ", kernel);
      if (row.why.empty()) row.document = gemm_of_cublas(settings, repeat);
    } else {
      KernelProfileOptions k;
      k.kernel = kernel, k.settings = settings, k.device = backend, k.repeat = repeat;
      row.document = profile_catalogue_kernel(k);
    }
  } catch (const Unsupported& e) {
    row.why = e.rule() + (e.why().empty() ? "" : ": " + e.why());
  } catch (const ArgumentError&) {
    if (processor || backend == "cublas" || backend.rfind("emu", 0) == 0 || backend.rfind("cuda", 0) == 0)
      throw;
    row.why = kBackends;
  }
  return row;
}

/// What no program on such a GPU can undercut; 0 where nothing is known.
double least_us(const std::string& backend, const std::string& kernel,
                const std::vector<std::string>& settings) {
  if (backend != "cublas" && backend.rfind("cuda", 0) != 0) return 0;
  const auto plan = plan_kernel(kernels::find_kernel(kernel), runtime::Device::open("emu:sm_90a"), settings);
  return plan.floor.us();
}

}  // namespace

int profile_kernel(const Context& context, const ProfileOptions& given) {
  ProfileOptions o = given;
  if (!o.kernel.empty()) o.command.insert(o.command.begin(), o.kernel);
  if (o.command.empty())
    throw ArgumentError(ErrorText{"a kernel to profile is needed", {}, {}, "cgp list names them"});
  for (const auto& m : o.metrics)
    measure::metric_named(m);  // an unknown name ends here, with the nearest ones
  KernelProfileOptions k;
  k.kernel = o.command[0];
  k.settings.assign(o.command.begin() + 1, o.command.end());
  for (auto& s : size_settings(k.kernel, o.kernel_size)) k.settings.push_back(std::move(s));
  k.device = o.device, k.repeat = o.repeat;
  k.roofline = o.roofline;
  k.counters = counters_of(o.roofline && o.counters == "none" ? "roofline" : o.counters);
  Document d;
  {
    Progress progress;
    progress.step(cat("measuring ", k.kernel));
    d = profile_catalogue_kernel(k);
  }
  deliver(context, d, o.save, text_of(d, context.width, o.metrics));
  return d.more["check"]["pass"].get<bool>() ? kClean : kCheckFailed;
}

int profile_compare(const Context& context, const ProfileOptions& o) {
  std::vector<std::string> backends = o.backends;
  const std::string kernel = o.command.empty() ? "gemm" : o.command[0];
  std::vector<std::string> settings;
  if (o.command.size() > 1) settings.assign(o.command.begin() + 1, o.command.end());
  if (o.size)
    for (auto& s : size_settings(kernel, std::to_string(o.size))) settings.push_back(std::move(s));
  if (backends.empty()) backends = {"emu", "cuda"};
  std::vector<Row> rows;
  for (const auto& b : backends) rows.push_back(row_of(b, kernel, settings, o.repeat));
  profile::Table table({"<back end", "<kind", "time", "TFLOP/s", "GB/s", "lanes %", "load eff %", "<note"});
  nlohmann::ordered_json j = {
      {"schema", "cgp.compare/1"}, {"kernel", kernel}, {"rows", nlohmann::ordered_json::array()}};
  for (const auto& r : rows) {
    const auto& m = r.document.metrics;
    const auto cell = [&](Metric id) { return m.has(id) ? number_text(m[id].number()) : std::string("-"); };
    const bool timed = m.has(Metric::wall_clock_time_us);
    const double least = o.allow_estimates && !r.why.empty() ? least_us(r.name, kernel, settings) : 0;
    const std::string kind = least > 0 ? "estimated" : !r.why.empty() ? "" : timed ? "measured" : "counted";
    const std::string note =
        least > 0 ? cat("not run: the least that an H200's data sheet allows (", r.why, ")") : r.why;
    table.row({r.name, kind.empty() ? "-" : kind,
               least > 0 ? ">= " + time_text(least)
               : timed   ? time_text(m[Metric::wall_clock_time_us].number())
                         : "-",
               cell(Metric::tflops), cell(Metric::bandwidth_gbps),
               cell(Metric::warp_execution_efficiency_pct), cell(Metric::global_load_efficiency_pct), note});
    j["rows"].push_back(
        {{"backend", r.name},
         {"skipped", r.why},
         {"kind", kind},
         {"estimate_us", least > 0 ? nlohmann::ordered_json(least) : nlohmann::ordered_json()},
         {"profile", r.why.empty() ? profile::to_json(r.document) : nlohmann::ordered_json()}});
  }
  write_out(context.json ? spec::dumped(j, 2) + "\n" : format("{}\n", kernel) + table.text());
  for (const auto& r : rows)
    if (r.why.empty()) return kClean;
  return kUnavailable;
}

}  // namespace cgp::cli
