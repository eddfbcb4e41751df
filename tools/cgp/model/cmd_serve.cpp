// SPDX-License-Identifier: Apache-2.0
// cgp serve: a model behind OpenAI's HTTP interface.
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/serve/server.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/load_model.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int serve(const Context& context, const ServeCommandOptions& o) {
  engine::LLM llm = load_model(context, o.model);
  serve::ServeOptions s = o.serve;
  if (s.model.empty()) s.model = std::filesystem::path(o.model.model).stem().string();
  if (!o.api_key_file.empty()) {
    s.api_key = read_file(o.api_key_file);
    s.api_key.erase(s.api_key.find_last_not_of(" \t\r\n") + 1);
  }
  serve::serve(llm, s, [&](int port) {
    const std::string url = fmt::format("http://{}:{}", s.host, port);
    if (context.json)
      write_out(spec::dumped(nlohmann::ordered_json{{"schema", "cgp.serve/1"},
                                                    {"file", o.model.model},
                                                    {"backend", llm.backend().name()},
                                                    {"model", s.model},
                                                    {"url", url}},
                             2) +
                "\n");
    else
      write_out(fmt::format("{} at {} ({}). Ctrl-C ends.\n", s.model, url, llm.backend().name()));
    std::fflush(stdout);
  });
  return kClean;
}

}  // namespace cgp::cli
