// SPDX-License-Identifier: Apache-2.0
// Qwen 3, mixture of experts (Yang et al., 2025).
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

const Architecture qwen3moe = {
    .name = "qwen3moe",
    .qk_norm = true,
    .rope_halves = true,
    .experts = true,
};

}  // namespace cgp::engine::models
