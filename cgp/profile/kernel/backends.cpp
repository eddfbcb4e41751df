// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/backends.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/gemm/gemm.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/kernel/kernel_plan.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/roofline/prediction.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"
#include "cgp/tune/gemm_measure.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;
using text::cat;

std::string metric_line(const Document& d, Metric m) {
  const auto& r = d.metrics[m];
  const auto& i = measure::info(m);
  if (!r.present()) return {};
  const char mark[] = {"mcsdp"[int(r.source)], 0};
  return format("  {:<32} {:>12} {:<12} {}\n", i.name, value_text(r), i.unit, mark);
}

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
  Document d = new_document("kernel", "gemm", settings);
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
  tune::GemmSelection selection;
  selection.shapes = cat(of["m"], "x", of["n"], "x", of["k"]);
  selection.dtype = of["dtype"], selection.layout = of["layout"];
  const auto tasks = tune::gemm_tasks(selection);
  const auto device = runtime::Device::open("cuda");
  tune::GemmMeasure measure(device, true);
  if (!measure.no_peer().empty())
    throw Unsupported(ErrorText{"cuBLASLt must be here", {}, measure.no_peer(), {}});
  const tune::GemmRow row = measure.row(tasks[0], kernels::GemmTable::shipped(device.info()), repeat);
  if (row.timings.size() < 2) throw Unsupported(ErrorText{"cuBLASLt has no such product", {}, row.peer, {}});
  Document d = new_document("cublas", cat("cuBLASLt ", tasks[0].name()));
  Samples s{"cold", "us", {}};
  for (const double ms : row.timings[1].milliseconds) s.values.push_back(ms * 1e3);
  d.metrics.set(Metric::wall_clock_time_us, measure::median(s.values), measure::Source::measured,
                "events around each launch, L2 flushed before it");
  d.samples.push_back(std::move(s));
  d.metrics.derive(row.flops, row.bytes);
  return d;
}

/// What no program on such a GPU can undercut; 0 where nothing is known.
double least_us(const std::string& backend, const std::string& kernel,
                const std::vector<std::string>& settings) {
  if (backend != "cublas" && backend.rfind("cuda", 0) != 0) return 0;
  const auto plan = plan_kernel(kernels::find_kernel(kernel), runtime::Device::open("emu:sm_90a"), settings);
  return plan.floor.us();
}

/// What stands in a row instead of a measurement.
struct Remark {
  double least_us = 0;  ///< the least that a data sheet allows; 0: not asked for, or not known
  std::string kind, note;
};
Remark remark_of(const BackendComparison& c, const BackendRow& r) {
  Remark remark;
  if (c.allow_estimates && !r.why.empty()) remark.least_us = least_us(r.name, c.kernel, c.settings);
  remark.kind = remark.least_us > 0                                  ? "estimated"
                : !r.why.empty()                                     ? ""
                : r.document.metrics.has(Metric::wall_clock_time_us) ? "measured"
                                                                     : "counted";
  remark.note = remark.least_us > 0 ? cat("not run: the least that an H200's data sheet allows (", r.why, ")")
                : r.why.empty()     ? r.remark
                                    : r.why;
  return remark;
}

}  // namespace

std::string kernel_text(const Document& d, int width, const std::vector<std::string>& only) {
  const auto& m = d.metrics;
  std::string out;
  const std::string device = d.machine["device"]["name"];
  if (m.has(Metric::wall_clock_time_us)) {
    out += format("{}: {}{} on {}", d.name, time_text(m[Metric::wall_clock_time_us].number()),
                  interval_text(m), device);
    if (m.has(Metric::tflops) && m[Metric::tflops].number() > 0.5)
      out += format(", {} TFLOP/s", number_text(m[Metric::tflops].number()));
    if (m.has(Metric::bandwidth_gbps))
      out += format(", {} GB/s", number_text(m[Metric::bandwidth_gbps].number()));
    if (m.has(Metric::bound)) out += ", " + bound_text(m);
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
  out += predictions_text(accesses_of(d), width);
  out += waste_text(d.waste, width);
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  return out;
}

BackendRow run_on_backend(const std::string& backend, const std::string& kernel,
                          const std::vector<std::string>& settings, int repeat) {
  BackendRow row{backend, "", "", {}};
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
      const bool same = std::find(settings.begin(), settings.end(), "dtype=f32") != settings.end();
      if (!same) row.remark = "32-bit floats, which the rows of devices are not";
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

std::string comparison_text(const BackendComparison& c) {
  Table table({"<back end", "<kind", "time", "TFLOP/s", "GB/s", "lanes %", "load eff %", "<note"});
  for (const auto& r : c.rows) {
    const auto& m = r.document.metrics;
    const auto cell = [&](Metric id) { return m.has(id) ? number_text(m[id].number()) : std::string("-"); };
    const Remark remark = remark_of(c, r);
    table.row({r.name, remark.kind.empty() ? "-" : remark.kind,
               remark.least_us > 0                 ? ">= " + time_text(remark.least_us)
               : m.has(Metric::wall_clock_time_us) ? time_text(m[Metric::wall_clock_time_us].number())
                                                   : "-",
               cell(Metric::tflops), cell(Metric::bandwidth_gbps),
               cell(Metric::warp_execution_efficiency_pct), cell(Metric::global_load_efficiency_pct),
               remark.note});
  }
  return format("{}\n", c.kernel) + table.text();
}

nlohmann::ordered_json comparison_json(const BackendComparison& c) {
  using nlohmann::ordered_json;
  ordered_json j = {{"schema", "cgp.compare/1"}, {"kernel", c.kernel}, {"rows", ordered_json::array()}};
  for (const auto& r : c.rows) {
    const Remark remark = remark_of(c, r);
    j["rows"].push_back(
        {{"backend", r.name},
         {"skipped", r.why},
         {"kind", remark.kind},
         {"estimate_us", remark.least_us > 0 ? ordered_json(remark.least_us) : ordered_json()},
         {"profile", r.why.empty() ? to_json(r.document) : ordered_json()}});
  }
  return j;
}

}  // namespace cgp::profile
