// SPDX-License-Identifier: Apache-2.0
#pragma once
// OpenAI's HTTP interface without HTTP: bodies of requests to requests of the engine. A field that is not supported is an error
// that names it. reply.h makes the answers. Source: platform.openai.com/docs/api-reference (2025).
//
// Fields, beside `model` and `user`: stream, stream_options.include_usage, n (1 to 16), max_tokens, max_completion_tokens,
// temperature (default 1), top_p (1), seed (random), stop (a text or up to 16), frequency_penalty, presence_penalty (of the
// last 64 tokens, the prompt's included), logit_bias; of other servers top_k, min_p, typical_p, repetition_penalty, ignore_eos,
// grammar (GBNF).
//   chat: messages (text alone), logprobs, top_logprobs (0 to 20), response_format, tools, tool_choice (auto, none,
//         required, a function: then the answer is one call whose arguments the function's schema admits),
//         parallel_tool_calls (true)
//   completions: prompt (a text, ids, or a list of these), echo, logprobs (0 to 20)
//   embeddings: input (as prompt), encoding_format (float, base64)
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/engine/llm.h"

namespace cgp::serve {

/// What is answered instead.
struct ApiError : std::runtime_error {
  ApiError(int http_status, std::string error_type, const std::string& message, std::string field = {},
           std::string error_code = {})
      : std::runtime_error(message),
        status(http_status),
        type(std::move(error_type)),
        param(std::move(field)),
        code(std::move(error_code)) {}
  int status;
  std::string type, param, code;
};
/// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);

enum class Endpoint : std::uint8_t { chat, completion };

/// A request that was understood.
struct Call {
  Endpoint endpoint = Endpoint::chat;
  std::vector<engine::Request> requests;  ///< one for each choice: those of a prompt follow each other
  std::vector<std::string> echoes;        ///< text before each choice; empty: none
  bool stream = false, include_usage = false, logprobs = false;
  int top_logprobs = 0;
  int choices_of_a_prompt = 1;
  std::vector<std::string> tools;  ///< names of functions that the answer may call
};

/// `model`: the name that requests may give. Throws ApiError.
Call parse_chat(std::string_view body, engine::LLM& llm, std::string_view model);
Call parse_completion(std::string_view body, engine::LLM& llm, std::string_view model);

struct EmbeddingCall {
  std::vector<std::vector<engine::Token>> inputs;
  bool base64 = false;
};
EmbeddingCall parse_embedding(std::string_view body, engine::LLM& llm, std::string_view model);
std::string embedding_json(const EmbeddingCall& call, const std::vector<std::vector<float>>& vectors,
                           std::string_view model);

/// Of GET /v1/models.
std::string models_json(std::string_view model, engine::LLM& llm, std::int64_t created);

}  // namespace cgp::serve
