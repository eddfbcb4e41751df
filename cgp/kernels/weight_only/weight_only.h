// SPDX-License-Identifier: Apache-2.0
#pragma once
// y [m, n] = x [m, k] w', w [n, k] quantised and packed (weight_only_layout.h): 1 to 16 rows of x, as when a language
// model decodes. x and y: f16 or bf16. Codes are multiplied exactly; scales are applied to f32 sums of a group.
#include <span>

#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/weight_only/weight_only_layout.h"

namespace cgp::kernels {

struct WeightOnlyProblem {
  WeightFormat format = WeightFormat::q4_0;
  DType type = DType::bf16;  ///< of x and y: f16 or bf16
  std::uint64_t m = 1, n = 0, k = 0;
  std::uint64_t x = 0, ldx = 0;  ///< [m, k]; elements between rows, 0: dense; multiples of 16 bytes
  std::uint64_t w = 0;           ///< packed
  std::uint64_t y = 0, ldy = 0;  ///< [m, n]
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const WeightOnlyProblem& p);
/// Unsupported with reject()'s sentence.
void weight_only_gemm(runtime::Stream& s, const WeightOnlyProblem& p);

struct WeightOnlyConfig {
  DType type = DType::bf16;
  WeightFormat format = WeightFormat::q4_0;
  int k_tiles = 1;             ///< of 256 along K
  int rows = 1;                ///< of x in shared memory: 1, 2, 4, 8 or 16
  int warps = 16, share = 16;  ///< of a block; that work on one tile of 16 columns of y
  int slots = 2;               ///< of a warp's ring, a tile of weights each
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    static constexpr std::string_view formats[] = {"q4_0", "q8_0", "q4_k", "q5_k", "q6_k"};
    v.choice("format", formats, c.format), v.type("type", "", c.type),
        v.number("k_tiles", "k_tiles", c.k_tiles);
    v.number("rows", "rows", c.rows), v.number("warps", "warps", c.warps),
        v.number("share", "share", c.share);
    v.number("slots", "s", c.slots);
  }
};
WeightOnlyConfig weight_only_config(const WeightOnlyProblem& p, int sms);
Variant weight_only_variant(const WeightOnlyConfig& c);

}  // namespace cgp::kernels
