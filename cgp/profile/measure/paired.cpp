// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/paired.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/sign_flip.h"

namespace cgp::measure {
namespace {

double percent(double share) { return std::round(share * 1000) / 10; }

std::string signed_percent(double share) {
  if (!std::isfinite(share)) return share > 0 ? "+inf" : "-inf";
  return text::cat(share >= 0 ? "+" : "", percent(share), " %");
}

void check(const PairedOptions& o) {
  if (o.looks.empty()) throw ArgumentError("a paired comparison needs at least one look");
  int before = 0;
  for (const Look& l : o.looks) {
    if (l.pairs <= before || !(l.alpha > 0 && l.alpha < 1))
      throw ArgumentError({"looks come after growing numbers of pairs, each with a level between 0 and 1",
                           {},
                           text::cat("a look after ", l.pairs, " pairs at ", l.alpha),
                           {}});
    before = l.pairs;
  }
  if (!(o.margin >= 0 && o.equivalence > 0))
    throw ArgumentError("the margin is not negative and the equivalence bound is positive");
}

std::string reason(const PairedResult& r, const PairedOptions& o) {
  const std::string range =
      text::cat(signed_percent(r.interval.low), " to ", signed_percent(r.interval.high));
  switch (r.verdict) {
    case Verdict::regression:
    case Verdict::improved:
      return text::cat("all of the interval (", range, ") is beyond the margin of ", percent(o.margin), " %");
    case Verdict::no_change:
      return text::cat("the 95 % interval (", range, ") lies within ±", percent(o.equivalence), " %");
    case Verdict::inconclusive:
      break;
  }
  return text::cat("the interval (", range, ") allows both; with ", r.pairs.size(),
                   " pairs a change of about ", percent(r.detectable), " % could have been found");
}

}  // namespace

std::string_view name(Verdict v) {
  switch (v) {
    case Verdict::regression:
      return "REGRESSION";
    case Verdict::improved:
      return "IMPROVED";
    case Verdict::no_change:
      return "NO_CHANGE";
    case Verdict::inconclusive:
      break;
  }
  return "INCONCLUSIVE";
}

PairedResult judge(std::span<const Pair> pairs, double alpha, const PairedOptions& options) {
  PairedResult r;
  r.pairs.assign(pairs.begin(), pairs.end());
  std::vector<double> logs;
  for (const Pair& p : pairs) {
    if (!(p.a > 0 && p.b > 0) || !std::isfinite(p.a) || !std::isfinite(p.b))
      throw ArgumentError({"both sides of a pair are positive", {}, text::cat(p.a, " and ", p.b), {}});
    logs.push_back(std::log(p.b / p.a));
  }
  r.p = signed_rank_p(logs);
  r.p_mean = sign_flip_p(logs);
  const Shift shift = signed_rank_shift(logs, 1 - alpha);
  r.change = std::expm1(shift.centre);
  r.interval = {std::expm1(shift.interval.low), std::expm1(shift.interval.high)};
  // (z for 1 - alpha / 2 at 1 %, plus z for a power of 80 %) times the standard error, plus the margin
  r.detectable = options.margin + 3.42 * robust_stddev(logs) / std::sqrt(double(logs.size()));
  if (r.p < alpha && r.interval.low > options.margin) {
    r.verdict = Verdict::regression;
  } else if (r.p < alpha && r.interval.high < -options.margin) {
    r.verdict = Verdict::improved;
  } else {
    const Interval loose = signed_rank_shift(logs, 0.95).interval;
    const Interval change{std::expm1(loose.low), std::expm1(loose.high)};
    if (change.low > -options.equivalence && change.high < options.equivalence)
      r.verdict = Verdict::no_change, r.interval = change;
  }
  r.why = reason(r, options);
  return r;
}

PairedResult compare_paired(const std::function<Pair(bool)>& measure, const PairedOptions& options) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  SplitMix64 random(options.seed);
  std::vector<Pair> pairs;
  PairedResult r;
  bool b_first = false;
  for (const Look& look : options.looks) {
    while (int(pairs.size()) < look.pairs) {
      // Two pairs with opposite order, which one first is drawn: balanced, and not in step with anything.
      b_first = pairs.size() % 2 == 0 ? random.next() & 1 : !b_first;
      pairs.push_back(measure(b_first));
    }
    r = judge(pairs, look.alpha, options);
    if (r.verdict != Verdict::inconclusive) break;
    if (options.max_seconds > 0 && elapsed() > options.max_seconds) {
      r.why += text::cat("; stopped after ", std::round(elapsed()), " s");
      break;
    }
  }
  r.seconds = elapsed();
  return r;
}

std::vector<bool> holm_rejects(std::span<const double> p, double alpha) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<bool> rejects(p.size(), false);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!(p[order[i]] < alpha / double(p.size() - i))) break;
    rejects[order[i]] = true;
  }
  return rejects;
}

}  // namespace cgp::measure
