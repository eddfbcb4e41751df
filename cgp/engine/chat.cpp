// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/chat.h"

#include "cgp/base/error.h"
#include "cgp/model/template/chat_template.h"

namespace cgp::engine {

std::vector<Token> chat_prompt(const model::Tokenizer& tokenizer, const std::vector<Message>& messages) {
  using model::Value;
  if (tokenizer.chat_template().empty())
    throw Unsupported(ErrorText{"a conversation needs the model's chat template", "tokenizer.chat_template",
                                "the file has none", "continue a text instead"});
  model::ValueList list;
  for (const Message& m : messages)
    list.push_back(model::ValueDict{{"role", m.role}, {"content", m.content}});
  const auto piece = [&](Token t) { return t == model::kNoToken ? std::string() : tokenizer.piece(t); };
  const model::ValueDict variables{{"messages", Value(list)},
                                   {"add_generation_prompt", Value(true)},
                                   {"bos_token", Value(piece(tokenizer.special().bos))},
                                   {"eos_token", Value(piece(tokenizer.special().eos))}};
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
