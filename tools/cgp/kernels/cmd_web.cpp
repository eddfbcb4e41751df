// SPDX-License-Identifier: Apache-2.0
// cgp web: kernels as a page for browsers with WebGPU.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/web/web_page.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int web(const Context& context, const WebOptions& o) {
  std::vector<std::string> problems = o.problems;
  if (problems.empty()) problems.assign(web::default_problems().begin(), web::default_problems().end());
  std::vector<nlohmann::ordered_json> kernels;
  {
    Progress progress;
    for (const auto& p : problems) {
      progress.step(p);
      kernels.push_back(web::kernel_data(p));
    }
  }
  std::filesystem::create_directories(o.folder);
  const std::string path = (std::filesystem::path(o.folder) / "index.html").string(),
                    page = web::page(kernels);
  write_file(path, page);
  if (context.json)
    write_out(
        spec::dumped(
            nlohmann::ordered_json{
                {"schema", "cgp.web/1"}, {"page", path}, {"bytes", page.size()}, {"problems", problems}},
            2) +
        "\n");
  else
    write_out(text::cat("wrote ", path, " (", kernels.size(), " kernels, ", text::bytes(page.size()),
                        "); open it in a browser with WebGPU\n"));
  return kClean;
}

}  // namespace cgp::cli
