// SPDX-License-Identifier: Apache-2.0
#pragma once
// Activations inside kernels.
#include "cgp/dsl/core/val.h"
#include "cgp/kernels/activation/activation.h"

namespace cgp::kernels {

/// f(x), recorded in x's kernel; accuracy as in activation.h.
dsl::Val<dsl::f32> activation_code(Activation a, const dsl::Val<dsl::f32>& x);

}  // namespace cgp::kernels
