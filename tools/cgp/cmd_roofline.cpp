// SPDX-License-Identifier: Apache-2.0
// cgp roofline: ceilings of a GPU or of this processor, from a data sheet or measured, with profiles as
// points.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/kernel/gpu_ceilings.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/roofline/amx.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/roofline/peaks.h"
#include "cgp/profile/roofline/roofline_points.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using text::cat;

struct CeilingRow {
  profile::RoofLine line;
  std::string how, absent;
};

std::vector<CeilingRow> data_sheet(const std::string& name) {
  const auto* p = profile::device_peaks(name);
  if (!p)
    throw ArgumentError(ErrorText{cat("no data sheet of \"", name, "\" is known"),
                                  {},
                                  cat("there are ", text::join(profile::known_devices(), ", ")),
                                  "on a machine with it: cgp roofline --target cuda --empirical"});
  std::vector<CeilingRow> out{{{"HBM", true, p->memory_gbps, false}, "data sheet", {}}};
  for (const auto& [type, tflops] :
       {std::pair{"fp64", p->fp64}, std::pair{"fp64 tensor", p->fp64_tensor}, std::pair{"fp32", p->fp32},
        std::pair{"tf32 tensor", p->tf32}, std::pair{"bf16 tensor", p->bf16}, std::pair{"fp8 tensor", p->fp8},
        std::pair{"int8 tensor", p->int8}})
    if (tflops > 0) out.push_back({{type, false, tflops * 1000, false}, "data sheet, dense", {}});
  return out;
}

std::vector<CeilingRow> measured_gpu(const runtime::Device& device) {
  std::vector<CeilingRow> out;
  for (const auto& c : profile::gpu_ceilings(device))
    out.push_back({{c.name, c.bandwidth, c.bandwidth ? c.value : c.value * 1000, true}, c.how, c.absent});
  return out;
}

std::vector<CeilingRow> measured_cpu(double seconds) {
  std::vector<CeilingRow> out;
  for (const auto& c : profile::cpu_ceilings(seconds))
    out.push_back({{c.name, c.bandwidth, c.value, true}, c.how, {}});
  return out;
}

std::vector<profile::RoofPoint> points_of(const std::string& file) {
  const auto d = profile::load_any(file);
  const auto& m = d.metrics;
  auto points = profile::roof_points(d);
  if (points.empty())
    throw ArgumentError(ErrorText{
        "a point needs arithmetic_intensity and gflops", file,
        m.has(Metric::gflops) ? m[Metric::arithmetic_intensity].why_absent : m[Metric::gflops].why_absent,
        "profile the kernel on a GPU: cgp profile kernel NAME --device cuda --roofline --save FILE; a "
        "program: "
        "cgp profile binary --counters roofline --save FILE"});
  return points;
}

/// Measured now: a kernel of the catalogue on the GPU, or a loop on one core of the processor.
profile::RoofPoint measured_point(const std::string& name, bool gpu) {
  if (gpu) {
    profile::KernelProfileOptions k;
    k.kernel = name, k.device = "cuda", k.hot = false;
    k.counters = profile::counter_names({"roofline"});
    const auto points = profile::roof_points(profile::profile_catalogue_kernel(k));
    if (points.empty()) throw ArgumentError(cat(name, " works no floating-point operations"));
    return points[0];
  }
  const std::size_t n = 1 << 22;
  std::vector<float> a(n, 1.5f), b(n, 0.25f);
  const std::string isa(cpu::name(std::min(cpu::widest_isa(), cpu::Isa::avx512)));
  const auto loop = [&] { measure::keep(profile::run_cpu_function(name, isa, a.data(), b.data(), n)); };
  loop();  // a name that is none ends here
  const double seconds = measure::measure(loop).summary.median, flops = profile::cpu_flops(name, n);
  return {name, flops / profile::cpu_bytes(name, n), flops / seconds * 1e-9};
}

}  // namespace

int roofline(const Context& context, const RooflineOptions& o) {
  const std::string kind = std::filesystem::path(o.svg).extension().string();
  if (!o.svg.empty() && kind != ".svg" && kind != ".json" && kind != ".txt")
    throw ArgumentError(ErrorText{"--export writes .svg, .json or .txt, by the file's name", o.svg, {}, {}});
  profile::Roofline r;
  std::vector<CeilingRow> rows;
  Progress progress;
  if (o.target == "cuda") {
    if (!o.device.empty() && !o.empirical) {
      rows = data_sheet(o.device);
      r.title = cat("Roofline of ", o.device);
    } else {
      const auto device = runtime::Device::open("cuda");
      r.title = cat("Roofline of ", device.info().name);
      progress.step("measuring the ceilings");
      if (profile::device_peaks(device.info().name)) rows = data_sheet(device.info().name);
      for (auto& row : measured_gpu(device)) rows.push_back(std::move(row));
    }
  } else if (o.target == "cpu" || o.target == "avx2" || o.target == "avx512" || o.target == "amx") {
    if (o.target == "amx" && !profile::amx_reject().empty())
      throw Unsupported(
          ErrorText{"ceilings with AMX", {}, profile::amx_reject(), "--target cpu, avx2, avx512"});
    if (o.target.rfind("avx", 0) == 0 && !profile::has_isa(o.target))
      throw Unsupported(ErrorText{cat("this processor has no ", o.target), {}, {}, {}});
    progress.step("measuring the ceilings of one core");
    r.title = "Roofline of one core";
    rows = measured_cpu(o.seconds);
    std::erase_if(rows, [&](const CeilingRow& row) {
      const auto begins = [&](const char* word) { return row.line.name.rfind(word, 0) == 0; };
      return (o.target == "avx2" && begins("AVX-512")) || (o.target.rfind("avx", 0) == 0 && begins("AMX"));
    });
  } else if (o.target == "neon") {
    throw Unsupported(
        ErrorText{"NEON not available — use --cross-profile for QEMU-based analysis", {}, {}, {}});
  } else if (o.target == "wgpu") {
    throw Unsupported(ErrorText{cat("ceilings of ", o.target, " are not measured"),
                                {},
                                "this version has no kernels for it",
                                "--target cpu, avx2, avx512, amx or cuda"});
  } else {
    throw ArgumentError(ErrorText{"--target is cpu, avx2, avx512, amx or cuda", {}, o.target, {}});
  }
  profile::Table table({"<ceiling", "value", "<unit", "<source", "<how"});
  nlohmann::ordered_json j = {
      {"schema", "cgp.roofline/1"}, {"title", r.title}, {"lines", nlohmann::ordered_json::array()}};
  for (const auto& row : rows) {
    const auto& l = row.line;
    if (row.absent.empty()) r.lines.push_back(l);
    const bool tera = !l.bandwidth && l.value >= 1000;
    table.row({l.name, row.absent.empty() ? profile::number_text(tera ? l.value / 1000 : l.value) : "-",
               l.bandwidth ? "GB/s"
               : tera      ? "TFLOP/s"
                           : "GFLOP/s",
               l.measured ? "measured" : "declared", row.absent.empty() ? row.how : row.absent});
    j["lines"].push_back(
        {{"name", l.name},
         {"bandwidth", l.bandwidth},
         {"value", row.absent.empty() ? nlohmann::ordered_json(l.value) : nlohmann::ordered_json()},
         {"unit", l.bandwidth ? "GB/s" : "GFLOP/s"},
         {"source", l.measured ? "measured" : "declared"},
         {"how", row.how},
         {"absent", row.absent}});
  }
  for (const auto& file : o.points)
    for (auto& p : points_of(file)) r.points.push_back(std::move(p));
  for (const auto& name : o.kernels) {
    progress.step(cat("measuring ", name));
    r.points.push_back(measured_point(name, o.target == "cuda"));
  }
  j["ridge_flop_per_byte"] = r.ridge();
  for (const auto& p : r.points) {
    auto levels = nlohmann::ordered_json::array();
    for (const auto& l : p.levels) {
      const auto* roof = r.ceiling_of(l);
      levels.push_back({{"level", l.name},
                        {"bytes", l.bytes},
                        {"intensity", l.intensity},
                        {"gbps", p.gflops / l.intensity},
                        {"ceiling_gbps", roof ? nlohmann::ordered_json(roof->value) : nullptr}});
    }
    j["points"].push_back({{"name", p.name},
                           {"intensity", p.intensity},
                           {"gflops", p.gflops},
                           {"ceiling_gflops", r.ceiling(p.intensity)},
                           {"above_roof", r.above(p)},
                           {"levels", std::move(levels)}});
  }
  if (!o.svg.empty())
    write_file(o.svg, kind == ".svg"    ? profile::roofline_svg(r)
                      : kind == ".json" ? spec::dumped(j, 2) + "\n"
                                        : table.text() + profile::roofline_text(r, 100));
  auto d = profile::new_document("roofline", r.title);
  std::string above;
  for (const auto& p : r.points)
    if (const std::string why = r.above(p); !why.empty())
      d.notes.push_back(why), above += "note: " + why + "\n";
  d.more["roofline"] = j;
  d.more["roofline_svg"] = profile::roofline_svg(r);
  deliver(context, d, o.save,
          format("{}: ridge at {} FLOP/B\n", r.title, profile::number_text(r.ridge())) + table.text() +
              profile::roofline_text(r, context.width) + above +
              (o.svg.empty() ? "" : format("wrote {}\n", o.svg)),
          j);
  return kClean;
}

}  // namespace cgp::cli
