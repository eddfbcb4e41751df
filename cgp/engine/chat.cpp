// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/chat.h"

#include "cgp/base/error.h"
#include "cgp/model/template/chat_template.h"

namespace cgp::engine {

std::vector<Token> chat_prompt(const model::Tokenizer& tokenizer, const std::vector<Message>& messages) {
  model::ValueList list;
  for (const Message& m : messages)
    list.push_back(model::ValueDict{{"role", m.role}, {"content", m.content}});
  return chat_prompt(tokenizer, model::Value(std::move(list)), model::Value());
}

std::vector<Token> chat_prompt(const model::Tokenizer& tokenizer, const model::Value& messages,
                               const model::Value& tools) {
  using model::Value;
  if (tokenizer.chat_template().empty())
    throw Unsupported(ErrorText{"a conversation needs the model's chat template", "tokenizer.chat_template",
                                "the file has none", "continue a text instead"});
  if (!tools.is_none() && tokenizer.chat_template().find("tools") == std::string::npos)
    throw Unsupported(ErrorText{"tools need a chat template that reads them",
                                "tokenizer.chat_template",
                                "the model's does not speak of tools",
                                {}});
  const auto piece = [&](Token t) { return t == model::kNoToken ? std::string() : tokenizer.piece(t); };
  model::ValueDict variables{{"messages", messages},
                             {"add_generation_prompt", Value(true)},
                             {"bos_token", Value(piece(tokenizer.special().bos))},
                             {"eos_token", Value(piece(tokenizer.special().eos))}};
  if (!tools.is_none()) variables.emplace_back("tools", tools);
  const std::string text = model::ChatTemplate(tokenizer.chat_template()).render(Value(variables));
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

Chat::Chat(LLM& llm, Request request, std::string system) : llm_(llm), request_(std::move(request)) {
  if (!system.empty()) messages_.push_back({"system", std::move(system)});
}

Completion Chat::say(std::string text) {
  std::vector<Message> messages = messages_;
  messages.push_back({"user", std::move(text)});
  Request request = request_;
  request.prompt = chat_prompt(llm_.tokenizer(), messages);
  Completion done = llm_.generate(std::move(request));
  messages.push_back({"assistant", done.text});
  messages_ = std::move(messages);
  return done;
}

}  // namespace cgp::engine
