// SPDX-License-Identifier: Apache-2.0
#include "cgp/serve/reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/model/unicode/unicode.h"
#include "cgp/serve/tool_calls.h"

namespace cgp::serve {
namespace {

using nlohmann::ordered_json;
using text::cat;

std::string dumped(const ordered_json& j) {
  return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}
std::string event(const ordered_json& j) { return cat("data: ", dumped(j), "\n\n"); }

}  // namespace

struct Reply::State {
  struct Choice {
    ToolCallReader calls;
    std::string text, reason = {};
    std::vector<model::Sampled> tokens = {};
    std::vector<ToolCall> called = {};
    bool begun = false;
    std::size_t offset = 0;  ///< bytes before the next token of a completion's log probabilities
  };
  Endpoint endpoint;
  bool stream, include_usage, logprobs;
  int choices_of_a_prompt;
  std::string id, model;
  std::int64_t created;
  const model::Tokenizer& tokenizer;
  std::vector<Choice> choices;
  std::size_t ended = 0;
  std::int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;

  ordered_json head(const char* object) const {
    return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
  }
  ordered_json usage() const {
    return {{"prompt_tokens", prompt_tokens},
            {"completion_tokens", generated_tokens},
            {"total_tokens", prompt_tokens + generated_tokens},
            {"prompt_tokens_details", {{"cached_tokens", reused_tokens}}}};
  }
  ordered_json chat_logprob(std::int32_t token, double logprob) const {
    const std::string piece = tokenizer.piece(token);
    ordered_json bytes = ordered_json::array();
    for (const char c : piece) bytes.push_back(std::uint8_t(c));
    return {{"token", model::unicode::valid(piece)}, {"logprob", logprob}, {"bytes", bytes}};
  }
  /// Of a part of a choice's tokens. null: they were not asked for.
  ordered_json logprobs_of(Choice& c, const std::vector<model::Sampled>& tokens) const {
    if (!logprobs) return nullptr;
    ordered_json out;
    if (endpoint == Endpoint::chat) {
      out["content"] = ordered_json::array();
      for (const model::Sampled& s : tokens) {
        ordered_json one = chat_logprob(s.token, s.logprob);
        one["top_logprobs"] = ordered_json::array();
        for (const auto& [token, logprob] : s.top)
          one["top_logprobs"].push_back(chat_logprob(token, logprob));
        out["content"].push_back(std::move(one));
      }
      return out;
    }
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      out[key] = ordered_json::array();
    for (const model::Sampled& s : tokens) {
      const std::string piece = model::unicode::valid(tokenizer.piece(s.token));
      out["tokens"].push_back(piece);
      out["token_logprobs"].push_back(s.logprob);
      ordered_json top = ordered_json::object();
      for (const auto& [token, logprob] : s.top) top[model::unicode::valid(tokenizer.piece(token))] = logprob;
      out["top_logprobs"].push_back(std::move(top));
      out["text_offset"].push_back(c.offset);
      c.offset += piece.size();
    }
    return out;
  }
  ordered_json calls_of(const Choice& c, int choice, bool with_index) const {
    ordered_json out = ordered_json::array();
    for (std::size_t i = 0; i < c.called.size(); ++i) {
      ordered_json one;
      if (with_index) one["index"] = i;
      one["id"] = cat("call_", id.substr(id.find('-') + 1), "_", choice, "_", i);
      one["type"] = "function";
      one["function"] = {{"name", c.called[i].name}, {"arguments", c.called[i].arguments}};
      out.push_back(std::move(one));
    }
    return out;
  }
  ordered_json chunk(int choice, ordered_json piece, ordered_json logprob_list,
                     const std::string& reason) const {
    const bool chat = endpoint == Endpoint::chat;
    ordered_json j = head(chat ? "chat.completion.chunk" : "text_completion");
    ordered_json one{{"index", choice}};
    one[chat ? "delta" : "text"] = std::move(piece);
    one["logprobs"] = std::move(logprob_list);
    one["finish_reason"] = reason.empty() ? ordered_json() : ordered_json(reason);
    j["choices"] = ordered_json::array({std::move(one)});
    if (include_usage) j["usage"] = nullptr;
    return j;
  }
};

Reply::Reply(const Call& call, const std::string& id, std::int64_t created, std::string model,
             const model::Tokenizer& tokenizer)
    : state_(new State{call.endpoint,
                       call.stream,
                       call.include_usage,
                       call.logprobs,
                       call.choices_of_a_prompt,
                       cat(call.endpoint == Endpoint::chat ? "chatcmpl-" : "cmpl-", id),
                       std::move(model),
                       created,
                       tokenizer,
                       {}}) {
  for (const std::string& echo : call.echoes)
    state_->choices.push_back({.calls = ToolCallReader(call.tools), .text = echo});
}
Reply::~Reply() = default;

std::string Reply::add(Update u) {
  State& s = *state_;
  State::Choice& c = s.choices[std::size_t(u.choice)];
  const bool chat = s.endpoint == Endpoint::chat;
  std::string out;
  if (s.stream && !c.begun) {
    if (chat)
      out += event(s.chunk(u.choice, {{"role", "assistant"}, {"content", ""}}, nullptr, ""));
    else if (!c.text.empty())
      out += event(s.chunk(u.choice, c.text, nullptr, ""));
  }
  c.begun = true;
  std::string text = c.calls.push(u.text);
  if (u.done) {
    ToolCallReader::Rest rest = c.calls.finish();
    text += rest.text;
    c.called = std::move(rest.calls);
    c.reason = !c.called.empty()                                ? "tool_calls"
               : u.done->reason == engine::FinishReason::length ? "length"
                                                                : "stop";
    // The prompt counts once, whatever the number of its choices.
    if (u.choice % s.choices_of_a_prompt == 0)
      s.prompt_tokens += u.done->prompt_tokens, s.reused_tokens += u.done->reused_tokens;
    s.generated_tokens += std::int64_t(u.done->ids.size());
    ++s.ended;
  }
  if (!s.stream) {
    c.text += text;
    std::move(u.tokens.begin(), u.tokens.end(), std::back_inserter(c.tokens));
    return {};
  }
  if (!text.empty() || (s.logprobs && !u.tokens.empty()))
    out += event(s.chunk(u.choice, chat ? ordered_json{{"content", text}} : ordered_json(text),
                         s.logprobs_of(c, u.tokens), ""));
  if (!c.called.empty())
    out += event(s.chunk(u.choice, {{"tool_calls", s.calls_of(c, u.choice, true)}}, nullptr, ""));
  if (u.done)
    out += event(
        s.chunk(u.choice, chat ? ordered_json(ordered_json::object()) : ordered_json(""), nullptr, c.reason));
  return out;
}

bool Reply::complete() const { return state_->ended == state_->choices.size(); }

std::string Reply::end() const {
  State& s = *state_;
  const bool chat = s.endpoint == Endpoint::chat;
  if (s.stream) {
    std::string out;
    if (s.include_usage) {
      ordered_json j = s.head(chat ? "chat.completion.chunk" : "text_completion");
      j["choices"] = ordered_json::array();
      j["usage"] = s.usage();
      out = event(j);
    }
    return out + "data: [DONE]\n\n";
  }
  ordered_json j = s.head(chat ? "chat.completion" : "text_completion");
  j["choices"] = ordered_json::array();
  for (std::size_t i = 0; i < s.choices.size(); ++i) {
    State::Choice& c = s.choices[i];
    ordered_json one{{"index", i}};
    if (chat) {
      ordered_json message{
          {"role", "assistant"},
          {"content", c.text.empty() && !c.called.empty() ? ordered_json() : ordered_json(c.text)}};
      if (!c.called.empty()) message["tool_calls"] = s.calls_of(c, int(i), false);
      one["message"] = std::move(message);
    } else {
      one["text"] = c.text;
    }
    one["logprobs"] = s.logprobs_of(c, c.tokens);
    one["finish_reason"] = c.reason;
    j["choices"].push_back(std::move(one));
  }
  j["usage"] = s.usage();
  return dumped(j);
}

std::string error_event(const ApiError& error) {
  return cat("data: ", error_json(error), "\n\ndata: [DONE]\n\n");
}

}  // namespace cgp::serve
