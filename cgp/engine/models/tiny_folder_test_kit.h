// SPDX-License-Identifier: Apache-2.0
#pragma once
// The models of tiny_model_test_kit.h as Hugging Face folders: the same weights under the names, and in the order of values,
// that transformers saves.
#include <string>
#include <vector>

#include "cgp/engine/models/tiny_model_test_kit.h"

namespace cgp::engine {

struct TinyFolderOptions {
  std::string model_type = "llama";
  std::string format = "F32";     ///< or "F16", "BF16"
  std::string rope_scaling = {};  ///< "linear", "yarn", "longrope"
  bool sharded = false;           ///< in two files under an index
};
/// The GGUF of the same weights.
TinyModel tiny_counterpart(const TinyFolderOptions& options);
/// Writes config.json and safetensors into `folder`, which is made.
void write_tiny_folder(const TinyFolderOptions& options, const std::string& folder);
/// A new folder under the tests' temporary one, with `name` in it.
std::string temporary_folder(const std::string& name);

}  // namespace cgp::engine
