// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls of functions in what a model writes. The formats:
//   <tool_call>{"name": …, "arguments": {…}}</tool_call>      Hermes, Qwen; several may follow
//   <function=NAME>{…}</function>                             Llama 3.1's own functions
//   [TOOL_CALLS] [{"name": …, "arguments": {…}}, …]           Mistral; the marker may be absent
//   <|python_tag|>{"name": …, "parameters": {…}}              Llama 3; the marker may be absent
#include <string>
#include <string_view>
#include <vector>

namespace cgp::serve {

struct ToolCall {
  std::string name, arguments;  ///< JSON
};

/// Splits text as it comes.
class ToolCallReader {
 public:
  /// Only these names are functions: a call of another one is text. None: all is text.
  explicit ToolCallReader(std::vector<std::string> names) : names_(std::move(names)) {}

  /// Text that is certain to be no part of a call.
  std::string push(std::string_view text);
  /// What was held back: calls, and the text that is none.
  struct Rest {
    std::string text;
    std::vector<ToolCall> calls;
  };
  Rest finish();

 private:
  std::vector<std::string> names_;
  std::string held_;
  bool begun_ = false;  ///< text was given
};

}  // namespace cgp::serve
