// SPDX-License-Identifier: Apache-2.0
#pragma once
// Order statistics of timing samples. Medians and quantiles, because means of times are ruled by the worst
// sample.
#include <optional>
#include <span>
#include <vector>

namespace cgp::measure {

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

double mean(std::span<const double> samples);
/// With n - 1 in the denominator; 0 for one sample.
double stddev(std::span<const double> samples);
/// Median absolute deviation from the median, times 1.4826: the standard deviation of what is normal in it.
double robust_stddev(std::span<const double> samples);
/// Correlation of each sample with the next one; 0 below three samples or without variance.
double lag1_correlation(std::span<const double> samples);

/// An estimate between two bounds.
struct Interval {
  double low = 0, high = 0;
};
/// Distribution-free confidence interval of the median from order statistics (binomial). Samples that follow
/// each other closely count for fewer: n (1 - r) / (1 + r) of them, r the lag-1 correlation if positive.
Interval median_interval(std::span<const double> samples, double confidence = 0.95);
/// The same where there is one: from fewer than six samples not even their extremes hold the median 95 times
/// in 100.
std::optional<Interval> known_median_interval(std::span<const double> samples);

/// Confidence interval of the geometric mean of what several processes measured, one value each: Student's t on
/// the logarithms (Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013). A process keeps its
/// alignment and its pages, so that more samples of one process do not make it narrower; more processes do. None
/// for fewer than three, and for values that are not positive.
std::optional<Interval> process_interval(std::span<const double> values, double confidence = 0.95);
double geometric_mean(std::span<const double> values);

/// P(B > A) - P(B < A) over all pairs of samples, in [-1, 1].
double cliffs_delta(std::span<const double> a, std::span<const double> b);
/// (mean B - mean A) / pooled standard deviation; 0 when both have no variance and agree, else +-infinity.
double cohens_d(std::span<const double> a, std::span<const double> b);

/// Two-sided p-value of Student's t with `freedom` degrees of freedom.
double student_t_p(double t, double freedom);
/// Welch's test that two samples have one mean; 1 with fewer than two samples on a side.
double welch_p(std::span<const double> a, std::span<const double> b);

}  // namespace cgp::measure
