// SPDX-License-Identifier: Apache-2.0
#include "cgp/prof/stats.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::prof {
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

}  // namespace cgp::prof
