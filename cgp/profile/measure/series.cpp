// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/series.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "cgp/profile/measure/stats.h"

namespace cgp::measure {
namespace {

/// Sums that give the squared error of any segment around its mean in constant time.
class Prefix {
 public:
  explicit Prefix(std::span<const double> v) : sum_(v.size() + 1, 0.0), squares_(v.size() + 1, 0.0) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      sum_[i + 1] = sum_[i] + v[i];
      squares_[i + 1] = squares_[i] + v[i] * v[i];
    }
  }
  double cost(std::size_t from, std::size_t to) const {
    const double s = sum_[to] - sum_[from];
    return squares_[to] - squares_[from] - s * s / double(to - from);
  }

 private:
  std::vector<double> sum_, squares_;
};

double difference_scale(std::span<const double> v) {
  std::vector<double> differences;
  for (std::size_t i = 1; i < v.size(); ++i) differences.push_back(v[i] - v[i - 1]);
  const double robust = robust_stddev(differences) / std::sqrt(2.0);
  return robust > 0 ? robust : stddev(differences) / std::sqrt(2.0);
}

/// Sum of |x - y| over all pairs between [from, split) and [split, to), against those within, scaled.
double energy(std::span<const double> v, std::size_t split) {
  const auto within = [&](std::span<const double> part) {
    double sum = 0;
    for (std::size_t i = 0; i < part.size(); ++i)
      for (std::size_t j = i + 1; j < part.size(); ++j) sum += std::fabs(part[i] - part[j]);
    return sum;
  };
  const auto a = v.first(split), b = v.subspan(split);
  double between = 0;
  for (double x : a)
    for (double y : b) between += std::fabs(x - y);
  const double n = double(a.size()), m = double(b.size());
  return n * m / (n + m) *
         (2 * between / (n * m) - 2 * within(a) / (n * std::max(1.0, n - 1)) -
          2 * within(b) / (m * std::max(1.0, m - 1)));
}

}  // namespace

std::vector<std::size_t> changepoints(std::span<const double> series, std::size_t min_segment,
                                      double penalty) {
  const std::size_t n = series.size();
  min_segment = std::max<std::size_t>(min_segment, 1);
  if (n < 2 * min_segment) return {};
  const double scale = difference_scale(series);
  if (!(scale > 0)) return {};
  std::vector<double> v;
  const double centre = median(series);
  for (double x : series) v.push_back((x - centre) / scale);
  if (penalty <= 0) penalty = 3 * std::log(double(n));
  const Prefix prefix(v);
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> best(n + 1, infinity);
  std::vector<std::size_t> last(n + 1, 0), candidates{0};
  best[0] = -penalty;
  for (std::size_t to = min_segment; to <= n; ++to) {
    for (std::size_t from : candidates) {
      if (to - from < min_segment) continue;
      const double total = best[from] + prefix.cost(from, to) + penalty;
      if (total < best[to]) best[to] = total, last[to] = from;
    }
    std::vector<std::size_t> kept;  // PELT's pruning: a start that is behind now stays behind
    for (std::size_t from : candidates)
      if (to - from < min_segment || best[from] + prefix.cost(from, to) <= best[to]) kept.push_back(from);
    kept.push_back(to);
    candidates = std::move(kept);
  }
  std::vector<std::size_t> out;
  for (std::size_t at = last[n]; at > 0; at = last[at]) out.push_back(at);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::size_t> energy_changepoints(std::span<const double> series, std::size_t min_segment,
                                             double alpha) {
  min_segment = std::max<std::size_t>(min_segment, 2);
  std::vector<std::size_t> out;
  const std::function<void(std::size_t, std::size_t)> divide = [&](std::size_t from, std::size_t to) {
    if (to - from < 2 * min_segment) return;
    const auto part = series.subspan(from, to - from);
    std::size_t best = 0;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t split = min_segment; split + min_segment <= part.size(); ++split)
      if (const double e = energy(part, split); e > most) most = e, best = split;
    // The split is the best of many: the level is divided by their number.
    const double level = alpha / double(part.size() - 2 * min_segment + 1);
    if (welch_p(part.first(best), part.subspan(best)) >= level) return;
    divide(from, from + best);
    out.push_back(from + best);
    divide(from + best, to);
  };
  divide(0, series.size());
  return out;
}

std::string_view name(Steadiness s) {
  switch (s) {
    case Steadiness::flat:
      return "flat";
    case Steadiness::warmup:
      return "warm-up";
    case Steadiness::slowdown:
      return "slow-down";
    case Steadiness::unsteady:
      break;
  }
  return "unsteady";
}

SteadyState steady_state(std::span<const double> times, double tolerance) {
  if (times.size() < 10) return {};
  auto starts = changepoints(times, 3);
  starts.insert(starts.begin(), 0);
  const auto level = [&](std::size_t segment) {
    const std::size_t end = segment + 1 < starts.size() ? starts[segment + 1] : times.size();
    return median(times.subspan(starts[segment], end - starts[segment]));
  };
  std::size_t steady = starts.size() - 1;
  const double final_level = level(steady);
  while (steady > 0 && std::fabs(level(steady - 1) - final_level) <= tolerance * final_level) --steady;
  if (steady == 0) return {};
  if (starts[steady] > times.size() / 2) return {Steadiness::unsteady, starts[steady]};
  return {level(0) > final_level ? Steadiness::warmup : Steadiness::slowdown, starts[steady]};
}

}  // namespace cgp::measure
