// SPDX-License-Identifier: Apache-2.0
#pragma once
// One constant for each line of models.def.
#include "cgp/engine/models/model.h"

namespace cgp::engine::models {

#define CGP_ARCHITECTURE(name) extern const Architecture name;
#include "cgp/engine/models/models.def"
#undef CGP_ARCHITECTURE

}  // namespace cgp::engine::models
