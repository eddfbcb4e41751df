// SPDX-License-Identifier: Apache-2.0
#pragma once
// config.json as GGUF's keys.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cgp/model/source/json_object.h"

namespace cgp::model {

struct ModelConfig {
  std::string architecture;  ///< as in GGUF: "llama", "qwen3moe"
  using Held = std::variant<std::uint64_t, double, bool, std::string, std::vector<bool>>;
  std::vector<std::pair<std::string, Held>> keys;  ///< "llama.block_count"; general.architecture is the first
  struct Factors {
    std::string name;  ///< "rope_freqs.weight"
    std::vector<float> values;
  };
  std::vector<Factors> factors;  ///< tensors that the config holds: divisors of RoPE frequencies
  std::uint64_t layers = 0, experts = 0;
  /// tie_word_embeddings: lm_head.weight is that of the embeddings. Where the config says nothing, it is if there is none.
  std::optional<bool> tied;
};

/// Throws as HuggingFaceFolder::open().
ModelConfig read_config(const JsonObject& config);

}  // namespace cgp::model
