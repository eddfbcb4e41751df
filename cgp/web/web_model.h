// SPDX-License-Identifier: Apache-2.0
#pragma once
// A GGUF model as a page that generates text on WebGPU: the launches of a step, recorded from the engine's kernels
// (cgp/engine/simt), the weights as they lie in the file, the tokenizer's tables, and the tokens that the processor generates, with
// which the page compares its own.
#include <cstdint>
#include <string>

namespace cgp::web {

struct ModelPage {
  std::string model;                                ///< a GGUF file
  std::string prompt = "The capital of France is";  ///< of the comparison
  std::int64_t context = 0;                         ///< tokens; 0: those of the model, at most 1024
  std::int64_t tokens = 16;                         ///< of the comparison
};
struct WrittenModel {
  std::string page;  ///< the file
  std::uint64_t bytes = 0, weight_bytes = 0;
  std::int64_t context = 0, launches = 0, shaders = 0, files = 0;
};
/// Writes folder/index.html and folder/weights-N.js, of 24 MiB of weights each. Throws what engine::LLM::load() throws, and Unsupported
/// for tokenizers other than byte-level BPE and for models that engine::SimtModel does not run.
WrittenModel write_model(const std::string& folder, const ModelPage& page);

}  // namespace cgp::web
