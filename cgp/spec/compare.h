// SPDX-License-Identifier: Apache-2.0
#pragma once
// Does what came out equal what had to come out? Element by element, with the worst one named.
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/spec/host_array.h"

namespace cgp::spec {

struct Compare {
  enum class Mode {
    exact,    ///< identical bits; any NaN equals any NaN
    abs_rel,  ///< |got - want| <= abs + rel * |want|; NaN equals NaN, an infinity only itself
    multiset  ///< the same elements in any order (as exact compares them)
  };
  Mode mode = Mode::exact;
  double abs = 0, rel = 0;
};
std::string_view name(Compare::Mode m);

struct Comparison {
  bool equal = true;
  std::uint64_t elements = 0;
  std::uint64_t wrong = 0;            ///< elements outside the tolerance
  std::uint64_t first = 0;            ///< index of the first wrong element
  std::uint64_t worst = 0;            ///< index of the largest violation (multiset: of the sorted arrays)
  std::string first_got, first_want;  ///< that element: its value and, for floats, its bits
  std::string worst_got, worst_want;
  double max_abs = 0, max_rel = 0;  ///< over all elements, wrong or not (finite ones)
};

/// got and want hold the same number of elements of `dtype` (ArgumentError otherwise).
Comparison compare(const Compare& how, DType dtype, const std::vector<std::uint8_t>& got,
                   const std::vector<std::uint8_t>& want);

/// "3.25 (0x40500000)", "-7".
std::string element_text(DType dtype, const std::uint8_t* base, std::uint64_t i);

}  // namespace cgp::spec
