// SPDX-License-Identifier: Apache-2.0
#pragma once
// A conversation: messages through the model's chat template (Jinja, cgp/model/template) to a prompt. Each turn sends all
// messages; the prefix cache keeps what was computed before.
#include <string>
#include <string_view>
#include <vector>

#include "cgp/engine/llm.h"
#include "cgp/model/template/value.h"

namespace cgp::engine {

struct Message {
  std::string role, content;  ///< "system", "user", "assistant"
};

/// Ids of the conversation, ready for the assistant's answer. Special tokens are read in the template and in the messages alike, as
/// Hugging Face does. Throws Unsupported where the file has no template, and what the template throws.
std::vector<Token> chat_prompt(const model::Tokenizer& tokenizer, const std::vector<Message>& messages);
/// The same of a list of dicts, with what else the template reads of them. `tools`: descriptions of functions, or none;
/// Unsupported where the template takes none.
std::vector<Token> chat_prompt(const model::Tokenizer& tokenizer, const model::Value& messages,
                               const model::Value& tools);

class Chat {
 public:
  /// `llm` must outlive it. `request`: what each turn asks for beside the prompt. An empty `system` is none.
  Chat(LLM& llm, Request request, std::string system = {});
  /// The answer to `text`; both are messages from then on. Throws what LLM::generate() and chat_prompt() throw; the
  /// conversation is then as before.
  Completion say(std::string text);
  const std::vector<Message>& messages() const { return messages_; }

 private:
  LLM& llm_;
  Request request_;
  std::vector<Message> messages_;
};

}  // namespace cgp::engine
