// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al., 2019).
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

using T = Architecture::Tensor;

const Architecture gpt2 = {
    .name = "gpt2",
    .norm = Architecture::Norm::layer,
    .qkv_bias = T::required,
    .output_bias = T::required,
    .ffn_bias = T::required,
    .positions = true,
    .gated = false,
    .activation = Activation::gelu_tanh,
};

}  // namespace cgp::engine::models
