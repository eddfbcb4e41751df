// SPDX-License-Identifier: Apache-2.0
#pragma once
// The dynamic code of 8-bit states (Dettmers et al., arXiv:2110.02861; the values are those of create_dynamic_map in
// bitsandbytes): 256 numbers from 0 (signed: -0.993) to 1, in seven decades down to 1e-6. Decade i, from 10^(i-7) to 10^(i-6), is cut
// into 2^i equal parts (unsigned: 2^(i+1)), whose middles are the numbers; besides there are 0 and 1. A block of 256 elements has
// one scale, its largest magnitude.
#include <array>

namespace cgp::kernels {

inline constexpr int kOptimizerStateBlock = 256;

struct DynamicCode {
  std::array<float, 256> values{};  ///< ascending

  // How the nearest is found without a search: the exponent of x tells what may be its decade and the one number at
  // which the next begins; a decade's part is min(max(x * scale + offset, first), last), cut to an integer.
  struct Binade {
    float threshold;
    unsigned decade;  ///< of x below the threshold; others: the next
  };
  struct Decade {
    float scale, offset, first, last;
  };
  static constexpr unsigned kLowestExponent = 103;  ///< of f32, biased; all below share the first binade
  std::array<Binade, 32> binades{};
  std::array<Decade, 9> decades{};
};
DynamicCode dynamic_code(bool is_signed);

}  // namespace cgp::kernels
