// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3.x, SmolLM and Mistral; with expert_count, Mixtral (Touvron et al., 2023; Jiang et al., 2023 and 2024).
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

using T = Architecture::Tensor;

const Architecture llama = {
    .name = "llama",
    .qkv_bias = T::optional,
    .output_bias = T::optional,
    .ffn_bias = T::optional,
    .window_period = 1,
    .experts = true,
};

}  // namespace cgp::engine::models
