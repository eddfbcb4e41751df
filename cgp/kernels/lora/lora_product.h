// SPDX-License-Identifier: Apache-2.0
#pragma once
// y = x op(W) + t op(B) in one pass: the main loop of the Hopper GEMM goes on over the r columns of t and B behind those of x and W.
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

/// x [m, k], t [m, r], y [m, n]; W [k, n] and B [r, n] or, transposed, W [n, k] and B [n, r]. All row-major without gaps, of one type.
struct LoraProduct {
  DType type = DType::bf16;
  std::uint64_t m = 0, n = 0, k = 0, r = 0;
  bool transposed = true;
  std::uint64_t x = 0, w = 0, t = 0, b = 0, y = 0;  ///< addresses
  bool pdl = false;  ///< the work queued right before writes t, and none of the others
};
/// Why one pass cannot do it; empty: it can.
std::string reject(const LoraProduct& p, const runtime::DeviceInfo& d);
/// Throws Unsupported with reject()'s sentence.
void lora_product(runtime::Stream& s, const LoraProduct& p);

std::vector<Variant> lora_variants();

}  // namespace cgp::kernels
