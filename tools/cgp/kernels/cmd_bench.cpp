// SPDX-License-Identifier: Apache-2.0
// cgp bench gemm: our products against the best algorithm of the installed cuBLASLt.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/runtime/device.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/tune/gemm_measure.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int bench(const Context& context, const BenchOptions& o) {
  if (o.what != "gemm")
    throw ArgumentError(
        {"there is a benchmark of gemm", {}, text::cat("asked for ", o.what), "cgp bench gemm"});
  const auto tasks = tune::gemm_tasks(o.problems);
  const auto device = runtime::Device::open(o.device);
  const auto& info = device.info();
  tune::GemmMeasure measure(device, o.peer);
  kernels::GemmTable table = kernels::GemmTable::shipped(info);
  std::string unreadable;
  if (o.table == "user") table.merge(kernels::load_gemm_table(info, &unreadable));
  if (o.table == "none") table = {};
  if (!unreadable.empty()) std::fputs(fmt::format("cgp: {}\n", unreadable).c_str(), stderr);
  const bool compared = measure.no_peer().empty();
  if (!context.json)
    write_out(fmt::format(
        "{}, {}\n\n{}", info.name,
        compared ? fmt::format("cuBLASLt {}: the best of what its heuristics propose", measure.peer_version())
                 : "no peer: " + measure.no_peer(),
        tune::table_head(compared)));
  std::vector<tune::GemmRow> rows;
  Progress progress;
  int wrong = 0;
  for (const auto& task : tasks) {
    progress.step(task.name());
    rows.push_back(measure.row(task, table, o.rounds));
    const auto& r = rows.back();
    if (!context.json) write_out(tune::table_line(r));
    if (r.error && !(*r.error <= 1)) {
      ++wrong;
      std::fputs(fmt::format("cgp: {}: the result is off by {:.2g} times what is allowed\n", r.key, *r.error)
                     .c_str(),
                 stderr);
    }
  }
  const auto from = kernels::provenance(
      info, o.command_line,
      "interleaved rounds, cold L2, random data, events; the peer is the best of cuBLASLt");
  const auto json = spec::dumped(tune::bench_json(rows, from), 2) + "\n";
  if (context.json)
    write_out(json);
  else
    write_out("\n" + tune::summary_line(tune::summarise(rows)));
  if (!o.output.empty()) write_file(o.output, json);
  if (!o.svg.empty())
    write_file(o.svg, tune::bench_svg(rows, fmt::format("gemm, TFLOP/s ({}, driver {}, {})", from.gpu,
                                                        from.driver, from.date)));
  const bool slow = o.fail_below > 0 && tune::summarise(rows).min < o.fail_below;
  if (slow)
    std::fputs(
        fmt::format("cgp: the least ratio is {:.3f}, below {}\n", tune::summarise(rows).min, o.fail_below)
            .c_str(),
        stderr);
  return wrong || slow ? kCheckFailed : kClean;
}

}  // namespace cgp::cli
