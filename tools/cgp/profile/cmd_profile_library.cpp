// SPDX-License-Identifier: Apache-2.0
// cgp profile library: a function of any shared library, called in a process of its own and watched from
// outside. cgp profile cublas: a product of cuBLASLt's best algorithm, with ours beside it.
#include <fmt/core.h>

#include <unistd.h>

#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/call_library.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/roofline/peaks.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/tune/gemm_measure.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using measure::Source;
using profile::Document;
using profile::number_text;
using profile::time_text;
using text::cat;

constexpr const char* kCalled = "CGP_CALLED_RESULT";  // where the process that calls writes its times

/// In the process that calls: times as JSON.
int call_here(const ProfileOptions& o, const std::string& result) {
  const profile::LibraryCall call(o.library, o.symbol, profile::CallArguments(o.signature));
  write_file(result, "");  // from here on an exit code is the function's
  measure::MeasureOptions m;
  m.max_seconds = o.budget;
  const auto t = measure::measure([&] { call(); }, m);
  nlohmann::ordered_json j = {{"seconds", t.seconds}, {"calls", t.calls}, {"stop", measure::name(t.stop)}};
  write_file(result, spec::dumped(j));
  return kClean;
}

std::string rates_text(const Document& d) {
  const auto& m = d.metrics;
  std::string out = format("{}: {}{}", d.name, time_text(m[Metric::wall_clock_time_us].number()),
                           profile::interval_text(m));
  if (m.has(Metric::gflops)) out += format(", {} GFLOP/s", number_text(m[Metric::gflops].number()));
  if (m.has(Metric::bandwidth_gbps))
    out += format(", {} GB/s", number_text(m[Metric::bandwidth_gbps].number()));
  if (m.has(Metric::bound)) out += ", " + profile::bound_text(m);
  return out + "\n";
}

int finish(const Context& context, const ProfileOptions& o, const Document& d, const std::string& more) {
  std::string out = rates_text(d) + more + profile::waste_text(d.waste, context.width);
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  deliver(context, d, o.save, out);
  return kClean;
}

}  // namespace

int profile_library(const Context& context, const ProfileOptions& o) {
  if (o.library.empty() || o.symbol.empty())
    throw ArgumentError(ErrorText{"a library and a symbol of it are needed",
                                  {},
                                  {},
                                  "cgp profile library --so libopenblas.so.0 --symbol cblas_sasum --args "
                                  "'i32:4096,f32*:4096,i32:1'"});
  if (const char* result = std::getenv(kCalled)) return call_here(o, result);
  const profile::CallArguments arguments(o.signature);  // what is wrong with them is said here
  const std::string result =
      (std::filesystem::temp_directory_path() / format("cgp-called-{}.json", getpid())).string();
  profile::ProgramOptions p;
  p.timeout_seconds = o.timeout;
  p.trace_gpu = !o.no_trace;
  std::error_code ec;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", ec).string();
  profile::ProgramRun run;
  {
    Progress progress;
    progress.step(cat("calling ", o.symbol));
    run = profile::run_program(
        {"/usr/bin/env", cat(kCalled, "=", result), self, "profile", "library", "--so", o.library, "--symbol",
         o.symbol, "--args", o.signature, "--seconds", std::to_string(o.budget)},
        p);
  }
  const bool called = std::filesystem::exists(result);
  const std::string times = called ? read_file(result) : "";
  std::filesystem::remove(result, ec);
  if (!called && (run.process.exit_code == kUsage || run.process.exit_code == kUnavailable)) {
    if (context.json) write_out(run.process.out);
    std::fputs(run.process.err.c_str(), stderr);
    return run.process.exit_code;
  }
  Document d = profile::new_document("library", cat(o.symbol, "(", o.signature, ")"), {o.library, o.symbol});
  d.metrics = run.metrics;
  d.more["process"] = {{"ended", run.process.describe()}};
  d.more["library"] = {{"so", o.library}, {"symbol", o.symbol}, {"args", o.signature}};
  if (times.empty()) {
    deliver(context, d, o.save, "");
    std::fputs(
        format("cgp: {} did not return: {}\n  = hint: are the arguments those of the function? a buffer is "
               "TYPE*:COUNT\n",
               o.symbol, run.process.describe())
            .c_str(),
        stderr);
    return kProgramFailed;
  }
  const auto j = nlohmann::ordered_json::parse(times);
  std::vector<double> us;
  for (const double t : j["seconds"]) us.push_back(t * 1e6);
  profile::add_times(d, "call", std::move(us),
                     format("steady clock around batches of {} calls", j["calls"].get<std::size_t>()));
  d.kernels = profile::kernels_of(run.timeline);
  const auto summary = profile::summarise(run.timeline);
  d.waste = profile::timeline_waste(summary, d.kernels);
  if (run.no_gpu.empty()) d.more["timeline"] = profile::to_json(summary);
  d.metrics.derive(o.flops, o.bytes);
  return finish(context, o, d, d.kernels.empty() ? "" : profile::kernel_table(d.kernels, context.width));
}

int profile_cublas(const Context& context, const ProfileOptions& o) {
  if (o.op.rfind("gemm_", 0) != 0)
    throw ArgumentError(ErrorText{"--op is gemm_ and an element type",
                                  {},
                                  cat("\"", o.op, "\""),
                                  "gemm_bf16, gemm_f16, gemm_f32, gemm_tf32, gemm_e4m3"});
  tune::GemmSelection selection;
  selection.shapes =
      o.shape.find('x') == std::string::npos ? cat(o.shape, "x", o.shape, "x", o.shape) : o.shape;
  selection.dtype = o.op == "gemm_tf32" ? "f32:fast" : o.op.substr(5);
  selection.layout = o.layout;
  const auto tasks = tune::gemm_tasks(selection);
  const auto device = runtime::Device::open(o.device == "auto" ? "cuda" : o.device);
  tune::GemmMeasure measure(device, true);
  if (!measure.no_peer().empty())
    throw Unsupported(ErrorText{"cuBLASLt must be here", {}, measure.no_peer(), {}});
  tune::GemmRow row;
  {
    Progress progress;
    progress.step(cat("measuring ", tasks[0].name()));
    row = measure.row(tasks[0], kernels::GemmTable::shipped(device.info()), o.repeat);
  }
  if (row.timings.size() < 2)
    throw Unsupported(ErrorText{"cuBLASLt has this product", tasks[0].name(), row.peer, {}});
  Document d = profile::new_document("cublas", cat("cuBLASLt ", tasks[0].name()));
  d.machine["device"] = {
      {"spec", device.info().spec}, {"name", device.info().name}, {"arch", device.info().arch}};
  d.machine_key += ", " + device.info().name;
  d.more["cublaslt"] = {{"version", measure.peer_version()},
                        {"algorithm", row.peer},
                        {"candidates", row.peer_candidates},
                        {"error_over_allowed", row.peer_error.value_or(0)}};
  for (const std::size_t i : {std::size_t(1), std::size_t(0)}) {
    const std::string name = row.timings[i].name;
    std::vector<double> us;
    for (const double ms : row.timings[i].milliseconds) us.push_back(ms * 1e3);
    if (i == 1)
      profile::add_times(d, name, std::move(us), "events around each launch, L2 flushed before it");
    else
      d.samples.push_back({name, "us", std::move(us)});
  }
  if (const auto* peaks = profile::device_peaks(device.info().name)) {
    const std::string type = o.op == "gemm_tf32" ? "tf32" : o.op.substr(5);
    if (const double peak = peaks->peak(type); peak > 0)
      d.metrics.set(Metric::peak_compute_tflops, peak, Source::declared,
                    cat("data sheet of the ", peaks->name));
    d.metrics.set(Metric::peak_bandwidth_gbps, peaks->memory_gbps, Source::declared,
                  cat("data sheet of the ", peaks->name));
  }
  d.metrics.derive(row.flops, row.bytes);
  const double ours = measure::median(d.samples[1].values), theirs = measure::median(d.samples[0].values);
  std::string more = format(
      "  cuBLASLt {}, the fastest of {} algorithms: {}\n  our kernel {} in the same rounds: {}, {:.3f} "
      "of its speed\n",
      measure.peer_version(), row.peer_candidates, row.peer, row.variant, time_text(ours), theirs / ours);
  if (row.peer_error.value_or(0) > 1)
    d.notes.push_back("its result differs by more than its precision allows");
  return finish(context, o, d, more);
}

}  // namespace cgp::cli
