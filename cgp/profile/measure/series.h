// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a series of times changes its level: warm-up at the start of a run, and steps in a history of runs.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cgp::measure {

/// Starts of the segments after the first, ascending. PELT (Killick, Fearnhead and Eckley 2012) for changes
/// of the mean: exact minimum of squared error / scale^2 + penalty per change. The scale is that of the
/// differences of neighbours, so slow drift does not hide steps; `penalty` 0 takes 3 log n (n samples), which
/// keeps false steps in normal noise rare. Segments have at least `min_segment` samples.
std::vector<std::size_t> changepoints(std::span<const double> series, std::size_t min_segment = 5,
                                      double penalty = 0);

/// The same question answered by E-divisive (Matteson and James 2014) with Welch's test for the decision at
/// level `alpha`, which makes it deterministic: for a cross-check of histories.
std::vector<std::size_t> energy_changepoints(std::span<const double> series, std::size_t min_segment = 5,
                                             double alpha = 0.001);

enum class Steadiness : std::uint8_t {
  flat,      ///< one level
  warmup,    ///< slower at first
  slowdown,  ///< faster at first
  unsteady   ///< still changing level in the last half
};
std::string_view name(Steadiness s);

struct SteadyState {
  Steadiness kind = Steadiness::flat;
  std::size_t start = 0;  ///< samples before this one are not of the steady state
};
/// Classifies a series of times in order of measurement. Levels that differ by less than `tolerance` count as
/// one. Fewer than 10 samples are taken as flat.
SteadyState steady_state(std::span<const double> times, double tolerance = 0.02);

}  // namespace cgp::measure
