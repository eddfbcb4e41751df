// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::measure {
namespace {

using SecondsClock = std::function<double()>;

double time_calls(const SecondsClock& clock, const std::function<void()>& f, std::size_t calls) {
  const double start = clock();
  for (std::size_t i = 0; i < calls; ++i) f();
  return clock() - start;
}

/// Calls of `f` that take `seconds`, from the fastest of a few tries: a disturbed try would give too few.
std::size_t calls_for(const SecondsClock& clock, const std::function<void()>& f, double seconds) {
  std::size_t calls = 1;
  for (;;) {
    double fastest = time_calls(clock, f, calls);
    for (int i = 0; i < 2 && fastest < seconds; ++i) fastest = std::min(fastest, time_calls(clock, f, calls));
    if (fastest >= seconds * 0.9 || calls >= std::size_t(1) << 40) return calls;
    const double factor = fastest > 0 ? seconds / fastest : 1000;
    calls = std::size_t(std::ceil(double(calls) * std::clamp(factor, 1.1, 1000.0)));
  }
}

std::int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

class Flush {
 public:
  explicit Flush(std::size_t bytes) : memory_(bytes / sizeof(std::uint64_t), 1) {}
  void operator()() {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < memory_.size(); i += 8) sum += ++memory_[i];
    keep(sum);
  }

 private:
  std::vector<std::uint64_t> memory_;
};

void check(const MeasureOptions& o) {
  if (!(o.precision > 0) || o.min_samples < 3 || o.max_samples < o.min_samples || !(o.max_seconds > 0))
    throw ArgumentError({"a measurement has a positive precision and time, and at least 3 samples",
                         {},
                         text::cat("precision ", o.precision, ", ", o.max_seconds, " s, ", o.min_samples,
                                   " to ", o.max_samples, " samples"),
                         {}});
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string_view name(Stop s) {
  switch (s) {
    case Stop::precision:
      return "precision";
    case Stop::time:
      return "time";
    case Stop::samples:
      break;
  }
  return "samples";
}

Measurement measure(const std::function<void()>& f, const MeasureOptions& options) {
  check(options);
  const double start = options.clock();
  Measurement m;
  f();
  m.calls = options.cold ? 1 : calls_for(options.clock, f, options.sample_seconds);
  Flush flush(options.cold ? options.flush_bytes : 0);
  const std::int64_t before = preemptions();
  std::vector<double> all;
  double measured = 0;
  std::size_t next_look = options.min_samples;
  m.stop = Stop::samples;
  while (all.size() < options.max_samples) {
    if (options.cold) flush();
    const double seconds = time_calls(options.clock, f, m.calls);
    measured += seconds;
    all.push_back(seconds / double(m.calls));
    if (all.size() >= next_look && measured >= options.min_seconds) {
      // Looks at growing intervals: the interval costs a sort.
      next_look = all.size() + std::max<std::size_t>(10, all.size() / 4);
      const Interval i = median_interval(all);
      if ((i.high - i.low) / 2 <= options.precision * median(all)) {
        m.stop = Stop::precision;
        break;
      }
    }
    if (options.clock() - start > options.max_seconds && all.size() >= 3) {
      m.stop = Stop::time;
      break;
    }
  }
  m.preemptions = preemptions() - before;
  const auto window = std::min<std::size_t>(all.size(), 2000);  // PELT is quadratic where nothing changes
  const SteadyState state = steady_state(std::span(all).first(window));
  m.steadiness = state.kind;
  const std::size_t left_out = state.kind == Steadiness::warmup ? state.start : 0;
  m.warmup.assign(all.begin(), all.begin() + std::ptrdiff_t(left_out));
  m.seconds.assign(all.begin() + std::ptrdiff_t(left_out), all.end());
  m.summary = summarise(m.seconds);
  m.interval = median_interval(m.seconds);
  m.precision = m.summary.median > 0 ? (m.interval.high - m.interval.low) / 2 / m.summary.median : 0;
  return m;
}

PairedResult compare_functions(const std::function<void()>& a, const std::function<void()>& b,
                               const LockstepOptions& options) {
  if (options.samples < 1)
    throw ArgumentError({"a pair has at least one sample", {}, text::cat(options.samples), {}});
  const std::size_t calls = std::max(calls_for(options.clock, a, options.sample_seconds),
                                     calls_for(options.clock, b, options.sample_seconds));
  const auto sample = [&](const std::function<void()>& f) {
    f();  // what the other side left in the caches is paid for here
    return time_calls(options.clock, f, calls);
  };
  return compare_paired(
      [&](bool b_first) {
        std::vector<double> ratios, times_a;
        for (int i = 0; i < options.samples; ++i) {
          const bool second_first = b_first != (i % 2 == 1);
          double ta = 0, tb = 0;
          if (second_first)
            tb = sample(b), ta = sample(a);
          else
            ta = sample(a), tb = sample(b);
          ratios.push_back(tb / ta);
          times_a.push_back(ta / double(calls));
        }
        const double typical = median(times_a);
        return Pair{typical, typical * median(ratios)};
      },
      options.paired);
}

}  // namespace cgp::measure
