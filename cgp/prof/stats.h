// SPDX-License-Identifier: Apache-2.0
#pragma once
// Order statistics of timing samples. Medians and quantiles, because means of times are ruled by the worst
// sample.
#include <span>
#include <vector>

namespace cgp::prof {

/// Quantile q in [0, 1] with linear interpolation between order statistics (Hyndman and Fan, type 7).
/// Throws ArgumentError on an empty range or q outside [0, 1].
double quantile(std::span<const double> samples, double q);
double median(std::span<const double> samples);

struct Summary {
  std::size_t count = 0;
  double median = 0, p25 = 0, p75 = 0, min = 0, max = 0;
  /// Half the interquartile range over the median: the spread that tables print as ±%.
  double spread() const { return median > 0 ? (p75 - p25) / 2 / median : 0; }
};
Summary summarise(std::span<const double> samples);

}  // namespace cgp::prof
