// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model as Hugging Face's transformers saves it: a folder with config.json and safetensors, one file or several under
// model.safetensors.index.json. Metadata and tensors get GGUF's names; no byte of a tensor is copied or moved.
//
// What differs from a GGUF file is said: rope.interleaved is false for llama, whose GGUF files have the rows of queries and
// keys permuted; GgufTensor::layout and GgufTensor::parts. Weights are f32, f16 or bf16.
#include <string>

#include "cgp/model/source/source.h"

namespace cgp::model {

class HuggingFaceFolder : public Source {
 public:
  /// Throws ParseError that names the file and the key, byte or tensor; Unsupported for a model_type, a rope_scaling, a
  /// quantization_config, a dtype or a tensor that is not here, by its name.
  static HuggingFaceFolder open(const std::string& folder);

 private:
  struct Reader;
  /// Text and numbers that metadata and computed tensors point to.
  std::deque<std::string> kept_;
};

}  // namespace cgp::model
