// SPDX-License-Identifier: Apache-2.0
// cgp perplexity: how well a model predicts a text.
#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/load_model.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int perplexity(const Context& context, const PerplexityOptions& o) {
  ModelOptions m = o.model;
  if (m.context == 0) m.context = 512;
  engine::LLM llm = load_model(context, m);
  const auto start = std::chrono::steady_clock::now();
  const engine::Perplexity p = llm.perplexity(read_file(o.text), m.context);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (context.json) {
    const nlohmann::ordered_json j = {{"schema", "cgp.perplexity/1"},
                                      {"file", m.model},
                                      {"text", o.text},
                                      {"backend", llm.backend().name()},
                                      {"context", m.context},
                                      {"perplexity", p.value},
                                      {"error", p.error},
                                      {"predicted", p.tokens},
                                      {"seconds", seconds}};
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    write_out(fmt::format("{:.4f} +- {:.4f}, {} tokens predicted in chunks of {}, {:.1f} s, {}\n", p.value,
                          p.error, p.tokens, m.context, seconds, llm.backend().name()));
  }
  return kClean;
}

}  // namespace cgp::cli
