// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tests on paired differences whose only assumption is that, without an effect, a pair is as likely to come
// out one way as the other. That is what alternating the order of the two sides within a pair guarantees; no
// distribution, no equal variances and no independence of the two sides are assumed.
#include <cstdint>
#include <span>

#include "cgp/profile/measure/stats.h"

namespace cgp::measure {

/// p-value (two-sided) of the mean under all sign flips: exact up to 14 differences, else `flips` seeded
/// random ones with the +1 correction, so never 0. Differences of 0 stay as they are. Throws on an empty
/// range.
double sign_flip_p(std::span<const double> differences, int flips = 10000, std::uint64_t seed = 1);

/// p-value (two-sided) of the sign-flip distribution of the signed ranks (Wilcoxon), exact up to 60
/// differences, normal beyond: one wild pair moves it by one rank, not by its size. Zeros are left out; ties
/// get middle ranks, which makes the p-value slightly too large.
double signed_rank_p(std::span<const double> differences);

/// The centre of the differences (Hodges and Lehmann: median of all pairwise means) with the interval of the
/// shifts that signed_rank_p would not reject at 1 - confidence. Infinite bounds when there are too few
/// differences for the confidence.
struct Shift {
  double centre = 0;
  Interval interval;
};
Shift signed_rank_shift(std::span<const double> differences, double confidence);

}  // namespace cgp::measure
