// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-3.5 mini and medium (Abdin et al., 2024).
#include "cgp/engine/models/architectures.h"

namespace cgp::engine::models {

const Architecture phi3 = {
    .name = "phi3",
    .rope_halves = true,
    .window_period = 1,
};

}  // namespace cgp::engine::models
