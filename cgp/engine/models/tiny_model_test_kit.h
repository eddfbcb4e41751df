// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small models of every architecture with random weights, as GGUF files in memory, and their logits in double by a
// straight-line program that shares no code with the engine.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cgp/model/gguf/gguf.h"
#include "cgp/model/gguf/gguf_writer.h"

namespace cgp::engine {

inline constexpr int kTinyVocabulary = 97, kTinyContext = 256;

struct TinyModel {
  std::string bytes;
  std::shared_ptr<const model::Gguf> file;
};
struct TinyOptions {
  std::string architecture = "llama";
  std::string format = "F32";     ///< of matrices
  std::string rope_scaling = {};  ///< "linear", "yarn", "longrope", "llama3"
  bool experts = false;           ///< of llama; qwen3moe has them anyway
  bool tokenizer = false;         ///< ASCII and <|end|> as byte-level tokens
  bool chat_template = false;     ///< 'role: content' and a new line for each message
  bool tool_template = false;     ///< the same, with the names of tools before
  std::string without = {};       ///< a tensor or key that is left out
  std::string with = {};          ///< a tensor more, of one value
  std::string misshaped = {};     ///< a tensor with another shape
  int inner = 96;                 ///< of feed-forward layers; of an expert a third
  int words = kTinyVocabulary;    ///< of the language model's head; prompts use those of kTinyVocabulary
};
TinyModel tiny_model(const TinyOptions& options);

/// Architectures of tiny_model().
std::vector<std::string> tiny_architectures();

/// [tokens][vocabulary]. `margins` gets for each token how much more the router gives to the last expert that is chosen than to the
/// next one, the least of all layers.
std::vector<std::vector<double>> oracle_logits(const model::Gguf& file, std::span<const std::int32_t> tokens,
                                               std::vector<double>* margins = nullptr);

/// `count` tokens of the vocabulary.
std::vector<std::int32_t> tiny_prompt(int count, unsigned seed);

}  // namespace cgp::engine
