// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a model file holds, without its weights.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cgp::model {

struct ModelSummary {
  struct Tensor {
    std::string name, type;
    std::vector<std::uint64_t> shape;
    std::uint64_t elements = 1, bytes = 0;
    std::string shape_text() const;  ///< "4096 x 14336", "scalar"
  };
  std::string format, version;  ///< "GGUF", "3"; "safetensors", ""; "Hugging Face folder", ""
  /// Keys, and values as JSON. Arrays of more than 16 elements, or of arrays, are {"array": type, "count": n}.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<Tensor> tensors;
};
/// True for names of files that summary() reads, .gguf, .safetensors and .safetensors.index.json, and for folders with a
/// config.json, whose keys and tensors have GGUF's names.
bool is_model_file(const std::string& path);
/// Throws what Source::open and Safetensors::open throw.
ModelSummary summary(const std::string& path);

}  // namespace cgp::model
