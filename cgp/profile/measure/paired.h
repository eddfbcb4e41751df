// SPDX-License-Identifier: Apache-2.0
#pragma once
// The default comparison: A and B in pairs that share their moment, order alternating, until the answer is
// clear. A machine that other work disturbs moves both sides of a pair; what is left is tested by sign flips
// (sign_flip.h) at a few planned looks whose error rates add up to 1 %.
//
//   PairedResult r = compare_paired([&](bool b_first) { return measure_one_pair(b_first); });
//   r.verdict == Verdict::regression   // B is slower than A by more than the margin, at 1 % for the whole
//   test
//
// The verdict is inconclusive, never "no change", when the data cannot tell: `detectable` says what could
// have been seen.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/profile/measure/stats.h"

namespace cgp::measure {

enum class Verdict : std::uint8_t { regression, improved, no_change, inconclusive };
/// "REGRESSION", "IMPROVED", "NO_CHANGE", "INCONCLUSIVE".
std::string_view name(Verdict v);

struct Look {
  int pairs = 0;     ///< after so many pairs
  double alpha = 0;  ///< the test's level at this look
};

struct PairedOptions {
  /// Below 9 pairs a sign-flip test cannot reach 1 %. The levels sum to 1 %.
  std::vector<Look> looks{{12, 0.002}, {20, 0.003}, {32, 0.005}};
  double margin = 0.01;       ///< a change must be beyond this share of A
  double equivalence = 0.03;  ///< "no change": the 95 % interval lies within this share
  double max_seconds = 0;     ///< stop at the next look past this time; 0: no limit
  std::uint64_t seed = 1;     ///< of the order of the two sides
};

/// Any unit, as long as it is the same on both sides; both positive.
struct Pair {
  double a = 0, b = 0;
};

struct PairedResult {
  Verdict verdict = Verdict::inconclusive;
  double change = 0;  ///< B / A - 1, estimated
  /// Of `change`, the one that decided: at the level of the look, of 95 % for no change. May be infinite.
  Interval interval;
  double p = 1;             ///< of the sign-flip test on signed ranks
  double p_mean = 1;        ///< of the sign-flip test on the mean, for information
  double detectable = 0;    ///< the change that would have been found four times in five
  std::vector<Pair> pairs;  ///< raw
  double seconds = 0;
  std::string why;  ///< one sentence
};

/// What `pairs` say at level `alpha`; no looks.
PairedResult judge(std::span<const Pair> pairs, double alpha, const PairedOptions& options = {});

/// `measure(b_first)` measures one pair, the sides in that order. Throws ArgumentError for options that make
/// no test and for times that are not positive; whatever `measure` throws.
PairedResult compare_paired(const std::function<Pair(bool b_first)>& measure,
                            const PairedOptions& options = {});

/// Level for the i-th smallest of m p-values (Holm): alpha / (m - i), i from 0. A suite of m comparisons
/// keeps the family's error rate.
std::vector<bool> holm_rejects(std::span<const double> p, double alpha);

}  // namespace cgp::measure
