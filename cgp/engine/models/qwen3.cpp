// SPDX-License-Identifier: Apache-2.0
// Qwen 3, dense (Yang et al., 2025).
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

const Architecture qwen3 = {
    .name = "qwen3",
    .qk_norm = true,
    .rope_halves = true,
};

}  // namespace cgp::engine::models
