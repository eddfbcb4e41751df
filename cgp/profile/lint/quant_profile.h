// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of quantised matrices with vectors on this processor, run and measured beside the product with
// 32-bit weights (cgp profile quant).
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/cpu/quant/matmul.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// "4096" -> {4096, 4096, 4096}, "512x1x256" -> {512, 1, 256}. Throws ArgumentError naming `option`.
std::array<std::int64_t, 3> extents(const std::string& text, const std::string& option);

/// q4k_gemv, q5k_gemv, q6k_gemv, q8_gemv, nf4_gemv.
std::vector<std::string> quant_kernels();

struct QuantProfileOptions {
  std::string kernel = "q4k_gemv";
  std::int64_t m = 4096, n = 1, k = 4096;  ///< rows of weights, vectors, elements of a row
  cpu::Isa isa = cpu::chosen_isa();
  std::string activations;  ///< f32, int8; empty: int8 where the format has it
  int threads = 0;          ///< 0: all processors
  int runs = 7;             ///< pairs with the 32-bit product
};

/// Checks the product against sums in double first (more["check"]), then measures. more["estimate"] has
/// tokens per second, which are no measurement; more["roofline"] the ceilings, which are. Throws
/// ArgumentError for unknown kernels, extents below 1 and a K that is no multiple of the block.
Document profile_quant(const QuantProfileOptions& o);
std::string quant_text(const Document& d);

}  // namespace cgp::profile
