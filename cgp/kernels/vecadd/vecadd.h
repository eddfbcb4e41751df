// SPDX-License-Identifier: Apache-2.0
#pragma once
// c[i] = a[i] + b[i], elementwise, for f32, f16 and bf16; any length, 0 included, any alignment of the
// slices.
#include <span>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

/// Queues the sum. Lengths must agree (ArgumentError); c may be a or b, but must not overlap them in part.
/// Half types round once, from the exact sum.
template <class T>  // float, half or bfloat16
void vecadd(runtime::Stream& s, const runtime::Slice<const T>& a, const runtime::Slice<const T>& b,
            const runtime::Slice<T>& c);

std::span<const Variant> vecadd_variants();
KernelEntry vecadd_entry();

}  // namespace cgp::kernels
