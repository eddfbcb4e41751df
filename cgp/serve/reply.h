// SPDX-License-Identifier: Apache-2.0
#pragma once
// OpenAI's answer to a call, from the engine's updates: one JSON object, or server-sent events.
#include <memory>
#include <string>

#include "cgp/serve/api.h"
#include "cgp/serve/worker.h"

namespace cgp::serve {

class Reply {
 public:
  /// `id` without its prefix. `tokenizer` must outlive it; `call.requests` may have been moved from, but not changed in number.
  Reply(const Call& call, const std::string& id, std::int64_t created, std::string model,
        const model::Tokenizer& tokenizer);
  ~Reply();
  /// Of a streaming call: the events of an update, "" for none. Otherwise "".
  std::string add(Update update);
  /// Whether every choice has ended.
  bool complete() const;
  /// Of a streaming call: usage, if it was asked for, and [DONE]. Otherwise the JSON object.
  std::string end() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// An event that ends a stream before its time, with [DONE] behind it.
std::string error_event(const ApiError& error);

}  // namespace cgp::serve
