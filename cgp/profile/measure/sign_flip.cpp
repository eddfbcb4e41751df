// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/sign_flip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/random.h"

namespace cgp::measure {
namespace {

constexpr std::size_t kExactFlips = 14, kExactRanks = 60;

void require_samples(std::span<const double> v) {
  if (v.empty()) throw ArgumentError("a paired test needs at least one pair");
}

/// P(W <= w) for w = 0 .. n (n + 1) / 2, W the sum of a random subset of the ranks 1 .. n.
std::vector<double> rank_sum_distribution(std::size_t n) {
  std::vector<double> ways(n * (n + 1) / 2 + 1, 0.0);
  ways[0] = 1;
  std::size_t most = 0;
  for (std::size_t rank = 1; rank <= n; ++rank) {
    most += rank;
    for (std::size_t w = most; w >= rank; --w) ways[w] += ways[w - rank];
    for (std::size_t w = 0; w <= most; ++w) ways[w] *= 0.5;  // stays a probability
  }
  for (std::size_t w = 1; w < ways.size(); ++w) ways[w] += ways[w - 1];
  return ways;
}

double normal_tail(double z) { return std::erfc(z / std::sqrt(2.0)) / 2; }

/// Largest c with P(W <= c - 1) <= tail: the c-th smallest and c-th largest pairwise mean bound the interval.
std::size_t critical_count(std::size_t n, double tail) {
  if (n > kExactRanks) {
    double low = 0, high = 40;
    for (int i = 0; i < 80; ++i) {
      const double z = (low + high) / 2;
      (normal_tail(z) > tail ? low : high) = z;
    }
    const double m = double(n);
    const double c = m * (m + 1) / 4 - low * std::sqrt(m * (m + 1) * (2 * m + 1) / 24);
    return c > 0 ? std::size_t(c) : 0;
  }
  const auto below = rank_sum_distribution(n);
  std::size_t c = 0;
  while (c < below.size() && below[c] <= tail) ++c;
  return c;
}

}  // namespace

double sign_flip_p(std::span<const double> differences, int flips, std::uint64_t seed) {
  require_samples(differences);
  const std::size_t n = differences.size();
  double observed = 0;
  for (double d : differences) observed += d;
  const double limit = std::fabs(observed) * (1 - 1e-12);
  const auto extreme = [&](auto sign) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += sign(i) ? -differences[i] : differences[i];
    return std::fabs(sum) >= limit;
  };
  if (n <= kExactFlips) {
    std::size_t count = 0;
    for (std::size_t mask = 0; mask < (std::size_t(1) << n); ++mask)
      count += extreme([&](std::size_t i) { return mask >> i & 1; });
    return double(count) / double(std::size_t(1) << n);
  }
  SplitMix64 random(seed);
  int count = 0;
  for (int f = 0; f < flips; ++f) {
    std::uint64_t bits = 0;
    count += extreme([&](std::size_t i) {
      if (i % 64 == 0) bits = random.next();
      return bits >> (i % 64) & 1;
    });
  }
  return double(count + 1) / double(flips + 1);
}

double signed_rank_p(std::span<const double> differences) {
  require_samples(differences);
  std::vector<double> d;
  for (double x : differences)
    if (x != 0) d.push_back(x);
  const std::size_t n = d.size();
  if (n == 0) return 1;
  std::sort(d.begin(), d.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
  double positive = 0;
  for (std::size_t i = 0; i < n;) {
    std::size_t end = i;
    while (end < n && std::fabs(d[end]) == std::fabs(d[i])) ++end;
    const double rank = double(i + 1 + end) / 2;
    for (; i < end; ++i)
      if (d[i] > 0) positive += rank;
  }
  const double total = double(n) * double(n + 1) / 2;
  const double smaller = std::min(positive, total - positive);
  if (n > kExactRanks) {
    const double m = double(n);
    const double z = (total / 2 - smaller - 0.5) / std::sqrt(m * (m + 1) * (2 * m + 1) / 24);
    return std::min(1.0, 2 * normal_tail(std::max(z, 0.0)));
  }
  // A half rank (ties) is rounded up: the p-value errs to the safe side.
  return std::min(1.0, 2 * rank_sum_distribution(n)[std::size_t(std::ceil(smaller))]);
}

Shift signed_rank_shift(std::span<const double> differences, double confidence) {
  require_samples(differences);
  const std::size_t n = differences.size();
  std::vector<double> means;
  means.reserve(n * (n + 1) / 2);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j) means.push_back((differences[i] + differences[j]) / 2);
  std::sort(means.begin(), means.end());
  const double infinity = std::numeric_limits<double>::infinity();
  Shift out{quantile(means, 0.5), {-infinity, infinity}};
  const std::size_t c = critical_count(n, (1 - confidence) / 2);
  if (c >= 1 && 2 * c <= means.size()) out.interval = {means[c - 1], means[means.size() - c]};
  return out;
}

}  // namespace cgp::measure
