// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5 (Yang et al., 2024).
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

using T = Architecture::Tensor;

const Architecture qwen2 = {
    .name = "qwen2",
    .qkv_bias = T::required,
    .rope_halves = true,
};

}  // namespace cgp::engine::models
