// SPDX-License-Identifier: Apache-2.0
// Gemma 3, text (Gemma Team, 2025). The file's norm weights are 1 + those of the checkpoint.
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

const Architecture gemma3 = {
    .name = "gemma3",
    .qk_norm = true,
    .post_norms = true,
    .rope_halves = true,
    .activation = Activation::gelu_tanh,
    .embeddings_scaled = true,
    .window_period = 6,
    .local_rope_base = 10000,
    .layers_with_embedding_scale = 62,
};

}  // namespace cgp::engine::models
