// SPDX-License-Identifier: Apache-2.0
// cgp metrics: the table of everything that can be collected, as text, Markdown or JSON Schema.
#include <fmt/core.h>

#include "cgp/profile/view/document.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int metrics(const Context& context, const MetricsOptions& o) {
  using fmt::format;
  if (o.schema) {
    write_out(spec::dumped(profile::json_schema(), 1) + "\n");
    return kClean;
  }
  constexpr const char* types[] = {"real", "count", "flag", "text", "triple", "map"};
  constexpr const char* better[] = {"lower", "higher", ""};
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.metrics/1"}, {"metrics", nlohmann::ordered_json::array()}};
    for (const auto& m : measure::metrics())
      j["metrics"].push_back({{"name", m.name},
                              {"category", measure::categories()[std::size_t(m.category)].name},
                              {"type", types[int(m.type)]},
                              {"unit", m.unit},
                              {"better", better[int(m.better)]},
                              {"collector", measure::categories()[std::size_t(m.category)].collector},
                              {"text", m.text}});
    write_out(spec::dumped(j, 2) + "\n");
    return kClean;
  }
  std::string out;
  if (o.markdown)
    out += format(
        "# Metrics\n\nThe {} metrics of a profile in {} categories, from `cgp/profile/measure/metrics.def` "
        "(this page "
        "is written by "
        "`cgp metrics --markdown`). Each has a value with its source (measured, counted, simulated, derived, "
        "declared), or the reason why it is absent. Absent is never 0.\n",
        measure::metrics().size(), measure::categories().size());
  for (const auto& c : measure::categories()) {
    out += o.markdown ? format(
                            "\n## {}\n\nCollection: {}.\n\n| metric | unit | better | what it is, where it "
                            "comes from "
                            "|\n|---|---|---|---|\n",
                            c.title, c.collector)
                      : format("{} ({})\n", c.title, c.collector);
    for (const auto& m : measure::metrics()) {
      if (m.category != c.id) continue;
      out += o.markdown ? format("| `{}` | {} | {} | {} |\n", m.name, m.unit, better[int(m.better)], m.text)
                        : format("  {:<32} {:<20} {}\n", m.name, m.unit, m.text);
    }
  }
  write_out(out);
  return kClean;
}

}  // namespace cgp::cli
