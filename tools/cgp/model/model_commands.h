// SPDX-License-Identifier: Apache-2.0
#pragma once
// Commands about model files: their options, and what main.cpp calls.
#include <string>
#include <vector>

#include "cgp/model/sampling/sampler.h"
#include "cgp/serve/server_options.h"
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

/// What cgp generate, chat and perplexity have in common.
struct ModelOptions {
  std::string model;  ///< FILE.gguf
  long context = 0, chunk = 512, lookup = 0, sequences = 1, cache_tokens = 0, prompt_rows = 0;
  bool embeddings = false;
  int threads = 0, tensor_parallel = 1;
  bool batch_invariant = false;
  std::string device = "cpu", activations = "auto", cache = "f16", draft;
  long draft_tokens = 4;
};
struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  bool parse_special = false, ignore_end = false, profile = false, logprobs = false;
  long max_tokens = 256;
  model::SamplingOptions sampling;
  std::vector<std::string> stops;
  std::string grammar, json_schema;  ///< files; at most one
};
int generate(const Context& context, const GenerateOptions& options);
/// `prompt` is the system's message. Lines of standard input are the user's.
int chat(const Context& context, const GenerateOptions& options);

struct PerplexityOptions {
  ModelOptions model;
  std::string text;  ///< a file
};
int perplexity(const Context& context, const PerplexityOptions& options);

struct QuantizeCommandOptions {
  std::string in, out, type;  ///< files; a name of engine::quantize_mixes()
  bool requantize = false;
};
int quantize(const Context& context, const QuantizeCommandOptions& options);

struct ServeCommandOptions {
  ModelOptions model;
  serve::ServeOptions serve;
  std::string api_key_file;  ///< the key without the white space behind it; empty: serve.api_key
};
int serve(const Context& context, const ServeCommandOptions& options);

/// Of a model file (model::is_model_file).
int inspect_model(const Context& context, const std::string& path);

}  // namespace cgp::cli
