// SPDX-License-Identifier: Apache-2.0
// cgp chat: a conversation in the terminal.
#include <fmt/core.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cgp/engine/chat.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/load_model.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int chat(const Context& context, const GenerateOptions& o) {
  engine::LLM llm = load_model(context, o.model);
  engine::Request request;
  request.max_tokens = o.max_tokens;
  request.sampling = o.sampling;
  if (!context.json)
    request.on_text = [](std::string_view text) {
      write_out(text);
      return true;
    };
  engine::Chat conversation(llm, std::move(request), o.prompt);
  const bool prompts = !context.json && isatty(STDIN_FILENO);
  if (prompts) write_out(fmt::format("{}. An empty line or Ctrl-D ends.\n", llm.backend().name()));
  nlohmann::ordered_json turns = nlohmann::ordered_json::array();
  for (std::string line;
       (prompts ? write_out("> ") : void()), std::getline(std::cin, line) && !line.empty();) {
    const engine::Completion done = conversation.say(line);
    if (!context.json) write_out("\n");
    turns.push_back({{"user", line},
                     {"assistant", done.text},
                     {"prompt_tokens", done.prompt_tokens},
                     {"reused_tokens", done.reused_tokens},
                     {"generated_tokens", done.ids.size()},
                     {"finish_reason", engine::name(done.reason)}});
  }
  if (context.json)
    write_out(
        spec::dumped(
            nlohmann::ordered_json{{"schema", "cgp.chat/1"}, {"file", o.model.model}, {"turns", turns}}, 2) +
        "\n");
  return kClean;
}

}  // namespace cgp::cli
