// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::measure {
namespace {

double at(const std::vector<double>& sorted, double q) {
  const double position = q * double(sorted.size() - 1);
  const auto below = std::size_t(std::floor(position));
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - double(below)) * (sorted[above] - sorted[below]);
}

std::vector<double> sort(std::span<const double> samples) {
  if (samples.empty()) throw ArgumentError("a statistic needs at least one sample");
  std::vector<double> v(samples.begin(), samples.end());
  std::sort(v.begin(), v.end());
  return v;
}

}  // namespace

double quantile(std::span<const double> samples, double q) {
  if (!(q >= 0 && q <= 1))
    throw ArgumentError(ErrorText{"a quantile lies between 0 and 1", {}, text::cat("got ", q), {}});
  return at(sort(samples), q);
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

Summary summarise(std::span<const double> samples) {
  const auto v = sort(samples);
  return {v.size(), at(v, 0.5), at(v, 0.25), at(v, 0.75), v.front(), v.back()};
}

double mean(std::span<const double> samples) {
  if (samples.empty()) throw ArgumentError("a statistic needs at least one sample");
  double sum = 0;
  for (double x : samples) sum += x;
  return sum / double(samples.size());
}

double stddev(std::span<const double> samples) {
  const double m = mean(samples);
  double sum = 0;
  for (double x : samples) sum += (x - m) * (x - m);
  return samples.size() > 1 ? std::sqrt(sum / double(samples.size() - 1)) : 0;
}

double robust_stddev(std::span<const double> samples) {
  const double m = median(samples);
  std::vector<double> deviations;
  for (double x : samples) deviations.push_back(std::fabs(x - m));
  return 1.4826 * median(deviations);
}

double lag1_correlation(std::span<const double> samples) {
  if (samples.size() < 3) return 0;
  const double m = mean(samples);
  double self = 0, next = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    self += (samples[i] - m) * (samples[i] - m);
    if (i + 1 < samples.size()) next += (samples[i] - m) * (samples[i + 1] - m);
  }
  return self > 0 ? next / self : 0;
}

Interval median_interval(std::span<const double> samples, double confidence) {
  const auto v = sort(samples);
  const double correlation = std::clamp(lag1_correlation(samples), 0.0, 0.99);
  const double n = double(v.size());
  const double effective = std::max(1.0, n * (1 - correlation) / (1 + correlation));
  // Quantile of the normal that bounds the binomial: exact counting gives the same ranks from 20 samples on.
  double low = 0, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double z = (low + high) / 2;
    (std::erf(z / std::sqrt(2.0)) < confidence ? low : high) = z;
  }
  const double half = low * 0.5 / std::sqrt(effective);
  const double last = n - 1;
  const auto rank = [&](double q) { return std::clamp(q * n - 0.5, 0.0, last); };
  return {v[std::size_t(std::floor(rank(0.5 - half)))], v[std::size_t(std::ceil(rank(0.5 + half)))]};
}

std::optional<Interval> known_median_interval(std::span<const double> samples) {
  return samples.size() < 6 ? std::nullopt : std::optional(median_interval(samples));
}

double cliffs_delta(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) throw ArgumentError("an effect size needs samples on both sides");
  const auto sorted = sort(a);
  double sum = 0;
  for (double x : b) {
    sum += double(std::lower_bound(sorted.begin(), sorted.end(), x) - sorted.begin());
    sum -= double(sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), x));
  }
  return sum / double(a.size()) / double(b.size());
}

double cohens_d(std::span<const double> a, std::span<const double> b) {
  const double difference = mean(b) - mean(a), sa = stddev(a), sb = stddev(b);
  const double freedom = double(a.size() + b.size()) - 2;
  if (freedom <= 0) return 0;
  const double pooled =
      std::sqrt((double(a.size() - 1) * sa * sa + double(b.size() - 1) * sb * sb) / freedom);
  if (pooled > 0) return difference / pooled;
  return difference == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), difference);
}

namespace {

/// Regularised incomplete beta function by its continued fraction (Lentz's method).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) /
      a;
  const auto guard = [](double v) { return std::fabs(v) < 1e-300 ? 1e-300 : v; };
  double c = 1, d = 1 / guard(1 - (a + b) * x / (a + 1)), f = d;
  for (int m = 1; m < 300; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / guard(1 + even * d);
    c = guard(1 + even / c);
    f *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / guard(1 + odd * d);
    c = guard(1 + odd / c);
    f *= c * d;
    if (std::fabs(c * d - 1) < 1e-14) break;
  }
  return front * f;
}

}  // namespace

double student_t_p(double t, double freedom) {
  if (!(freedom > 0)) return 1;
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double geometric_mean(std::span<const double> values) {
  std::vector<double> logs;
  for (double v : values) logs.push_back(std::log(v));
  return std::exp(mean(logs));
}

std::optional<Interval> process_interval(std::span<const double> values, double confidence) {
  if (values.size() < 3 || !std::all_of(values.begin(), values.end(), [](double v) { return v > 0; }))
    return std::nullopt;
  std::vector<double> logs;
  for (double v : values) logs.push_back(std::log(v));
  double low = 0, high = 1000;
  for (int i = 0; i < 60; ++i) {
    const double t = (low + high) / 2;
    (1 - student_t_p(t, double(logs.size() - 1)) < confidence ? low : high) = t;
  }
  const double half = low * stddev(logs) / std::sqrt(double(logs.size()));
  return Interval{std::exp(mean(logs) - half), std::exp(mean(logs) + half)};
}

double welch_p(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return 1;
  const double va = stddev(a) * stddev(a) / double(a.size()), vb = stddev(b) * stddev(b) / double(b.size());
  const double difference = mean(b) - mean(a);
  if (va + vb <= 0) return difference == 0 ? 1 : 0;
  const double freedom =
      (va + vb) * (va + vb) / (va * va / double(a.size() - 1) + vb * vb / double(b.size() - 1));
  return student_t_p(difference / std::sqrt(va + vb), freedom);
}

}  // namespace cgp::measure
