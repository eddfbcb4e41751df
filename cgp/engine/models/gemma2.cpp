// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team, 2024). The file's norm weights are 1 + those of the checkpoint.
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

const Architecture gemma2 = {
    .name = "gemma2",
    .post_norms = true,
    .rope_halves = true,
    .activation = Activation::gelu_tanh,
    .embeddings_scaled = true,
    .window_period = 2,
    .softcaps = true,
    .layers_with_embedding_scale = 46,
};

}  // namespace cgp::engine::models
