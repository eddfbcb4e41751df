// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a mixture of experts ends with: each token gets the weighted results of the experts that it chose.
//   out[i, :] += sum over j < used of weights[i, j] * y[rows[i, j], :], in that order, f32
#include <string>

#include "cgp/kernels/common/config.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

struct MoeCombine {
  std::uint64_t tokens = 0, used = 0, k = 0;  ///< k: a multiple of 4
  std::uint64_t y = 0;                        ///< f32 [.., k]
  std::uint64_t rows = 0, weights = 0;        ///< u32, f32 [tokens, used]
  std::uint64_t out = 0, ldo = 0;             ///< f32 [tokens, k]; elements between rows, 0: dense
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const MoeCombine& p);
/// ArgumentError with reject()'s sentence.
void moe_combine(runtime::Stream& s, const MoeCombine& p);

struct MoeCombineConfig {
  int used = 0;
  /// "moe_combine_used8"
  std::string name() const { return config_name("moe_combine", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.number("used", "used", c.used);
  }
};
Variant moe_combine_variant(const MoeCombineConfig& c);

}  // namespace cgp::kernels
