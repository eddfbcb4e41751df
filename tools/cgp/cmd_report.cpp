// SPDX-License-Identifier: Apache-2.0
// cgp report: profiles as one HTML file that needs no network: verdicts, rooflines, timelines, distributions,
// waste, and where every number came from.
#include <fmt/core.h>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/view/report_html.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int report(const Context& context, const ReportOptions& o) {
  if (o.files.empty())
    throw ArgumentError(ErrorText{
        "a report is made of profiles", {}, "no file was given", "cgp report a.json b.json -o report.html"});
  std::vector<profile::Document> all;
  for (const auto& f : o.files) all.push_back(profile::load_any(f));
  const std::string html = profile::report_html(all, o.title.empty() ? "cgp report" : o.title);
  write_file(o.output, html);
  if (context.json)
    write_out(spec::dumped(nlohmann::ordered_json({{"schema", "cgp.report/1"},
                                                   {"file", o.output},
                                                   {"profiles", all.size()},
                                                   {"bytes", html.size()}}),
                           2) +
              "\n");
  else
    write_out(fmt::format("wrote {} ({} profiles, {} KB)\n", o.output, all.size(), html.size() / 1024));
  return kClean;
}

}  // namespace cgp::cli
