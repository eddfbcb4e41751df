// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two launches of a layer with an adapter:
//   lora_down      t = scale * x A': a few columns, whose cost is the bytes of x
//   lora_product   y = x op(W) + t op(B) in one pass: the main loop of the Hopper GEMM goes on over the r columns of t and B behind
//                  those of x and W
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

/// x [m, k], A [r, k], t [m, r], row-major without gaps, of one type.
struct LoraDown {
  DType type = DType::bf16;
  std::uint64_t m = 0, k = 0, r = 0;
  float scale = 1;
  std::uint64_t x = 0, a = 0, t = 0;  ///< addresses
};
/// Why it cannot be done, or gemm() is faster (few rows); empty: it can.
std::string reject(const LoraDown& p, const runtime::DeviceInfo& d);
/// Throws Unsupported with reject()'s sentence.
void lora_down(runtime::Stream& s, const LoraDown& p);

std::vector<Variant> lora_product_variants();
std::vector<Variant> lora_down_variants();

}  // namespace cgp::kernels
