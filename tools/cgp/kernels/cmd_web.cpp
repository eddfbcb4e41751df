// SPDX-License-Identifier: Apache-2.0
// cgp web: kernels, or a model, as a page for browsers with WebGPU.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/web/web_model.h"
#include "cgp/web/web_page.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

int web_model(const Context& context, const WebOptions& o) {
  const auto w = web::write_model(o.folder, {o.model, o.prompt, o.context});
  if (context.json)
    write_out(spec::dumped(nlohmann::ordered_json{{"schema", "cgp.web_model/1"},
                                                  {"page", w.page},
                                                  {"bytes", w.bytes},
                                                  {"model", o.model},
                                                  {"context", w.context},
                                                  {"weight_bytes", w.weight_bytes},
                                                  {"files", w.files},
                                                  {"shaders", w.shaders},
                                                  {"launches", w.launches}},
                           2) +
              "\n");
  else
    write_out(text::cat("wrote ", w.page, " and ", w.files, " files of weights (", text::bytes(w.bytes),
                        " and ", text::bytes(w.weight_bytes), "): ", w.shaders, " shaders, ", w.launches,
                        " launches a token; open it in a browser with WebGPU\n"));
  return kClean;
}

}  // namespace

int web(const Context& context, const WebOptions& o) {
  if (!o.model.empty()) return web_model(context, o);
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
