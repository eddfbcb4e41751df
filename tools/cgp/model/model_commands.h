// SPDX-License-Identifier: Apache-2.0
#pragma once
// Commands about model files: their options, and what main.cpp calls.
#include <string>
#include <vector>

#include "tools/cgp/commands.h"

namespace cgp::cli {

struct TokenizeOptions {
  std::string model;        ///< FILE.gguf
  std::string text, file;   ///< what to encode: the text, or a file ("-": standard input)
  std::vector<int> ids;     ///< to decode instead
  bool text_given = false;  ///< an empty text is a text
  bool add_special = true, parse_special = false;
};
int tokenize(const Context& context, const TokenizeOptions& options);

/// Of a model file (model::is_model_file).
int inspect_model(const Context& context, const std::string& path);

}  // namespace cgp::cli
