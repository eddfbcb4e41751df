// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a Case's verify() compares with: references for a program that compares elsewhere (cgp web).
#include <vector>

#include "cgp/kernels/common/array.h"

namespace cgp::kernels {

/// While it lives, keeps what compare() is given on this thread. One at a time; ArgumentError for a second.
class Comparisons {
 public:
  Comparisons();
  ~Comparisons();
  Comparisons(const Comparisons&) = delete;
  Comparisons& operator=(const Comparisons&) = delete;
  struct Comparison {
    HostArray got;  ///< elements that are not compared have an infinite tolerance
    std::vector<double> want, tolerance;
  };
  std::vector<Comparison> all;
  /// The one that lives on this thread, or null: for checks that do not go through compare().
  static Comparisons* current();
};

}  // namespace cgp::kernels
