// SPDX-License-Identifier: Apache-2.0
// cgp import: what another profiler recorded, as a profile of ours.
#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using profile::Document;
using profile::number_text;

/// The instructions that move most, sectors and passes an access beside what would do.
std::string instruction_table(const Document& d) {
  if (!d.more.contains("instructions")) return {};
  struct Row {
    double moved = 0;
    std::vector<std::string> cells;
  };
  std::vector<Row> rows;
  for (const auto& kernel : d.more["instructions"])
    for (const auto& i : kernel["rows"]) {
      const auto value = [&](const char* name) { return i["values"].value(name, 0.0); };
      const double times = value("inst_executed"), sectors = value("memory_l2_theoretical_sectors_global"),
                   passes = value("memory_l1_wavefronts_shared");
      if (times <= 0 || sectors + passes <= 0) continue;
      const auto per = [&](const char* name) {
        return value(name) > 0 ? format("{:.1f}", value(name) / times) : std::string("-");
      };
      rows.push_back({sectors + passes,
                      {number_text(times), per("memory_l2_theoretical_sectors_global"),
                       per("memory_l2_theoretical_sectors_global_ideal"), per("memory_l1_wavefronts_shared"),
                       per("memory_l1_wavefronts_shared_ideal"),
                       profile::fitted(i["text"].get<std::string>().empty()
                                           ? format("0x{:x}", i["address"].get<std::uint64_t>())
                                           : i["text"].get<std::string>(),
                                       60)}});
    }
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.moved > b.moved; });
  if (rows.size() > 12) rows.resize(12);
  profile::Table table({"times", "sectors", "would do", "passes", "would do", "<instruction"});
  for (auto& r : rows) table.row(std::move(r.cells));
  return "instructions: 32-byte sectors and passes of shared memory, each time\n" + table.text();
}

}  // namespace

int import_command(const Context& context, const ImportOptions& o) {
  if (o.file.empty())
    throw ArgumentError(ErrorText{"a report to import is needed",
                                  {},
                                  {},
                                  "cgp import report.ncu-rep; ncu's CSV pages, nsys's .sqlite and CSV too"});
  Document d = profile::load_any(o.file);
  if (!o.kernel.empty()) profile::keep_kernels(d, o.kernel);
  std::string out = format("{} ({}), {}\n", d.name, d.kind, d.machine_key);
  out += profile::kernel_table(d.kernels, context.width);
  out += instruction_table(d);
  out += profile::waste_text(d.waste, context.width);
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  if (o.save.empty())
    out += "next: --save FILE; cgp report, diff, contract and tui take the file as it is, too\n";
  deliver(context, d, o.save, out);
  return kClean;
}

}  // namespace cgp::cli
