// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights and checkpoints as safetensors files. Files appear under their names whole or not at all.
#include <map>
#include <string>

#include "cgp/train/trainer.h"

namespace cgp::train {

/// Weights alone, under the names of Hugging Face's files, of the trainer's type.
void save_weights(const std::string& path, const Trainer& t);
/// F32, F16 or BF16, with or without "transformer." before the names. Tensors that the shape does not have are passed over.
/// ArgumentError naming a tensor that is not there or has another shape.
void load_weights(const std::string& path, Trainer& t);

/// All that the next step depends on: weights and both states in f32, and the number of steps. `more` is kept beside it.
/// A trainer of the same shape and options that loads the file goes on with the same bits.
void save_checkpoint(const std::string& path, Trainer& t,
                     const std::map<std::string, std::string>& more = {});
/// Returns what was kept beside it. ArgumentError naming what is not there.
std::map<std::string, std::string> load_checkpoint(const std::string& path, Trainer& t);

}  // namespace cgp::train
