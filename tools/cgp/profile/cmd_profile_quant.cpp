// SPDX-License-Identifier: Apache-2.0
// cgp profile quant: products of quantised weights with vectors on this processor.
#include <fmt/core.h>

#include "cgp/base/error.h"
#include "cgp/profile/lint/quant_profile.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using measure::Metric;
using profile::Document;
using profile::number_text;

profile::QuantProfileOptions quant_options(const ProfileOptions& o) {
  profile::QuantProfileOptions q;
  if (!o.kernel.empty()) q.kernel = o.kernel;
  if (!o.quant_size.empty()) {
    const auto size = profile::extents(o.quant_size, "--size");
    const bool square = o.quant_size.find('x') == std::string::npos;
    q.m = size[0], q.n = square ? 1 : size[1], q.k = size[2];
  }
  if (!o.arch.empty()) q.isa = cpu::isa_of(o.arch);
  q.activations = o.activations, q.threads = o.threads, q.runs = o.runs;
  return q;
}

std::string sweep_text(const std::vector<Document>& all) {
  profile::Table table({"<kernel", "<activations", "time", "M superblocks/s", "GB/s", "x fp32",
                        "% of ceiling", "tok/s (estimate)", "error"});
  for (const auto& d : all)
    table.row({d.more.at("kernel"), d.more.at("activations"),
               profile::time_text(d.metrics[Metric::wall_clock_time_us].number()),
               number_text(d.metrics[Metric::superblocks_per_sec].number() * 1e-6),
               number_text(d.metrics[Metric::effective_bandwidth_gbps].number()),
               number_text(d.metrics[Metric::compression_speedup].number()),
               d.metrics.has(Metric::efficiency_pct) ? number_text(d.metrics[Metric::efficiency_pct].number())
                                                     : "-",
               number_text(d.more.at("estimate").at("tokens_per_sec")),
               fmt::format("{:.1g}", d.more.at("check").at("relative_error").get<double>())});
  return table.text();
}

nlohmann::ordered_json summary_of(const std::vector<Document>& all) {
  const Document *fastest = &all[0], *densest = &all[0];
  bool pass = true;
  for (const auto& d : all) {
    const auto rate = [](const Document* of) { return of->metrics[Metric::superblocks_per_sec].number(); };
    if (rate(&d) > rate(fastest)) fastest = &d;
    if (d.more.at("bits_per_weight") < densest->more.at("bits_per_weight")) densest = &d;
    pass = pass && d.more.at("check").at("pass").get<bool>();
  }
  return {{"kernels", all.size()},
          {"all_right", pass},
          {"fastest", fastest->more.at("kernel")},
          {"fewest_bits", densest->more.at("kernel")}};
}

}  // namespace

int profile_quant(const Context& context, const ProfileOptions& o) {
  profile::QuantProfileOptions q = quant_options(o);
  if (o.all_quant && !o.kernel.empty())
    throw ArgumentError(
        ErrorText{"--all runs every kernel", {}, "--kernel names one", "leave one of them out"});
  std::vector<Document> all;
  for (const auto& kernel : o.all_quant ? profile::quant_kernels() : std::vector<std::string>{q.kernel}) {
    q.kernel = kernel;
    if (kernel == "nf4_gemv" && o.all_quant) q.activations.clear();  // it has floats only
    Progress progress;
    progress.step("measuring " + kernel);
    all.push_back(profile::profile_quant(q));
  }
  const auto summary = summary_of(all);
  if (!o.all_quant) {
    deliver(context, all[0], o.save, profile::quant_text(all[0]));
    return kClean;
  }
  if (!o.save.empty()) profile::save(all[0], o.save);
  if (context.json) {
    nlohmann::ordered_json j = {
        {"schema", "cgp.quant/1"}, {"rows", nlohmann::ordered_json::array()}, {"summary", summary}};
    for (const auto& d : all) j["rows"].push_back(profile::to_json(d));
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    write_out(fmt::format("{}x{}x{} on {}\n", q.m, q.n, q.k, cpu::name(q.isa)) + sweep_text(all) +
              fmt::format("{} kernels, {}; fastest: {}; fewest bits: {}\n", all.size(),
                          summary["all_right"].get<bool>() ? "all within their bounds"
                                                           : "NOT all within their bounds",
                          summary["fastest"].get<std::string>(), summary["fewest_bits"].get<std::string>()));
  }
  return summary["all_right"].get<bool>() ? kClean : kCheckFailed;
}

}  // namespace cgp::cli
